"""`millrace bench operations`: each operator of a step beside LibTorch's."""

import tempfile
from pathlib import Path

from measuring import median, median_ratio, one_by_one, toml


def layer(of, **keys):
    return {"type": of, **keys}


NETWORKS = {
    "residual": [layer("conv", out=32, kernel=7, stride=2), layer("groupnorm", groups=8), layer("relu"), layer("maxpool"),
                 layer("basic-block", out=64, stride=1), layer("basic-block", out=64, stride=2),
                 layer("bottleneck", out=32, stride=1), layer("conv", out=192, kernel=1), layer("pixel-shuffle", factor=8),
                 layer("sigmoid")],
    "u-shaped": [layer("conv", out=16, kernel=3), layer("leaky-relu"), layer("avgpool"), layer("conv", out=32, kernel=3),
                 layer("silu"), layer("upsample", factor=2, kind="bilinear"), layer("concat", **{"from": 1}),
                 layer("conv", out=16, kernel=5), layer("instancenorm"), layer("tanh"), layer("conv", out=3, kernel=3),
                 layer("sigmoid")],
    "attention": [layer("conv", out=64, kernel=3, stride=2), layer("conv", out=64, kernel=7, stride=2, groups=64),
                  layer("avgpool"), layer("groupnorm", groups=1), layer("attention", groups=4),
                  layer("conv", out=256, kernel=1), layer("gelu"), layer("conv", out=64, kernel=1),
                  layer("transposed-conv", out=16, factor=8), layer("conv", out=3, kernel=1), layer("sigmoid")]}


def operations(machine, options):
    with tempfile.TemporaryDirectory() as folder:
        configs = {"": options.config} if options.config else {}
        for name, layers in {} if configs else NETWORKS.items():
            configs[name] = Path(folder, name + ".toml")
            configs[name].write_text('[source]\nuri = "synth:moving"\nwidth = 64\nheight = 64\n'
                                     f'[model]\npreset = "layers"\nlayer = {toml(layers)}\n')
        rows = {}
        turns = [each for _ in range(options.rounds) for each in configs.items()]
        for name, config in one_by_one("operations", turns):
            for row in machine.operations(config=str(config), seconds=options.seconds / 10):
                kept = rows.setdefault(" ".join((name, row["operator"], row["shapes"])).strip(), {"network": name, **row, "taken": []})
                kept["taken"].append((row["ours_us"], row["libtorch_us"]))
    arms = []
    for arm, row in rows.items():
        ours, libtorch = zip(*row.pop("taken"))
        arms.append({"arm": arm, **row, "operator": row["operator"].removeprefix("aten::"), "ours_us": median(ours),
                     "libtorch_us": median(libtorch), "over_libtorch": median_ratio(ours, libtorch)})
    arms.sort(key=lambda arm: (list(configs).index(arm["network"]), -arm["times"] * arm["ours_us"]))
    return {"arms": arms, "slower": sum(arm["over_libtorch"] > 1 for arm in arms), "threads": 1}
