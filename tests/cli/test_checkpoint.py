"""Checkpoints: what a run leaves, and going on from it."""

import json
import os
import shutil
import tomllib
import unittest

import torch
from safetensors import safe_open
from safetensors.torch import load_file

import program


class Checkpoints(program.CliTest):

    def config(self, uri, **checkpoint):
        return {"source": {"uri": uri, "width": 24, "height": 16, "pace": "asap"},
                "model": {"layers": 3, "features": 4, "kernel": 3},
                "pipeline": {"schedule": "sequential", "stages": 2, "cut": [2]},
                "optimizer": {"kind": "adam", "lr": 0.01},
                "checkpoint": checkpoint}

    def frames(self, name, begin, end):
        return program.write_frames(self.folder / name, program.random_frames(seed=5, count=40)[begin:end])

    def final(self):
        return load_file(self.folder / "out.safetensors")

    def test_going_on_equals_never_having_stopped(self):
        self.learn(self.config(self.frames("all", 0, 40)))
        expected = self.final()
        there = str(self.folder / "state")
        self.learn(self.config(self.frames("first", 0, 25), dir=there))
        report, _ = self.learn(self.config(self.frames("rest", 25, 40), dir=there, resume=True))
        self.assertEqual(report["frames"]["trained"], 15)
        for name, value in self.final().items():
            self.assertTrue(torch.equal(value, expected[name]), name)

    def test_a_resumed_run_says_so_and_counts_on(self):
        there, log = str(self.folder / "state"), self.folder / "log.jsonl"
        output = {"output": {"log": log, "log_every": 10}}
        self.learn(self.config(self.frames("first", 0, 25), dir=there) | output)
        config = self.config(self.frames("rest", 25, 40), dir=there, resume=True) | output
        report, _ = self.learn(config)
        self.assertEqual(report["run"]["resumed"], {"from": f"{there}/checkpoint.safetensors", "frames": 25})
        lines = [json.loads(line) for line in log.read_text().splitlines()]
        self.assertEqual([line["frame"] for line in lines], [0, 10, 20, 25, 25, 35])
        self.assertEqual([line["frame"] for line in lines if "resumed" in line], [25])
        told = program.call("run", self.folder / "config.toml", "--set", "source.pace=live").err
        self.assertIn(f"checkpoint: goes on from {there}/checkpoint.safetensors, after 40 frames\n", told)
        self.assertRegex(told, r"\nframe (4\d|5[0-5])  ")

    def test_weights_tell_of_the_run_that_made_them(self):
        config = self.config(self.frames("some", 0, 5), dir=str(self.folder / "state"))
        config["model"]["seed"] = 7
        report, _ = self.learn(config)
        for file in (self.folder / "out.safetensors", self.folder / "state/checkpoint.safetensors"):
            with safe_open(file, framework="pt") as weights:
                about = weights.metadata()
            for key in ("uri", "host", "config"):
                self.assertEqual(about[key], report["run"][key], key)
            self.assertEqual((about["seed"], about["frames"], about["format"]), ("7", "5", "pt"))
            for key in ("duration_s", "fps"):
                self.assertGreater(float(about[key]), 0, key)
            self.assertEqual(tomllib.loads(about["config"])["model"]["seed"], 7)

    def test_optimizer_state_that_does_not_fit_is_told_of(self):
        there = str(self.folder / "state")
        self.learn(self.config(self.frames("first", 0, 5), dir=there))
        for optimizer, line in (({"kind": "adam"}, None), ({"kind": "adamw"}, None),
                                ({"kind": "sgd", "momentum": 0.9},
                                 "optimizer: the state kept (mean, square, steps) does not fit this run and is left "
                                 "out; momentum starts anew"),
                                ({"kind": "rmsprop"}, "optimizer: the state kept (mean, steps) does not fit this run and "
                                                      "is left out")):
            with self.subTest(optimizer=optimizer):
                config = self.config(self.frames("rest", 5, 6), dir=there, resume=True)
                config["checkpoint"]["dir"] = str(shutil.copytree(there, self.folder / optimizer["kind"]))
                _, outcome = self.learn(config | {"optimizer": optimizer})
                told = [told for told in outcome.err.splitlines() if told.startswith("optimizer: ")]
                self.assertEqual(told, [line] if line else [])

    def test_two_runs_never_write_one_folder(self):
        there = self.folder / "state"
        tables = program.bare(self.config("synth:shapes", dir=there, every=5))
        tables["source"]["pace"] = "live"
        file = program.write_toml(self.folder / "live.toml", tables)
        first = self.start_run(file)
        second = program.call("run", file, "--quiet")
        self.assert_refused(program.FAILED, second, f"{there}: another run writes it")
        first.kill()
        first.wait()
        self.assert_code(program.DONE, program.call("run", file, "--quiet", "--frames", "5"))

    def test_resume_without_a_checkpoint_starts_afresh(self):
        uri = self.frames("few", 0, 5)
        report, _ = self.learn(self.config(uri, dir=str(self.folder / "none"), resume=True))
        self.assertEqual(report["frames"]["trained"], 5)
        self.assertTrue((self.folder / "none" / "checkpoint.safetensors").exists())

    def test_one_is_there_while_the_run_goes_on(self):
        there = self.folder / "live"
        config = self.config("synth:shapes", dir=str(there), every=5)
        config["source"] |= {"pace": "live", "fps": 50.0}
        process = program.start("run", program.write_toml(self.folder / "live.toml", config), "--quiet")
        try:
            while not (there / "checkpoint.safetensors").exists():
                self.assertIsNone(process.poll(), "the run ended before its first checkpoint")
        finally:
            process.kill()  # power loss
            process.communicate()
        state = load_file(there / "checkpoint.safetensors")
        self.assertIn("0.weight", state)
        self.assertIn("optimizer.mean.0.weight", state)
        self.assertEqual([name for name in os.listdir(there) if name == "checkpoint.safetensors"],
                         ["checkpoint.safetensors"])

    def test_a_damaged_checkpoint_costs_an_interval_and_not_the_run(self):
        there = self.folder / "state"
        newest = there / "checkpoint.safetensors"
        self.learn(self.config(self.frames("first", 0, 25), dir=str(there)))
        before = load_file(newest)
        self.learn(self.config(self.frames("second", 25, 30), dir=str(there), resume=True))
        data = bytearray(newest.read_bytes())
        data[-1] ^= 1
        newest.write_bytes(data)
        none = {"optimizer": {"kind": "sgd", "lr": 0.0}}  # what it begins with stays
        config = self.config(self.frames("third", 30, 31), dir=str(there), resume=True)
        _, outcome = self.learn({**config, **none})
        line, = [line for line in outcome.err.splitlines() if line.startswith("checkpoint: ")]
        self.assertIn(str(newest), line)
        self.assertIn("going on from checkpoint.previous.safetensors", line)
        for name, value in self.final().items():
            self.assertTrue(torch.equal(value, before[name]), name)

    def test_two_damaged_checkpoints_are_told_of_before_anything_starts(self):
        there = self.folder / "state"
        there.mkdir()
        for name in ("checkpoint.safetensors", "checkpoint.previous.safetensors"):
            (there / name).write_bytes(b"no")
        config = self.config("images:/nonexistent", dir=str(there), resume=True)
        file = program.write_toml(self.folder / "damaged.toml", config)
        self.assert_refused(program.BAD_USAGE, program.call("run", file), "checkpoint.resume", there / "checkpoint.safetensors")

    def test_a_checkpoint_of_another_network(self):
        there = str(self.folder / "state")
        self.learn(self.config(self.frames("some", 0, 5), dir=there))
        other = self.config("images:/nonexistent", dir=there, resume=True)
        other["model"]["features"] = 5
        file = program.write_toml(self.folder / "other.toml", other)
        self.assert_refused(program.BAD_USAGE, program.call("run", file), "checkpoint.resume", "0.weight")

    def test_every_needs_a_folder(self):
        self.assert_refused(program.BAD_USAGE, program.call("check", "--set", "checkpoint.every=5"), "checkpoint.dir")


if __name__ == "__main__":
    unittest.main()
