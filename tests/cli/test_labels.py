"""task.kind = "label": the class of a frame, a number each."""

import math
import unittest

import torch
from torch import nn

import program

LAYERS = [{"type": "conv", "out": 4, "kernel": 3}, {"type": "relu"}, {"type": "avgpool", "kernel": 4},
          {"type": "flatten"}, {"type": "linear", "out": 3}, {"type": "sigmoid"}]


class Labels(program.CliTest):

    def config(self, uri="synth:shapes?scenes=3&switch=2&frames=30", layers=LAYERS, cut=(2,), **tables):
        return {"source": {"uri": uri, "width": 24, "height": 16}, "task": {"kind": "label"},
                "model": {"preset": "layers", "layer": layers},
                "pipeline": {"stages": len(cut) + 1, "cut": list(cut)}, **tables}

    def test_targets_are_one_for_the_class(self):
        # A network that tells 0.5 whatever it sees: (1 - 0.5)^2 for every number.
        zeros = {"0.weight": torch.zeros(4, 3, 3, 3), "0.bias": torch.zeros(4),
                 "4.weight": torch.zeros(3, 4 * 4 * 6), "4.bias": torch.tensor([9.0, -9.0, -9.0])}
        from safetensors.torch import save_file
        save_file(zeros, self.folder / "start.safetensors")
        report, _ = self.learn({**self.config(), "model": {"preset": "layers", "layer": LAYERS,
                                                           "weights": self.folder / "start.safetensors"},
                                "optimizer": {"lr": 0.0}})
        # It says class 0 of every frame: right for two frames of six.
        self.assertTrue(math.isclose(report["accuracy"]["mean"], 1 / 3))
        told = torch.sigmoid(zeros["4.bias"])
        losses = [nn.functional.mse_loss(told, torch.eye(3)[n // 2 % 3]).item() for n in range(30)]
        self.assertTrue(math.isclose(report["loss"]["mean"], sum(losses) / 30, rel_tol=1e-5))

    def test_local_read_outs_tell_classes_too(self):
        report, _ = self.learn(self.config(correction={"kind": "local"}, optimizer={"kind": "adam", "lr": 0.001}))
        self.assertEqual(report["gradient_age"], [0, 0])
        self.assert_balanced(report)

    def test_what_does_not_fit_is_refused(self):
        frames = program.write_frames(self.folder / "frames", program.random_frames(1, 2))
        picture = [{"type": "conv", "out": 3, "kernel": 3}]
        for tables, part in ((self.config(uri=frames), "tells classes"),
                             (self.config(layers=picture, cut=()), "vector"),
                             (self.config(uri="synth:shapes?scenes=4&frames=9"), "4 classes"),
                             (self.config(output={"video": "x.mkv"}), "output.video")):
            file = program.write_toml(self.folder / "bad.toml", tables)
            self.assert_refused(program.BAD_USAGE, program.call("run", file), "bad.toml", part)


if __name__ == "__main__":
    unittest.main()
