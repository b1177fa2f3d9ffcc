"""Steps on cores are step programs unless the config says eager: as exact, told of, and close to PyTorch."""

import fnmatch
import os
import unittest

import torch

import program
import reference

LAYERS = [{"type": "conv", "out": 8, "kernel": 3}, {"type": "groupnorm", "groups": 2}, {"type": "relu"},
          {"type": "conv", "out": 3, "kernel": 3}, {"type": "sigmoid"}]


class StepPrograms(reference.ReferenceTest):
    def setUp(self):
        super().setUp()
        self.uri = program.write_frames(self.folder / "frames", program.random_frames(seed=9, count=40))

    def config(self, model=None, **pipeline):
        return {"source": {"uri": self.uri, "width": 24, "height": 16},
                "model": model or {"layers": 4, "features": 16, "kernel": 5},
                "pipeline": {"stages": 2, "cut": [3], **pipeline}, "optimizer": {"kind": "adam", "lr": 0.001}}

    def train(self, **options):
        report, _ = self.learn(self.config(**options))
        return report, self.weights()

    @unittest.skipIf(len(os.sched_getaffinity(0)) < 2, "a stage's threads want cores of their own")
    def test_threads_that_share_a_stage_leave_the_same_bits(self):
        _, weights = self.train()
        for threads in (2, [1, 2]):
            report, _ = self.train(threads=threads)
            self.assertEqual(report["capture"], "graph")
            self.assert_weights(weights)
        shown = program.call("check", self.write(program.bare(self.config(threads=[1, 2]))))
        self.assertRegex(shown.out, r"stage 1 on cpu:1 with 2 threads, gradients 0 ")
        report, _ = self.train(cut=[], threads=[1, 2])  # balanced for the threads that stages have
        self.assertEqual((report["threads"], len(report["cut"])), ([1, 2], 1))

    def test_threads_and_cut_that_are_left_to_the_start_of_a_run(self):
        cores = len(os.sched_getaffinity(0))
        for stages, cut in ((1, []), (2, [])):
            with self.subTest(stages=stages, cut=cut):
                report, weights = self.train(stages=stages, cut=cut, threads="auto")
                self.assertEqual((report["stages"], len(report["threads"])), (stages, stages))
                self.assertLessEqual(sum(report["threads"]), max(cores, stages))
                self.assertEqual(len(report["cut"]), stages - 1)
                named, _ = self.train(stages=stages, cut=report["cut"], threads=report["threads"])
                self.assertEqual(named["devices"], report["devices"])
                self.assert_weights(weights)
        shown = self.succeed("check", self.write(program.bare(self.config(threads="auto"))))
        self.assertIn("threads = 'auto'", shown.out)
        self.assertIn("threads of each stage, and its core, chosen by module times measured at the start", shown.out)

    def test_a_norm_before_which_nothing_is_learned(self):
        norm = {"type": "instancenorm"}
        for layers, cut in (([norm, *LAYERS], [3]), (LAYERS, [1])):
            with self.subTest(cut=cut):
                report, _ = self.train(model={"preset": "layers", "layer": layers}, cut=cut, schedule="zb-h1")
                self.assertEqual(report["loss"]["not_finite"], 0)
        for capture in ("graph", "eager"):  # one channel has the strides of any layout
            report, _ = self.train(model={"layers": 3, "features": 1, "kernel": 3, "norm": "instance", "freeze": ["0.*"]}, capture=capture)
            self.assertEqual(report["loss"]["not_finite"], 0)

    @program.each(["0.*"], ["*.weight"], ["*.bias"])
    def test_frozen_parameters_stay_and_all_others_learn(self, freeze):
        model = {"layers": 4, "features": 8, "kernel": 5, "freeze": freeze}
        auto, weights = self.train(model=model)
        self.assertEqual([auto["capture"], *(stage["capture"] for stage in auto["steps"])], ["graph"] * 3)
        eager, _ = self.train(model=model, capture="eager")
        self.assertEqual(eager["steps"], [{"capture": "eager", "left_to_libtorch": []}] * 2)
        self.assert_weights(weights, rtol=1e-4, atol=1e-5)
        _, start = self.train(model={**model, "freeze": ["*"]})
        for name, value in weights.items():
            self.assertEqual(torch.equal(value, start[name]), any(fnmatch.fnmatch(name, one) for one in freeze), name)

    def test_what_has_no_kernel_is_told_before_and_after(self):
        config = self.config(model={"preset": "layers", "layer": LAYERS}) | {"task": {"loss": "ssim"}}
        report, _ = self.learn(config)
        left = [" ".join(stage["left_to_libtorch"]) for stage in report["steps"]]
        self.assertEqual(left[0], "")
        self.assertIn("aten::exp", left[1])
        shown = program.call("check", self.write(program.bare(config)))
        self.assertIn("stage 0 leaves to LibTorch's operators: none\n", shown.out)
        self.assertIn("stage 1 leaves to LibTorch's operators: " + left[1] + "\n", shown.out)
        # Where the source alone knows how large its pictures are, it is opened.
        config["source"].update(width=0, height=0)
        shown = program.call("inspect", self.write(program.bare(config)))
        self.assertIn("sample     3x16x24\n", shown.out)
        self.assertRegex(shown.out, r"stage 0 (?!.*LibTorch).*\nstage 1 .* LibTorch x\d+\b.*\n(LibTorch   aten::\w+( x\d+)?\n)+")
