"""output.log: one JSON object a line about every N-th frame. Progress on a terminal is one line."""

import json
import math
import os
import pty
import signal
import subprocess

import program
from keeping import MODEL

NUMBERS = ("frame", "source_frame", "time", "loss", "mean_frame_loss", "latency_ms", "T_over_N_ms", "dropped", "missed")
LISTS = ("stage_ms", "handoff_ms", "gradient_age")
FRAMES = 50


class Log(program.CliTest):
    def setUp(self):
        super().setUp()
        self.log = self.folder / "logs" / "run.jsonl"  # in a folder that the run makes

    def config(self, log=None, log_every=10):
        uri = program.write_frames(self.folder / "frames", program.random_frames(1, FRAMES))
        return program.small(uri, model=MODEL, output={"log": log or self.log, "log_every": log_every})

    @program.each(1, 7, 1000)
    def test_every_nth_frame_has_its_line(self, every):
        self.log.unlink(missing_ok=True)
        report, _ = self.learn(self.config(log_every=every))
        lines = program.lines_of(self.log)
        self.assertEqual([line["frame"] for line in lines], list(range(0, FRAMES, every)))
        for line in lines:
            for key in NUMBERS:
                self.assertIsInstance(line[key], (int, float), key)
            for key in LISTS:
                self.assertEqual(len(line[key]), 2, key)
            self.assertEqual(line["source_frame"], line["frame"])  # nothing was dropped
            self.assertEqual(line["missed"], 0)
        self.assertIsNone(lines[0]["fps"])
        self.assertTrue(all(line["fps"] > 0 for line in lines[1:]))
        times = [line["time"] for line in lines]
        self.assertEqual(times, sorted(times))
        self.assertTrue(math.isclose(lines[0]["loss"], report["loss"]["first"], rel_tol=1e-6))
        if every == 1:
            self.assertTrue(math.isclose(lines[-1]["loss"], report["loss"]["last"], rel_tol=1e-6))
            # The first frame has no mean to compare with.
            mean = sum(line["mean_frame_loss"] for line in lines[1:]) / (FRAMES - 1)
            self.assertTrue(math.isclose(mean, report["loss"]["mean_frame"]["mean"], rel_tol=1e-6))

    def test_a_second_run_appends_even_after_a_torn_line(self):
        self.learn(self.config())
        with self.log.open("a") as file:
            file.write('{"frame":50,"los')
        self.learn(self.config())
        lines = self.log.read_text().splitlines()
        self.assertEqual(lines.pop(5), '{"frame":50,"los')
        self.assertEqual([json.loads(line)["frame"] for line in lines], 2 * [0, 10, 20, 30, 40])

    def test_on_stdout_it_is_alone_and_there_while_it_learns(self):
        process = self.ends(program.start("run", self.write(program.small(output={"log": "-", "log_every": 5}))))
        for frame in (0, 5, 10):
            self.assertEqual(json.loads(process.stdout.readline())["frame"], frame)
        process.send_signal(signal.SIGINT)
        for line in process.stdout:
            json.loads(line)
        self.assertIn(" received = ", self.finish(process)[1])  # the summary

    def test_a_log_that_cannot_be_written_costs_no_other_output(self):
        _, outcome = self.learn(self.config(log="/dev/full"), code=program.FAILED, trained=FRAMES)
        while_running, at_the_end = outcome.err.splitlines()
        self.assertTrue(while_running.startswith("log: /dev/full: "), outcome)
        self.assertTrue(at_the_end.startswith("millrace: error: /dev/full: "), outcome)
        self.assertTrue((self.folder / "out.safetensors").exists())

    def test_one_line_that_is_rewritten_on_a_terminal(self):
        config = self.write(program.small(
            source={"fps": 100.0, "pace": "live"}, pipeline={"stages": 1, "cut": []},
            monitor={"fps": 0.001}))  # never late, however busy the machine
        master, slave = pty.openpty()
        with subprocess.Popen([program.MILLRACE, "run", config, "--frames", "100"], stdout=subprocess.DEVNULL, stderr=slave) as process:
            os.close(slave)
            told = b""
            try:
                while some := os.read(master, 4096):
                    told += some
            except OSError:  # the other end is closed
                pass
        os.close(master)
        self.assertEqual(process.returncode, program.DONE)
        # A terminal turns the one line feed at the end into two characters.
        self.assertRegex(told.decode(), "^watching [^\r\n]*\r\n(\rframe [^\r\n]*\x1b\\[K)+\r\n$")
