"""What a run has learned survives it: in weights files, and in checkpoints, from which a later run continues as if it had
never stopped. That PyTorch reads and writes the same bits, whatever the cut, is test_reference.py's."""

import shutil
import tomllib

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

import program
import reference
from keeping import MODEL, NEWEST, PREVIOUS

SMALL = {"layers": 4, "features": 4, "kernel": 3}


def network():
    torch.manual_seed(7)
    return reference.partime_cnn(4, 4, 3, 3)


class Weights(reference.ReferenceTest):
    def setUp(self):
        super().setUp()
        self.uri = program.write_frames(self.folder / "frames", program.random_frames(1, 12))

    def config(self, cut, weights="", lr=0.1):
        return {"source": {"uri": self.uri, "width": 24, "height": 16}, "model": {**SMALL, "weights": weights},
                "pipeline": {"stages": len(cut) + 1, "cut": cut}, "optimizer": {"lr": lr}}

    def test_without_learning_the_same_is_predicted_and_no_weight_changes(self):
        self.learn(self.config([4]))
        learned = self.folder / "out.safetensors"
        weights, kept = load_file(learned), learned.rename(self.folder / "learned.safetensors")
        still, _ = self.learn(program.merged(self.config([4], kept), {"model": {"learn": False}}), trained=12)
        self.assert_weights(weights)
        self.assertEqual(still["updates"], [0, 0])
        again, _ = self.learn(self.config([4], kept, lr=0.0))
        self.assertEqual(still["loss"], again["loss"])

    def test_a_figure_beside_the_strongest_trivial_predictor_and_exit_codes(self):
        report, _ = self.learn(self.config([4]))
        learned, none = self.folder / "out.safetensors", self.folder / "none"
        held_out, outcome = self.reported("evaluate", learned, self.uri)
        self.assertRegex(outcome.out, r"^frames    12, without training\nloss +[\d.e-]+, mean frame [\d.e-]+\n"
                                      r"PSNR +[\d.]+ dB, mean frame [\d.]+ dB\nverdict   (not )?better: ")
        self.assertEqual((held_out["stages"], held_out["updates"]), (1, [0]))
        self.assertEqual(held_out["loss"]["mean_frame"], report["loss"]["mean_frame"])
        self.assert_each_refused(((("evaluate", none, self.uri),), (("evaluate", learned),),
                                  (("evaluate", learned, self.uri, "--set", "task.kind=guess"),)))
        self.assert_refused(program.NO_SOURCE, program.call("evaluate", learned, none / "clip.mp4"))


class BadWeights(program.CliTest):
    """Exit 2 naming the key's place, before the source is opened: that one would give exit 3."""

    def setUp(self):
        super().setUp()
        self.weights = self.folder / "weights.safetensors"
        self.good = dict(network().state_dict())
        save_file(self.good, self.weights)

    def outcome(self):
        model = {"preset": "partime-cnn", **SMALL, "weights": self.weights}
        return program.call("run", "--quiet", self.write({"source": {"uri": "file:///is/not/there"}, "model": model}))

    def refused(self, *parts):
        self.assert_refused(program.BAD_USAGE, self.outcome(), f"{self.folder}/config.toml:8:1: ", *parts)

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


