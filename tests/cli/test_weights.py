"""Weights files: the cut never shows, names are PyTorch's, and a bad one is refused in time. That PyTorch reads and writes
the same bits is test_reference.py's."""

import json

import torch
from safetensors.torch import load_file, save_file

import program
import reference

SMALL = {"layers": 4, "features": 4, "kernel": 3}


def network():
    torch.manual_seed(7)
    return reference.partime_cnn(4, 4, 3, 3)


class Exchange(reference.ReferenceTest):
    def setUp(self):
        super().setUp()
        self.uri = program.write_frames(self.folder / "frames", program.random_frames(1, 12))

    def config(self, cut, weights="", lr=0.1):
        return {"source": {"uri": self.uri, "width": 24, "height": 16}, "model": {**SMALL, "weights": weights},
                "pipeline": {"stages": len(cut) + 1, "cut": cut}, "optimizer": {"lr": lr}}

    def test_weights_of_4_stages_load_into_1(self):
        self.learn(self.config([2, 4, 6]))
        one, four = self.folder / "out.safetensors", self.folder / "four.safetensors"
        one.rename(four)
        self.learn(self.config([], weights=four, lr=0.0))  # rate 0: what was loaded comes out again
        self.assertEqual(program.tensors_of(one), program.tensors_of(four))


class HeldOut(Exchange):
    """What was learned, on a stream that nothing is learned from."""

    def test_without_learning_the_same_is_predicted_and_no_weight_changes(self):
        self.learn(self.config([4]))
        learned = self.folder / "out.safetensors"
        weights, kept = load_file(learned), learned.rename(self.folder / "learned.safetensors")
        still, _ = self.learn(program.merged(self.config([4], kept), {"model": {"learn": False}}))
        same = load_file(learned)
        self.assertTrue(all(torch.equal(same[name], weights[name]) for name in weights))
        self.assertEqual((still["frames"]["trained"], still["updates"]), (12, [0, 0]))
        again, _ = self.learn(self.config([4], kept, lr=0.0))
        self.assertEqual(still["loss"], again["loss"])

    def test_a_figure_beside_the_strongest_trivial_predictor(self):
        report, _ = self.learn(self.config([4]))
        learned = self.folder / "out.safetensors"
        outcome = self.succeed("evaluate", learned, self.uri, "--report", self.folder / "held-out.json")
        self.assertRegex(outcome.out, r"^frames    12, without training\nloss +[\d.e-]+, mean frame [\d.e-]+\n"
                                      r"PSNR +[\d.]+ dB, mean frame [\d.]+ dB\nverdict   (not )?better: ")
        held_out = json.loads((self.folder / "held-out.json").read_text())
        self.assertEqual((held_out["stages"], held_out["updates"]), (1, [0]))
        self.assertEqual(held_out["loss"]["mean_frame"], report["loss"]["mean_frame"])

    def test_exit_codes(self):
        self.learn(self.config([4]))
        learned, none = self.folder / "out.safetensors", self.folder / "none"
        self.assert_each_refused(((("evaluate", none, self.uri),), (("evaluate", learned),),
                                  (("evaluate", learned, self.uri, "--set", "task.kind=guess"),)))
        self.assert_refused(program.NO_SOURCE, program.call("evaluate", learned, none / "clip.mp4"))


class Refusals(program.CliTest):
    """Exit 2 naming the key's place, before the source is opened: that one would give exit 3."""

    def setUp(self):
        super().setUp()
        self.weights = self.folder / "weights.safetensors"
        self.good = dict(network().state_dict())
        save_file(self.good, self.weights)

    def outcome(self):
        config = self.folder / "config.toml"
        config.write_text('[source]\nuri = "file:///is/not/there"\n[model]\npreset = "partime-cnn"\nlayers = 4\nfeatures = 4\nkernel = 3\n'
                          f'  weights = "{self.weights}"\n')
        return program.call("run", "--quiet", config)

    def refused(self, *parts):
        self.assert_refused(program.BAD_USAGE, self.outcome(), f"{self.folder}/config.toml:8:3: ", *parts)

    def test_good_weights_get_as_far_as_the_source(self):
        # Otherwise the refusals below would say nothing about the order.
        self.assert_refused(program.NO_SOURCE, self.outcome(), "/is/not/there")

    def test_names_shapes_and_types_that_do_not_fit(self):
        for change, *parts in (({"2.weight": torch.zeros(4, 4, 5, 5)}, '"2.weight"', "[4,4,5,5]", "[4,4,3,3]"),
                               ({"6.bias": torch.zeros(1, 3)}, '"6.bias"'), ({"9.bias": torch.zeros(3)}, '"9.bias"'),
                               ({"2.bias": torch.zeros(4, dtype=torch.float16)}, '"2.bias"', "F16"),
                               ({"2.bias": torch.zeros(4, dtype=torch.int64)}, '"2.bias"', "I64")):
            save_file({**self.good, **change}, self.weights)
            self.refused(*parts)
        del self.good["4.bias"]
        save_file(self.good, self.weights)
        self.refused('"4.bias"')
        self.weights.write_bytes(b"this is the text of no such file at all")
        self.refused(self.weights)
