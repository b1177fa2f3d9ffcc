"""What a run has learned survives it: a later run continues from its checkpoint as if it had never stopped."""

import shutil
import tomllib

from safetensors import safe_open
from safetensors.torch import load_file

import program
from keeping import MODEL, NEWEST, PREVIOUS


class Checkpoints(program.CliTest):
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
        report, _ = self.learn(self.config(self.frames(25, 40), resume=True, output=output, optimizer=optimizer))
        self.assertEqual(self.final(), expected)
        self.assertEqual(report["frames"]["trained"], 15)
        self.assertEqual(report["run"]["resumed"], {"from": str(self.state / NEWEST), "frames": 25})
        lines = program.lines_of(log)
        self.assertEqual([line["frame"] for line in lines], [0, 10, 20, 25, 25, 35])
        self.assertEqual([line["frame"] for line in lines if "resumed" in line], [25])
        told = program.call("run", self.folder / "config.toml", "--set", "source.pace=live").err
        self.assertIn(f"checkpoint: resuming from {self.state / NEWEST}, after 40 frames\n", told)
        self.assertRegex(told, r"\nframe (4\d|5[0-5])  ")

    def test_a_read_out_that_diverges_unseen_costs_no_checkpoint(self):
        # The stage before it is dead, so its own gradient stays finite.
        self.succeed("run", self.write({
            "source": {"uri": "synth:shapes", "width": 32, "height": 24}, "model": {"features": 4, "seed": 1},
            "correction": {"kind": "local"}, "optimizer": {"kind": "sgd", "lr": 10.0},
            "checkpoint": {"dir": self.state, "every": 50}}), "--frames", 300)
        self.assertTrue(all(value.isfinite().all() for value in load_file(self.state / NEWEST).values()))

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

    def test_optimizer_state_that_does_not_fit_is_reported(self):
        self.learn(self.config(self.frames(0, 5)))
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
        self.learn(self.config(self.frames(10, 20), resume=True, model={**MODEL, "learn": False}))
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
        before = load_file(newest)
        self.learn(self.config(self.frames(25, 30), resume=True))
        data = bytearray(newest.read_bytes())
        data[-1] ^= 1
        newest.write_bytes(data)
        none = {"optimizer": {"kind": "sgd", "lr": 0.0}}  # weights stay as they were loaded
        _, outcome = self.learn(self.config(self.frames(30, 31), resume=True) | none)
        line, = [line for line in outcome.err.splitlines() if line.startswith("checkpoint: ")]
        self.assertIn(str(newest), line)
        self.assertIn(f"resuming from {PREVIOUS}", line)
        for name, value in load_file(self.folder / "out.safetensors").items():
            self.assertTrue(value.equal(before[name]), name)

    def test_where_no_checkpoint_is_intact_a_run_starts_anew_and_says_so_once(self):
        self.state.mkdir()
        for names in ((NEWEST,), (NEWEST, PREVIOUS)):
            for name in names:
                (self.state / name).write_bytes(b"no")
            refusing = self.config("images:/nonexistent", resume=True, checkpoint={"damaged": "refuse"})
            self.assert_run_refuses(refusing, "checkpoint.resume", self.state / NEWEST)
            _, outcome = self.learn(self.config(self.frames(0, 5), resume=True))
            line, = outcome.err.splitlines()
            self.assertIn(f"checkpoint: {self.state / NEWEST}: ", line)
            self.assertIn("learning starts from new weights", line)
            self.assertEqual((self.state / "checkpoint.damaged").read_bytes(), b"no")
            _, outcome = self.learn(self.config(self.frames(5, 6), resume=True))
            self.assertNotIn("damaged", outcome.err)

    def test_a_checkpoint_of_another_network(self):
        self.learn(self.config(self.frames(0, 5)))
        self.assert_run_refuses(self.config("images:/nonexistent", resume=True, model={"features": 5}),
                                "checkpoint.resume", "0.weight")

    def test_every_needs_a_folder(self):
        self.assert_check_refuses({"checkpoint": {"every": 5}}, "checkpoint.dir")
