"""Networks written layer by layer: what each type computes, what is refused, and where the error points."""

import math

import torch
from safetensors.torch import save_file
from torch import nn

import program
import reference

LR = 0.1


def conv(out, kernel=3, **keys):
    return {"type": "conv", "out": out, "kernel": kernel, **keys}


def layer(kind, **keys):
    return {"type": kind, **keys}


class Attention(nn.Module):
    """As timm's Vision Transformers have it."""

    def __init__(self, channels, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(channels, 3 * channels)
        self.proj = nn.Linear(channels, channels)

    def forward(self, x):
        n, c, h, w = x.shape
        q, k, v = self.qkv(x.flatten(2).transpose(1, 2)).reshape(n, h * w, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(n, h * w, c)
        return self.proj(y).transpose(1, 2).reshape(x.shape)


class Skipping(nn.Module):
    """Its modules are named by their places among layers."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(4)
        for place, before, after in ((0, 3, 6), (2, 6, 6), (5, 6, 6), (7, 9, 3)):
            self.add_module(str(place), nn.Conv2d(before, after, 3, padding=1))

    def forward(self, x):
        first, second, third, last = self.children()
        y = first(x).relu()
        y = third((second(y) + y).relu())
        return last(torch.cat((y, x), 1)).sigmoid()


def frozen(channels):
    """A batch norm that has seen something, and sees no more."""
    norm = nn.BatchNorm2d(channels)
    norm(torch.rand(4, channels, 5, 5, generator=torch.Generator().manual_seed(1)))
    return norm.eval()


torch.manual_seed(5)  # the same networks in each run

# Our layers beside PyTorch's modules; every network gives back its input's size, 24x16. Each type
# but the residual blocks is there.
NETWORKS = {
    "activations": [(conv(4), nn.Conv2d(3, 4, 3, padding=1)), (layer("relu"), nn.ReLU()),
                    (conv(4, 1), nn.Conv2d(4, 4, 1)), (layer("leaky-relu", slope=0.2), nn.LeakyReLU(0.2)),
                    (conv(4, 1), nn.Conv2d(4, 4, 1)), (layer("leaky-relu"), nn.LeakyReLU()),
                    (layer("gelu"), nn.GELU()), (conv(3, 5), nn.Conv2d(4, 3, 5, padding=2)),
                    (layer("tanh"), nn.Tanh()), (layer("sigmoid"), nn.Sigmoid())],
    "sizes": [(conv(8, stride=2), nn.Conv2d(3, 8, 3, stride=2, padding=1)), (layer("maxpool"), nn.MaxPool2d(2)),
              (layer("avgpool", kernel=2), nn.AvgPool2d(2)), (conv(12), nn.Conv2d(8, 12, 3, padding=1)),
              (layer("upsample", factor=4), nn.Upsample(scale_factor=4)),
              (layer("pixel-shuffle", factor=2), nn.PixelShuffle(2))],
    "norm": [(conv(6), nn.Conv2d(3, 6, 3, padding=1)), (layer("groupnorm", groups=3), nn.GroupNorm(3, 6)),
             (conv(3), nn.Conv2d(6, 3, 3, padding=1))],
    "attention": [(conv(8), nn.Conv2d(3, 8, 3, padding=1)), (layer("avgpool"), nn.AvgPool2d(2)),
                  (layer("attention", groups=2), Attention(8, 2)), (layer("attention"), Attention(8, 1)),
                  (conv(12, 1), nn.Conv2d(8, 12, 1)), (layer("pixel-shuffle", factor=2), nn.PixelShuffle(2))],
    "frozen": [(conv(6), nn.Conv2d(3, 6, 3, padding=1)), (layer("batchnorm"), frozen(6)),
               (layer("silu"), nn.SiLU()), (layer("dropout"), nn.Dropout(0.5).eval()),
               (layer("transposed-conv", out=6), nn.ConvTranspose2d(6, 6, 2, 2)), (layer("avgpool"), nn.AvgPool2d(2)),
               (conv(6, groups=6), nn.Conv2d(6, 6, 3, padding=1, groups=6)), (layer("instancenorm"), nn.GroupNorm(6, 6)),
               (conv(3), nn.Conv2d(6, 3, 3, padding=1))],
    "depthwise": [(conv(20), nn.Conv2d(3, 20, 3, padding=1)),
                  (conv(20, 5, stride=2, groups=20), nn.Conv2d(20, 20, 5, stride=2, padding=2, groups=20)), (layer("relu"), nn.ReLU()),
                  (conv(20, groups=20), nn.Conv2d(20, 20, 3, padding=1, groups=20)), (conv(12, 1), nn.Conv2d(20, 12, 1)),
                  (layer("pixel-shuffle", factor=2), nn.PixelShuffle(2))],
    # Its first stage has nothing to learn.
    "bare first": [(layer("avgpool"), nn.AvgPool2d(2)), (conv(12, 1), nn.Conv2d(3, 12, 1)),
                   (layer("pixel-shuffle", factor=2), nn.PixelShuffle(2))],
}
# How close a run must come: PyTorch's own bits but for a few, and as docs/step-programs.md says.
NEAR = {"eager": {"rtol": 1e-5, "atol": 1e-7}, "graph": {"rtol": 1e-3, "atol": 1e-5}}
CUTS = {"attention": [2], "frozen": [3], "activations": [5], "sizes": [3], "norm": [2], "bare first": [1],
        "depthwise": [2]}


class Layers(reference.ReferenceTest):
    def setUp(self):
        super().setUp()
        self.frames = program.random_frames(4, 8)
        self.uri = program.write_frames(self.folder / "frames", self.frames)

    def config(self, layers, cut, **tables):
        return {"source": {"uri": self.uri, "width": 24, "height": 16}, "model": {"preset": "layers", "layer": layers},
                "pipeline": {"stages": len(cut) + 1, "cut": cut}, "optimizer": {"lr": LR}, **tables}

    @program.each(*[(name, cut) for name in NETWORKS for cut in ([], CUTS[name])])
    def test_types_compute_what_pytorchs_do(self, name, cut):
        """The program's weights against the update rule's on PyTorch's own modules."""
        torch.manual_seed(2)
        layers, modules = zip(*NETWORKS[name])
        network = nn.Sequential(*modules)
        start = self.start_file(network)
        stages = reference.cut_network(network, cut, reference.sgd(0.0, LR))
        losses = reference.partime(stages, reference.autoencode(self.frames))
        for capture, near in NEAR.items():
            report, _ = self.learn(program.merged(self.config(list(layers), cut), {
                "pipeline": {"capture": capture}, "model": {"weights": start}}))
            self.assertEqual(report["updates"], [len(stage.versions) - 1 for stage in stages])
            self.assertTrue(math.isclose(report["loss"]["last"], losses[-1], rel_tol=near["rtol"]), capture)
            left = str([stage["left_to_libtorch"] for stage in report["steps"]])
            self.assertNotIn("norm", left)
            if name == "depthwise":
                self.assertNotIn("conv", left)
            self.assert_weights({key: value for key, value in network.state_dict().items()
                                 if not key.endswith("num_batches_tracked")}, **near)

    @program.each(*[(cut, capture) for cut in ([], [3], [2, 4], [1, 5, 7]) for capture in NEAR])
    def test_connections_that_skip_over_cuts(self, cut, capture):
        """Every schedule carries them alike: OracleTest in tests/engine."""
        layers = [conv(6), layer("relu"), conv(6), layer("add", **{"from": 1}), layer("relu"), conv(6),
                  layer("concat", **{"from": -1}), conv(3), layer("sigmoid")]
        network = Skipping()
        start = self.start_file(network)
        stage = reference.Stage(network, reference.sgd(0.0, LR))
        reference.sequential([stage], reference.autoencode(self.frames))
        self.learn(program.merged(self.config(layers, cut), {
            "pipeline": {"capture": capture, "schedule": "sequential"}, "model": {"weights": start}}))
        self.assert_weights(network.state_dict(), **NEAR[capture])

    @program.each(("basic-block", 8), ("bottleneck", 32))
    def test_residual_blocks(self, block, channels):
        layers = [conv(4), layer(block, out=8, stride=2), layer(block, out=8), conv(12, 1),
                  layer("pixel-shuffle", factor=2), layer("sigmoid")]
        found = []
        for cut in ([], [2]):  # sequential learns alike at any
            self.learn(program.merged(self.config(layers, cut), {"pipeline": {"schedule": "sequential"}}))
            found.append(self.weights())
        self.assertEqual(found[0]["3.weight"].shape, (12, channels, 1, 1))
        self.assertLessEqual({f"1.{part}.{kind}" for kind in ("weight", "bias") for part in (
            "conv1", "norm1", "conv2", "norm2", "downsample.0", "downsample.1")}, found[0].keys())  # as PyTorch's
        self.assert_weights(found[0])

    def test_resnet18(self):
        report, _ = self.learn({"source": {"uri": self.uri, "width": 64, "height": 64}, "model": {"preset": "resnet18"},
                                "pipeline": {"stages": 2}}, "--frames", 3, trained=3)
        self.assertEqual(report["updates"], [1, 3])

    def learn_at(self, side, layers, **model):
        report, _ = self.learn(program.merged(self.config(layers, [1]), {
            "source": {"width": side, "height": side}, "model": model}))
        return report

    def test_layers_after_a_linear_one(self):
        self.learn_at(8, [layer("flatten"), layer("linear", out=192), layer("pixel-shuffle", factor=8)])
        self.learn_at(1, [layer("flatten"), layer("linear", out=6), conv(3, 1)])

    def test_linear_of_one_pixel(self):
        # [1,3] against [1,3,1,1] would broadcast, and compare each channel with each.
        frames = program.random_frames(5, 1, 1, 1)
        self.uri = program.write_frames(self.folder / "pixel", frames)
        bias = torch.tensor([0.0, 0.5, 1.0])
        save_file({"1.weight": torch.zeros(3, 3), "1.bias": bias}, self.folder / "start.safetensors")
        loss = self.learn_at(1, [layer("flatten"), layer("linear", out=3)], weights=self.folder / "start.safetensors")["loss"]
        expected = ((reference.tensors(frames)[0].flatten() - bias) ** 2).mean().item()
        self.assertTrue(math.isclose(loss["first"], expected, rel_tol=1e-5), (loss, expected))

    def test_bad_layers(self):
        """A good layer, then the bad one, in the lines from 100 on. What each type refuses: tests/stages."""
        good = 90 * "\n" + '''[source]
width = 24
height = 16
[model]
preset = "layers"
[[model.layer]]
type = "conv"
out = 4
kernel = 3
[[model.layer]]
'''
        cases = []
        for bad, part in ((layer(3), "type"), (layer("cnov"), "known ones: add, attention, avgpool"),
                          (conv(3, 4), "odd"), (conv("3"), "out"), (conv(3, knerel=3), '"kernel"'),
                          (layer("maxpool", kernel=17), "17")):
            file = self.folder / f"{len(cases)}.toml"
            file.write_text(good + "".join(f"{key} = {program.toml_value(value)}\n" for key, value in bad.items()))
            cases.append((("check", file), f"{file}:10", part))
        self.assert_each_refused(cases)

    def test_an_output_that_is_no_target(self):
        for layers in ([conv(4)], [conv(3, stride=2)], [layer("maxpool"), layer("upsample", factor=3)]):
            self.assert_refuses("run", self.config(layers, []), "config.toml:", "24x16")

    @program.each((0, 0), (0, 16), (24, 0))
    def test_sizes_known_when_the_source_is_open(self, width, height):
        """0 is the source's own: check can't know it and must not mind."""
        config = self.config([layer("maxpool"), layer("upsample"), conv(3)], [1])
        self.learn(program.merged(config, {"source": {"width": width, "height": height}}), trained=8)

    def test_a_source_whose_size_does_not_fit(self):
        uri = program.write_frames(self.folder / "odd", program.random_frames(0, 2, 15, 23))
        config = self.config([layer("maxpool"), layer("upsample"), conv(3)], [1])
        config["source"] = {"uri": uri, "width": 0, "height": 0}
        self.assert_refuses("run", config, "config.toml:", "23x15")
