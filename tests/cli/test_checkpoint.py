"""Checkpoints: what a run leaves, and going on from it."""

import os
import unittest

import torch
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
