"""`millrace run` on "cuda" ends with the weights that the update rules give in plain PyTorch, within rounding."""

import json
import os
import sys
import unittest

import program
import test_ranks
import test_reference


class Schedules(test_reference.Schedules):
    """All that the base class has: each schedule of PyTorch's rules. One cut in a short run, since each takes its time."""

    cuts = test_reference.Schedules.cuts if program.LONG else [[2, 4, 6]]
    seed = 2  # with 1, a ReLU under pb takes 1.5e-8, whose sign is the order of a sum
    test_replicated_stages = None  # can't be recorded

    def learn(self, tables, *options, **named):
        """Every run is recorded on a CUDA device, and the report says so."""
        pipeline = {"kernels": "fixed", **tables["pipeline"], "devices": "cuda", "capture": "graph"}
        report, outcome = super().learn({**tables, "pipeline": pipeline}, *options, **named)
        self.assertEqual(set(report["devices"]), {"cuda:0"})
        return report, outcome

    def assert_weights(self, expected, **near):
        """Recorded steps are kernels of our own, as step programs on cores are."""
        super().assert_weights(expected, **(near or {"rtol": 1e-4, "atol": 1e-5}))


class Kernels(program.CliTest):
    def test_kernels_chosen_by_timing_are_a_resumed_runs_too(self):
        frames = program.write_frames(self.folder / "frames", program.random_frames(seed=3, count=12))
        tables = {"source": {"uri": frames, "width": 8, "height": 8, "pace": "asap"},
                  "model": {"layers": 2, "features": 4, "kernel": 3},
                  "pipeline": {"schedule": "sequential", "stages": 1, "devices": "cuda"},
                  "checkpoint": {"dir": str(self.folder / "state"), "every": 6}}
        report, _ = self.learn(tables)
        chosen = report["run"]["kernels"]
        self.assertTrue(all(name.startswith("fma ") for name in chosen.values()), chosen)
        # A timing here is chance: with no cache, a run that did not go on would choose otherwise.
        os.environ["XDG_CACHE_HOME"] = str(self.folder / "no-cache")
        tables["checkpoint"]["resume"] = True
        again, _ = self.learn(tables)
        self.assertEqual(again["run"]["kernels"], chosen)


class FirstRuns(program.CliTest):
    """Steps are recorded though their kernels are neither compiled nor chosen yet."""

    def record(self, model, width=24, height=16):
        for precision in ("float32", "tf32", "bf16") if program.LONG else ("bf16",):
            for kernels in ("fixed", "tuned"):
                with self.subTest(model, precision=precision, kernels=kernels):
                    os.environ["XDG_CACHE_HOME"] = str(self.folder / f"{precision}-{kernels}")
                    report, _ = self.learn({"source": {"uri": "synth:shapes", "width": width, "height": height}, "model": model,
                                            "pipeline": {"stages": 1, "devices": "cuda", "capture": "graph",
                                                         "precision": precision, "kernels": kernels}}, "--frames", "3")
                    self.assertEqual((report["capture"], report["capture_error"]), ("graph", None))

    def test_wide_layers_beside_narrow_ones(self):
        """One kernel is launched with shared memory for one chunk of channels and for two."""
        widths = [3, 16, 48, 48, 16, 16, 3] if program.LONG else [3, 48, 48, 16, 16, 3]
        layers = [{"type": "conv", "out": out, "kernel": 3, "stride": 1} for out in widths[1:]]
        self.record({"preset": "layers", "layer": layers}, *([] if program.LONG else [8, 6]))

    @unittest.skipUnless(program.LONG, "minutes")
    def test_networks_of_pytorch(self):
        for name in ("UNet", "make"):
            program.output_of(sys.executable, "-m", "millrace.export", program.ROOT / f"tests/python/networks.py:{name}",
                              "-o", self.folder / f"{name}.pt")
            self.record({"preset": "file", "file": str(self.folder / f"{name}.pt")})
        self.record({"preset": "resnet18"}, 32, 32)


class Profile(program.CliTest):
    """Modules are timed as steps are recorded, and LibTorch warns of nothing."""

    TABLES = {"source": {"uri": "synth:shapes", "width": 16, "height": 12}, "pipeline": {"devices": "cuda"},
              "model": {"layers": 2, "features": 4, "kernel": 3}}

    def test_modules_and_operators(self):
        outcome = self.succeed("profile", self.write(self.TABLES))
        self.assertRegex(outcome.out, "on cuda:0, measured by .*, recorded; ")
        self.assertNotIn("AccumulateGrad", outcome.err)
        outcome = self.succeed("profile", self.write(self.TABLES), "--operators")
        self.assertRegex(outcome.out, r"forward 6x12x16 -> 4x12x16 k3 s1 relu +gpu .* +\d+\.\d+ +\d+\.\d% +\d+\.\d\n")
        self.assertRegex(outcome.out, r"all: \d+\.\d+ ms, \d+\.\d GFLOP/s\n$")


@unittest.skipUnless(test_ranks.MPI, "this build has no MPI")
class Ranks(program.CliTest):
    def test_two_ranks_hand_over_from_gpu_to_gpu(self):
        frames = program.write_frames(self.folder / "frames", program.random_frames(seed=3, count=30))
        tables = {"source": {"uri": frames, "width": 24, "height": 16, "pace": "asap"},
                  "model": {"layers": 4, "features": 4, "kernel": 3},
                  "pipeline": {"stages": 2, "cut": [4], "devices": "cuda", "kernels": "fixed"}}
        self.learn(tables)
        alone = program.tensors_of(self.folder / "out.safetensors")
        tables["pipeline"]["devices"] = ["cuda:0", "cuda:1"]
        tables["output"] = {"weights": str(self.folder / "ranks.safetensors")}
        config = program.write_toml(self.folder / "ranks.toml", program.bare(tables))
        report = self.folder / "ranks.json"
        preload = ":".join(part for part in os.environ["FORK_SERVER"].split(":") if not part.endswith("libfork_server.so"))
        outcome = test_ranks.ranks(
            2, f"HOST_DEVICE_COUNT=2 LD_PRELOAD={preload} {program.MILLRACE} run {config} --quiet --report {report}",
            shell=True)
        self.assert_code(program.DONE, outcome)
        self.assertEqual(program.tensors_of(self.folder / "ranks.safetensors"), alone)
        by = {link["carries"]: link["by"] for rank in json.loads(report.read_text())["ranks"] for link in rank["links"]}
        self.assertEqual(by, {"activation": "NCCL", "gradient": "NCCL", "target": "MPI", "prediction": "MPI", "release": "MPI"})