class Checkpoints(reference.ReferenceTest):
    def setUp(self):
        super().setUp()
        self.state = self.folder / "state"

    def config(self, uri, resume=False, **tables):
        return program.small(uri, **program.merged({
            "source": {"pace": "asap"}, "model": MODEL, "pipeline": {"schedule": "sequential"},
            "optimizer": {"kind": "adam", "lr": 0.01}, "checkpoint": {"dir": self.state, "resume": resume}}, tables))

    def frames(self, begin, end):
        frames = program.random_frames(seed=5, count=40)[begin:end]
        return program.write_frames(self.folder / f"{begin}-{end}", frames)

    def final(self):
        return program.tensors_of(self.folder / "out.safetensors")

    def test_going_on_equals_never_having_stopped(self):
        optimizer = {"orthogonal": 0.9}
        self.learn(self.config(self.frames(0, 40), checkpoint={"dir": ""}, optimizer=optimizer))
        expected = self.final()
        log = self.folder / "log.jsonl"
        output = {"log": log, "log_every": 10}
        self.learn(self.config(self.frames(0, 25), output=output, optimizer=optimizer))
        report, _ = self.learn(self.config(self.frames(25, 40), resume=True, output=output, optimizer=optimizer), trained=15)
        self.assertEqual(self.final(), expected)
        self.assertEqual(report["run"]["resumed"], {"from": str(self.state / NEWEST), "frames": 25})
        lines = program.lines_of(log)
        self.assertEqual([line["frame"] for line in lines], [0, 10, 20, 25, 25, 35])
        self.assertEqual([line["frame"] for line in lines if "resumed" in line], [25])
        told = program.call("run", self.folder / "config.toml", "--set", "source.pace=live").err
        self.assertIn(f"checkpoint: resuming from {self.state / NEWEST}, after 40 frames\n", told)
        self.assertRegex(told, r"\nframe (4\d|5[0-5])  ")

    def test_weights_name_the_run_that_made_them(self):
        report, _ = self.learn(self.config(self.frames(0, 5), model={"seed": 7}))
        for file in (self.folder / "out.safetensors", self.state / NEWEST):
            with safe_open(file, framework="pt") as weights:
                about = weights.metadata()
            for key in ("uri", "host", "config"):
                self.assertEqual(about[key], report["run"][key], key)
            self.assertEqual((about["seed"], about["frames"], about["format"]), ("7", "5", "pt"))
            for key in ("duration_s", "fps"):
                self.assertGreater(float(about[key]), 0, key)
            self.assertEqual(tomllib.loads(about["config"])["model"]["seed"], 7)

    def test_what_does_not_fit_is_reported(self):
        self.learn(self.config(self.frames(0, 5)))
        self.assert_refuses("run", self.config("images:/nonexistent", resume=True, model={"features": 5}),
                            "checkpoint.resume", "0.weight")
        for optimizer, line in (({"kind": "adam"}, None), ({"kind": "adamw"}, None),
                                ({"kind": "sgd", "momentum": 0.9},
                                 "optimizer: saved state (mean, square, steps) does not fit this run and is ignored; "
                                 "momentum starts anew"),
                                ({"kind": "rmsprop"}, "optimizer: saved state (mean, steps) does not fit this run and "
                                                      "is ignored")):
            with self.subTest(optimizer=optimizer):
                copy = shutil.copytree(self.state, self.folder / optimizer["kind"])
                config = self.config(self.frames(5, 6), resume=True, checkpoint={"dir": copy})
                _, outcome = self.learn(config | {"optimizer": optimizer})
                told = [told for told in outcome.err.splitlines() if told.startswith("optimizer: ")]
                self.assertEqual(told, [line] if line else [])

    def test_a_run_that_learns_nothing_leaves_checkpoints_as_they_are(self):
        self.learn(self.config(self.frames(0, 10)))
        before = (self.state / NEWEST).read_bytes()
        _, outcome = self.learn(self.config(self.frames(10, 20), resume=True, model={**MODEL, "learn": False}))
        self.assertNotIn("does not fit", outcome.err)
        self.assertEqual((self.state / NEWEST).read_bytes(), before)

    def test_two_runs_never_write_one_folder(self):
        live = {"source": {"pace": "live"}, "checkpoint": {"every": 5}}
        file = self.write(program.bare(self.config("synth:shapes", **live)))
        first = self.start_run(file)
        second = program.call("run", file, "--quiet")
        self.assert_refused(program.FAILED, second, f"{self.state}: another run writes it")
        first.kill()
        first.wait()
        self.assert_code(program.DONE, program.call("run", file, "--quiet", "--frames", "5"))

    def test_a_damaged_checkpoint_costs_an_interval_and_not_the_run(self):
        newest = self.state / NEWEST
        self.learn(self.config(self.frames(0, 25)))
        before = load_file(self.folder / "out.safetensors")
        self.learn(self.config(self.frames(25, 30), resume=True))
        data = bytearray(newest.read_bytes())
        data[-1] ^= 1
        newest.write_bytes(data)
        none = {"optimizer": {"kind": "sgd", "lr": 0.0}}  # weights stay as they were loaded
        _, outcome = self.learn(self.config(self.frames(30, 31), resume=True) | none)
        line, = [line for line in outcome.err.splitlines() if line.startswith("checkpoint: ")]
        self.assertIn(str(newest), line)
        self.assertIn(f"resuming from {PREVIOUS}", line)
        self.assert_weights(before)

    def test_where_no_checkpoint_is_intact_a_run_starts_anew_and_says_so_once(self):
        self.state.mkdir()
        for names in ((NEWEST,), (NEWEST, PREVIOUS)):
            for name in names:
                (self.state / name).write_bytes(b"no")
            refusing = self.config("images:/nonexistent", resume=True, checkpoint={"damaged": "refuse"})
            self.assert_refuses("run", refusing, "checkpoint.resume", self.state / NEWEST)
            _, outcome = self.learn(self.config(self.frames(0, 5), resume=True))
            line, = outcome.err.splitlines()
            self.assertIn(f"checkpoint: {self.state / NEWEST}: ", line)
            self.assertIn("learning starts from new weights", line)
            self.assertEqual((self.state / "checkpoint.damaged").read_bytes(), b"no")
            _, outcome = self.learn(self.config(self.frames(5, 6), resume=True))
            self.assertNotIn("damaged", outcome.err)
