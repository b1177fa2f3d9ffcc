"""SIGINT and SIGTERM: the first drains and saves, the second aborts."""

import array
import fcntl
import json
import os
import pty
import signal
import termios
import time
import unittest

from safetensors.torch import load_file

import program


class Signals(program.CliTest):

    def start(self, model, **source):
        """An endless run, returned when it has begun to learn: its first progress line is out."""
        file = program.write_toml(self.folder / "config.toml", {
            "source": {"uri": "synth:shapes", "pace": "live", **source}, "model": model,
            "pipeline": {"stages": 2, "cut": [2]},
            "output": {"report": self.folder / "report.json", "weights": self.folder / "weights.safetensors"}})
        return self.start_run(file)

    def assert_saved(self):
        report = json.loads((self.folder / "report.json").read_text())
        self.assert_balanced(report)
        self.assertEqual(report["updates"][-1], report["frames"]["trained"])
        self.assertEqual(len(load_file(self.folder / "weights.safetensors")), 4)

    def test_one_signal_drains_and_saves(self):
        small = {"layers": 2, "features": 2, "kernel": 3}
        for number in (signal.SIGINT, signal.SIGTERM):
            for source in ({"drop": "newest"}, {"drop": "never", "fps": 2000.0}):
                with self.subTest(signal=number, source=source):
                    process = self.start(small, **source)
                    process.send_signal(number)
                    out, err = process.communicate(timeout=60)
                    self.assertEqual(process.returncode, program.DONE, err)
                    self.assertNotIn("error", err)
                    self.assertIn("received", out)  # the summary
                    self.assert_saved()

    def test_a_second_signal_aborts(self):
        # So slow a network that the frames which wait take minutes to drain.
        slow = {"layers": 2, "features": 64, "kernel": 31}
        for first, second in ((signal.SIGINT, signal.SIGINT), (signal.SIGTERM, signal.SIGINT)):
            with self.subTest(first=first, second=second):
                process = self.start(slow, drop="never", fps=1000.0, width=512, height=512)
                process.send_signal(first)
                while "draining" not in (line := process.stderr.readline()):
                    self.assertNotEqual(line, "", "it ended at the first signal")
                process.send_signal(second)
                self.assertNotEqual(process.wait(timeout=15), program.DONE)
                self.assertFalse((self.folder / "weights.safetensors").exists())

    def test_a_terminal_that_is_closed_leaves_no_orphan(self):
        file = program.write_toml(self.folder / "config.toml", {
            "source": {"uri": "synth:shapes", "pace": "live", "width": 16, "height": 16},
            "model": {"layers": 2, "features": 2, "kernel": 3}, "pipeline": {"stages": 2, "cut": [2]},
            "output": {"report": self.folder / "report.json", "weights": self.folder / "weights.safetensors"}})
        child, terminal = pty.fork()
        if child == 0:
            os.execv(program.MILLRACE, [program.MILLRACE, "run", str(file)])
        while b"frame " not in os.read(terminal, 4096):
            pass
        os.kill(child, signal.SIGHUP)  # while it is there: read the config again
        told = b""
        while b"config: " not in told:
            told += os.read(terminal, 4096)
        os.close(terminal)
        _, status = os.waitpid(child, 0)
        self.assertEqual(os.waitstatus_to_exitcode(status), program.DONE)
        self.assert_saved()

    def test_a_reader_that_never_reads_does_not_keep_a_run_from_ending(self):
        file = program.write_toml(self.folder / "config.toml", {
            "source": {"uri": "synth:shapes", "pace": "live", "fps": 500.0, "width": 16, "height": 16},
            "model": {"layers": 2, "features": 2, "kernel": 3}, "pipeline": {"stages": 2, "cut": [2]},
            "output": {"log": "-", "log_every": 1, "report": self.folder / "report.json", "weights": self.folder / "weights.safetensors"}})
        process = self.start_run(file)
        full = 0
        while (now := self.unread(process.stdout)) > full or now < 50000:  # a pipe takes 64 KiB
            full = now
            time.sleep(0.2)
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=20)
        self.assert_saved()

    def unread(self, pipe):
        count = array.array("i", [0])
        fcntl.ioctl(pipe, termios.FIONREAD, count)
        return count[0]


if __name__ == "__main__":
    unittest.main()
