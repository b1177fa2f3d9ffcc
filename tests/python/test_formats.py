"""What others read: ONNX gives what the network gave here (`millrace export --onnx`), event files what the log says (`tensorboard`)."""

import importlib.util
import json
import unittest

import numpy
import torch
from safetensors.torch import save_file

import millrace
import networks
import program
from test_layers import NETWORKS, conv, layer

SHAPE = (3, 16, 24)
# Where many norms amplify float32's rounding, ours lie as far from float64 as this.
ROUNDED = {"frozen": 5e-6, "resnet18": 5e-6, "resnet50": 5e-6}


def models():
    """Every preset and every layer, by name: [model] and the sample's shape."""
    for name, pairs in NETWORKS.items():
        yield name, {"preset": "layers", "layer": [ours for ours, _ in pairs]}, SHAPE
    blocks = [conv(8), layer("basic-block", out=8, stride=2), layer("bottleneck", out=8), layer("upsample"), conv(3)]
    yield "blocks", {"preset": "layers", "layer": blocks}, SHAPE
    scores = [conv(4, stride=2), layer("relu"), layer("flatten"), layer("linear", out=5)]
    skips = [conv(4), layer("relu"), conv(4), layer("add", **{"from": 1}), layer("maxpool"), {"type": "upsample", "kind": "bilinear"},
             layer("concat", **{"from": 2}), conv(3)]
    yield "skips", {"preset": "layers", "layer": skips}, SHAPE
    yield "scores", {"preset": "layers", "layer": scores}, SHAPE
    yield "partime-cnn", {"preset": "partime-cnn"}, SHAPE
    yield "resnet18", {"preset": "resnet18"}, (3, 64, 64)
    yield "resnet50", {"preset": "resnet50"}, (3, 64, 64)


@unittest.skipUnless(importlib.util.find_spec("onnx") and importlib.util.find_spec("onnxruntime"), "needs the packages onnx and onnxruntime")
class Onnx(program.CliTest):
    def export(self, weights, *options):
        file = self.folder / "net.onnx"
        self.assertIn("net.onnx: ", self.succeed("export", weights, "--onnx", file, *options).out)
        return file

    def outputs(self, one, shape):
        """What the network makes of some frames: [(frame, output)]."""
        frames = [torch.rand(shape, generator=torch.Generator().manual_seed(seed)) for seed in range(3)]
        return [(frame[None].numpy(), one._one(frame, None).numpy()) for frame in frames]

    def assert_same(self, file, outputs, within=1e-6):
        import onnxruntime
        session = onnxruntime.InferenceSession(str(file))
        for frame, ours in outputs:
            theirs, = session.run(["prediction"], {"frame": frame})
            apart = numpy.abs(theirs.reshape(ours.shape) - ours).max()
            self.assertLessEqual(apart, within * max(1, numpy.abs(ours).max()))

    @program.each(*list(models())[::None if program.LONG else 3])  # each imports PyTorch
    def test_every_preset_and_layer(self, name, model, shape):
        one = millrace.Trainer({"model": model}, task="autoencode", schedule="sequential", stages=1)
        outputs, weights = self.outputs(one, shape), self.folder / "weights.safetensors"
        save_file(one.state_dict(), weights)
        config = self.write({"source": {"width": shape[2], "height": shape[1]}, "model": model,
                             "task": {"kind": "autoencode"}})
        self.assert_same(self.export(weights, "--config", config), outputs, ROUNDED.get(name, 1e-6))

    def test_weights_of_a_run_say_what_network_they_are_of(self):
        config = program.small(model={"layers": 3, "features": 8}, output={"weights": self.folder / "out.safetensors"})
        self.learn(config, "--frames", "20")
        one = millrace.Trainer({"model": {"preset": "partime-cnn", "layers": 3, "features": 8, "kernel": 3}}, stages=1, task="autoencode",
                               weights=str(self.folder / "out.safetensors"))
        self.assert_same(self.export(self.folder / "out.safetensors"), self.outputs(one, SHAPE))

    def own(self, net):
        """The words that export a module of one's own."""
        millrace.export(net, torch.rand(1, *SHAPE)).save(self.folder / "net.pt")
        save_file(net.state_dict(), self.folder / "net.safetensors")
        return self.folder / "net.safetensors", "--config", self.write({
            "source": {"width": 24, "height": 16}, "model": {"preset": "file", "file": self.folder / "net.pt"},
            "task": {"kind": "autoencode"}})

    def test_a_module_of_ones_own(self):
        net = networks.small()
        self.assert_same(self.export(*self.own(net)), self.outputs(millrace.Trainer(net, stages=1), SHAPE))

    def test_an_operator_that_onnx_lacks_is_one_line(self):
        class Odd(torch.nn.Conv2d):
            def forward(self, x):
                return torch.special.bessel_j0(super().forward(x))
        outcome = program.call("export", *self.own(torch.nn.Sequential(Odd(3, 3, 1))), "--onnx", self.folder / "net.onnx")
        self.assert_code(program.FAILED, outcome)
        self.assert_one_error(outcome, "--onnx: ONNX has no such operator:")
        self.assertFalse((self.folder / "net.onnx").exists())

    def test_bad_input_is_one_line(self):
        save_file({"0.weight": torch.zeros(3)}, self.folder / "bare.safetensors")
        save_file({"0.weight": torch.tensor([torch.nan])}, self.folder / "nan.safetensors")
        save_file({"9.strange": torch.zeros(3)}, self.folder / "more.safetensors")
        onnx = self.folder / "net.onnx"
        config = self.write({"model": {"preset": "partime-cnn"}})
        self.assert_each_refused((("export", self.folder / file, "--onnx", onnx, *more), part) for file, part, *more in (
            ("none.safetensors", "none"), ("bare.safetensors", "does not say what network it is of"),
            ("nan.safetensors", "not finite", "--config", config),
            ("more.safetensors", "9.strange", "--config", config),
            ("bare.safetensors", "0.weight", "--config", config)))


