"""SIGHUP: the config is read again; what may change does so, and one line says what."""

import json
import signal
import time
import unittest

from safetensors.torch import load_file

import program

PATIENCE = 120  # seconds until a test gives up


class Reload(program.CliTest):

    def start(self, *options, **tables):
        """An endless run that has begun."""
        self.tables = {
            "source": {"uri": "synth:shapes", "width": 24, "height": 16, "pace": "live", "drop": "never", "fps": 500.0},
            "model": {"layers": 3, "features": 4, "kernel": 3}, "pipeline": {"stages": 2, "cut": [2]},
            "optimizer": {"lr": 0.01}, "checkpoint": {"dir": self.folder, "every": 50},
            "output": {"report": self.folder / "report.json"}, **tables}
        self.tables = program.bare(self.tables)
        self.file = program.write_toml(self.folder / "config.toml", self.tables)
        return self.start_run(self.file, *options)

    def line(self, process, begin):
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            line = process.stderr.readline()
            if line.startswith(begin):
                return line.removeprefix(begin).rstrip("\n")
            if not line:
                break
        self.fail(f"never told of {begin!r}")

    def change(self, process, text=None, **tables):
        """The answer to a SIGHUP after the file has become `text`, or has `tables` in place of its own."""
        for name, keys in tables.items():
            self.tables[name] = {**self.tables.get(name, {}), **keys}
        if text is None:
            program.write_toml(self.file, self.tables)
        else:
            self.file.write_text(text)
        process.send_signal(signal.SIGHUP)
        return self.line(process, "config: ")

    def finish(self, process, report="report.json"):
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=PATIENCE)
        self.assertEqual(process.returncode, program.DONE, err)
        report = json.loads((self.folder / report).read_text())
        self.assert_balanced(report)
        return report

    def next_checkpoint(self, after):
        """One that was begun and written after `after`, and when it was."""
        file = self.folder / "checkpoint.safetensors"
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            if file.exists() and (written := file.stat().st_mtime_ns) > after:
                return load_file(file), written
            time.sleep(0.02)
        self.fail("no checkpoint is written")

    def test_the_learning_rate(self):
        with self.start() as process:
            self.assertEqual(self.change(process, optimizer={"lr": 0.0}), "optimizer.lr 0.01 -> 0.0")
            _, written = self.next_checkpoint(time.time_ns())  # the first one may be older than the signal
            first, written = self.next_checkpoint(written)
            second, written = self.next_checkpoint(written)
            self.assertTrue(all(first[name].equal(second[name]) for name in first))
            self.assertEqual(self.change(process, optimizer={"lr": 0.5}), "optimizer.lr 0.0 -> 0.5")
            _, written = self.next_checkpoint(written)
            third, _ = self.next_checkpoint(written)
            self.assertFalse(all(first[name].equal(third[name]) for name in first))
            self.finish(process)

    def test_the_rate_that_is_to_be_held(self):
        with self.start(monitor={"fps": 100000.0, "policy": "skip"}) as process:
            self.line(process, "overload: train every: 1 -> ")
            self.assertEqual(self.change(process, monitor={"fps": 0.001}), "monitor.fps 100000.0 -> 0.001")
            line = self.line(process, "overload: train every: ")
            while " -> 1: " not in line:
                line = self.line(process, "overload: train every: ")
            report = self.finish(process)
        self.assertEqual(report["overload"]["train_every"], 1)
        self.assertEqual(report["realtime"]["F"], 0.001)

    def test_checkpoints(self):
        with self.start(checkpoint={"dir": self.folder, "every": 0}) as process:
            self.assertFalse((self.folder / "checkpoint.safetensors").exists())
            self.assertEqual(self.change(process, checkpoint={"every": 20}), "checkpoint.every 0 -> 20")
            self.next_checkpoint(0)
            self.finish(process)

    def test_where_results_go(self):
        with self.start() as process:
            told = self.change(process, output={"report": self.folder / "other.json"})
            self.assertTrue(told.startswith("output.report "), told)
            self.finish(process, "other.json")
        self.assertFalse((self.folder / "report.json").exists())

    def test_what_needs_a_restart_is_named(self):
        with self.start() as process:
            told = self.change(process, source={"width": 32}, model={"features": 5}, optimizer={"lr": 0.02})
            self.assertEqual(told, "optimizer.lr 0.01 -> 0.02; needs a restart: source.width 24 -> 32, "
                                   "model.features 4 -> 5")
            self.assertEqual(self.change(process), "nothing has changed; needs a restart: source.width 24 -> 32, "
                                                   "model.features 4 -> 5")
            self.finish(process)

    def test_nothing(self):
        with self.start() as process:
            self.assertEqual(self.change(process), "nothing has changed")
            self.finish(process)

    def test_set_stays_on_top(self):
        with self.start("--set", "optimizer.lr=0.03") as process:
            self.assertEqual(self.change(process, optimizer={"lr": 0.5}), "nothing has changed")
            self.finish(process)

    def test_a_broken_config_leaves_everything_as_it_was(self):
        with self.start() as process:
            for text, place in (("[optimizer]\nlr =\n", ":2:"), ("[optimizer]\nlr = -1.0\n", ":2:1: optimizer.lr"),
                                ("[optimiser]\nlr = 0.5\n", ":1:2: unknown table"),
                                ("[optimizer]\nlr = 0.5\n[pipeline]\nstages = 99\n", ":4:1: pipeline.stages")):
                with self.subTest(text):
                    told = self.change(process, text)
                    self.assertTrue(told.startswith(f"{self.file}{place}"), told)
                    self.assertTrue(told.endswith("; nothing has changed"), told)
            self.file.unlink()
            process.send_signal(signal.SIGHUP)
            self.assertIn("cannot be read", self.line(process, "config: "))
            self.assertEqual(self.change(process), "nothing has changed")  # as it was, again
            self.finish(process)


if __name__ == "__main__":
    unittest.main()
