"""Profiles for tests of the commands that read them."""

import json


def module(name, forward, weight=0.0, stash=0.0, activation=0.0):
    """A module whose backward takes twice as long as its forward."""
    return {"name": name, "forward_ms": [forward, 0], "input_gradient_ms": [forward, 0],
            "weight_gradient_ms": [forward, 0], "update_ms": [0, 0], "activation_bytes": activation,
            "gradient_bytes": activation, "weight_bytes": weight, "state_bytes": 0, "stash_bytes": stash}


def write_profile(folder, *modules, **more):
    path = folder / "profile.json"
    modules[0]["input_gradient_ms"] = [0, 0]
    path.write_text(json.dumps({"millrace_profile": 1, "network": "n", "source": "s", "device": "d",
                                "modules": modules, **more}))
    return path
