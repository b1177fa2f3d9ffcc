"""task.kind = "label": the class of a frame, a number each."""

import math

import torch
from safetensors.torch import save_file
from torch import nn

import program
import reference

LAYERS = [{"type": "conv", "out": 4, "kernel": 3}, {"type": "relu"}, {"type": "avgpool", "kernel": 4},
          {"type": "flatten"}, {"type": "linear", "out": 3}, {"type": "sigmoid"}]


class Labels(reference.ReferenceTest):

    def config(self, uri="synth:shapes?scenes=3&switch=2&frames=30", layers=LAYERS, cut=(2,), **tables):
        return {"source": {"uri": uri, "width": 24, "height": 16}, "task": {"kind": "label"},
                "model": {"preset": "layers", "layer": layers},
                "pipeline": {"stages": len(cut) + 1, "cut": list(cut)}, **tables}

    def test_targets_are_one_for_the_class(self):
        # A network that tells 0.5 whatever it sees: (1 - 0.5)^2 for every number.
        zeros = {"0.weight": torch.zeros(4, 3, 3, 3), "0.bias": torch.zeros(4),
                 "4.weight": torch.zeros(3, 4 * 4 * 6), "4.bias": torch.tensor([9.0, -9.0, -9.0])}
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

    def test_classes_of_a_file_are_learned_and_frames_without_one_only_predicted(self):
        # Frames 0 to 39 are dark or bright in turns of two; nobody tells the class of every fifth.
        pictures = program.random_frames(1, 40) // 2
        pictures[2::4] += 100
        pictures[3::4] += 100
        x = reference.tensors(pictures)
        names = ["night" if n // 2 % 2 == 0 else "day" for n in range(40)]  # day is 0: they are sorted
        told = [n for n in range(40) if n % 5 != 4]
        rows = [f"{n},{names[n]}" for n in told]
        (self.folder / "classes.csv").write_text("\n".join(["frame,class", *rows]) + "\n")
        layers = [{"type": "flatten"}, {"type": "linear", "out": 2}]
        tables = {**self.config(uri=program.write_frames(self.folder / "frames", pictures), layers=layers, cut=()),
                  "task": {"kind": "label", "loss": "cross-entropy", "labels": self.folder / "classes.csv"},
                  "optimizer": {"kind": "sgd", "lr": 0.01}, "correction": {"kind": "none"},
                  "guard": {"kind": "none"}}
        tables["pipeline"]["capture"] = "eager"
        torch.manual_seed(0)
        network = nn.Sequential(nn.Flatten(), nn.Linear(3 * 16 * 24, 2))
        truths = [["day", "night"].index(names[n]) for n in told]
        samples = [(x[n], torch.tensor([truth])) for n, truth in zip(told, truths)]
        report, outputs = self.learn_as(network, samples, nn.functional.cross_entropy, tables, lr=0.01)
        self.assertEqual(report["frames"], {"received": 40, "trained": 32, "dropped": 0, "rejected": 8,
                                            "in_flight": 0})
        self.assertEqual(report["task"], {"kind": "label", "loss": "cross-entropy", "without_target": 8})
        hits = [float(y.argmax() == truth) for y, truth in zip(outputs, truths)]
        majority, counts = [], [0, 0]
        for truth in truths:
            majority.append(float(counts.index(max(counts)) == truth))
            counts[truth] += 1
        self.assertAlmostEqual(report["accuracy"]["mean"], sum(hits) / 32)
        self.assertAlmostEqual(report["accuracy"]["majority"]["mean"], sum(majority) / 32)

    def test_what_a_label_file_says_wrong_is_told_with_its_line(self):
        frames = program.write_frames(self.folder / "frames", program.random_frames(1, 2))
        linear = [{"type": "flatten"}, {"type": "linear", "out": 2}]
        for text, part in (("frame,class\n0,a\n0,b\n", "classes.csv:3"), ("when,what\n", "classes.csv:1"),
                           ("frame,class\n0,a\n1,b\n2,c\n", "3 classes"), (None, "classes.csv")):
            if text:
                (self.folder / "classes.csv").write_text(text)
            else:
                (self.folder / "classes.csv").unlink()
            tables = self.config(uri=frames, layers=linear, cut=())
            tables["task"]["labels"] = self.folder / "classes.csv"
            self.assert_each_refused(((command, self.write(tables)), "config.toml", part) for command in ("run", "check"))

    def test_what_does_not_fit_is_refused(self):
        frames = program.write_frames(self.folder / "frames", program.random_frames(1, 2))
        picture = [{"type": "conv", "out": 3, "kernel": 3}]
        for tables, part in ((self.config(uri=frames), "needs classes"),
                             (self.config(layers=picture, cut=()), "vector"),
                             (self.config(uri="synth:shapes?scenes=4&frames=9"), "4 classes"),
                             (self.config(output={"video": "x.mkv"}), "output.video"),
                             (self.config(output={"prediction": "x.png"}), "output.prediction"),
                             ({"task": {"loss": "cross-entropy"}}, "task.kind"),
                             ({"task": {"labels": "x.csv"}}, "task.labels"),
                             ({"task": {"kind": "autoencode", "horizon": 2}}, "task.horizon")):
            self.assert_refused(program.BAD_USAGE, program.call("run", self.write(tables)), "config.toml", part)