@unittest.skipUnless(importlib.util.find_spec("tensorboard"), "needs the package tensorboard")
class Tensorboard(program.CliTest):
    def assert_holds(self, log, lines):
        """Returns what the command says."""
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
        said = self.succeed("tensorboard", log, self.folder / "board").out
        self.assertEqual(len(list((self.folder / "board").iterdir())), 1)
        found = EventAccumulator(str(self.folder / "board"), size_guidance={"scalars": 0})
        found.Reload()
        for tag, of in (("loss", lambda line: line["loss"]), ("stage_ms/1", lambda line: line["stage_ms"][1])):
            events = [(event.step, event.wall_time) for event in found.Scalars(tag)]
            self.assertEqual(events, [(line["frame"], line["time"]) for line in lines])
            for event, line in zip(found.Scalars(tag), lines):
                self.assertAlmostEqual(event.value, of(line), delta=1e-6 * abs(of(line)))
        return said

    def test_it_holds_the_log_and_again_when_that_has_grown(self):
        log = self.folder / "run.jsonl"
        uri = program.write_frames(self.folder / "frames", program.random_frames(1, 300, 8, 8))
        self.learn({"source": {"uri": uri, "width": 8, "height": 8}, "model": {"layers": 3, "features": 2, "kernel": 3},
                    "pipeline": {"stages": 2, "cut": [2]}, "output": {"log": log, "log_every": 10}})
        lines = program.lines_of(log)
        self.assertEqual(len(lines), 30)
        self.assert_holds(log, lines)
        more = {"frame": 310, "time": 2e9, "loss": 0.5, "stage_ms": [1, 2], "fps": None}
        with log.open("a") as file:
            file.write('{"frame":300,"lo\n' + json.dumps(more) + "\n")
        self.assertIn("31 frames, 1 lines skipped", self.assert_holds(log, [*lines, more]))

    def test_bad_usage(self):
        for log in ("/nowhere.jsonl", program.VIDEO):
            self.assert_refused(program.BAD_USAGE, program.call("tensorboard", log, self.folder), str(log))
        log = self.folder / "one.jsonl"
        log.write_text('{"frame":0,"time":1.5,"loss":0.5}\n')
        self.assert_refused(program.FAILED, program.call("tensorboard", log, "/proc/nowhere"), "/proc/nowhere")
