"""output.log: one JSON object a line about every N-th frame. `millrace tensorboard` converts it.
Progress on a terminal is one line."""

import json
import math
import os
import pty
import struct
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

    def test_every_nth_frame_has_its_line(self):
        for every in (1, 7, 1000):
            with self.subTest(every=every):
                self.log.unlink(missing_ok=True)
                report, _ = self.learn(self.config(log_every=every))
                lines = [json.loads(line) for line in self.log.read_text().splitlines()]
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
                    # Of the first frame there is no mean to compare with.
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

    def test_on_stdout_it_is_alone_there(self):
        outcome = self.succeed("run", self.write(self.config(log="-")))
        self.assertEqual([json.loads(line)["frame"] for line in outcome.out.splitlines()], [0, 10, 20, 30, 40])
        self.assertIn("50 received", outcome.err)  # the summary

    def test_lines_are_there_while_it_learns(self):
        config = self.write(program.small(output={"log": "-", "log_every": 5}))
        process = self.ends(program.start("run", config, "--quiet"))
        for frame in (0, 5, 10):
            self.assertEqual(json.loads(process.stdout.readline())["frame"], frame)
        self.stop(process)

    def test_a_log_that_cannot_be_written_costs_no_other_output(self):
        report, outcome = self.learn(self.config(log="/dev/full"), code=program.FAILED)
        self.assertEqual(report["frames"]["trained"], FRAMES)
        while_running, at_the_end = outcome.err.splitlines()
        self.assertTrue(while_running.startswith("log: /dev/full: "), outcome)
        self.assertTrue(at_the_end.startswith("millrace: error: /dev/full: "), outcome)
        self.assertTrue((self.folder / "out.safetensors").exists())


class Progress(program.CliTest):
    def command(self):
        config = self.write(program.small(
            source={"fps": 100.0, "pace": "live"}, pipeline={"stages": 1, "cut": []},
            monitor={"fps": 0.001}))  # never late, however busy the machine
        return [program.MILLRACE, "run", config, "--frames", "100"]

    def test_plain_lines_where_there_is_no_terminal(self):
        done = subprocess.run(self.command(), capture_output=True, text=True, timeout=120)
        self.assertEqual(done.returncode, program.DONE)
        self.assertRegex(done.stderr, r"^(frame \d+ .*\n)+$")
        self.assertNotIn("\r", done.stderr)
        self.assertNotIn("\x1b", done.stderr)

    def test_one_line_that_is_rewritten_on_a_terminal(self):
        master, slave = pty.openpty()
        with subprocess.Popen(self.command(), stdout=subprocess.DEVNULL, stderr=slave) as process:
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
        self.assertRegex(told.decode(), "^(\rframe [^\r\n]*\x1b\\[K)+\r\n$")


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def record(event):
    """A TFRecord's frame: length, CRC of it, bytes, CRC of them."""
    def masked(data):
        crc = crc32c(data)
        return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)

    length = struct.pack("<Q", len(event))
    return length + masked(length) + event + masked(event)


def varint(number):
    return bytes([number]) if number < 0x80 else bytes([0x80 | number & 0x7F]) + varint(number >> 7)


def field(number, data):
    """A protobuf field of text or of a message."""
    return varint(number << 3 | 2) + varint(len(data)) + data


def head(time):
    return record(b"\x09" + struct.pack("<d", time) + field(3, b"brain.Event:2"))


def event_of(line):
    """Of a line of the log: its numbers by name, those of a list as "name/0", ..."""
    lists = {f"{key}/{i}": item for key, value in line.items() if isinstance(value, list) for i, item in enumerate(value)}
    scalars = {key: value for key, value in {**line, **lists}.items()
               if isinstance(value, (int, float)) and key not in ("frame", "time")}
    values = [field(1, field(1, tag.encode()) + b"\x15" + struct.pack("<f", scalars[tag])) for tag in sorted(scalars)]
    return record(b"\x09" + struct.pack("<d", line["time"]) + b"\x10" + varint(line["frame"]) + field(5, b"".join(values)))


class Tensorboard(program.CliTest):
    """The event file is, byte for byte, what TensorFlow's record writer makes of protobuf's Events."""

    def log(self):
        file = self.folder / "run.jsonl"
        uri = program.write_frames(self.folder / "frames", program.random_frames(1, 300, 8, 8))
        self.learn({"source": {"uri": uri, "width": 8, "height": 8}, "model": {"layers": 3, "features": 2, "kernel": 3},
                    "pipeline": {"stages": 2, "cut": [2]}, "output": {"log": file, "log_every": 10}})
        return file

    def assert_holds(self, log, lines):
        """What it is converted to; returns what the command says."""
        outcome = self.succeed("tensorboard", log, self.folder / "board")
        (file,) = (self.folder / "board").iterdir()
        self.assertRegex(file.name, r"^events\.out\.tfevents\.\d{10}\.")
        self.assertEqual(file.read_bytes(), head(lines[0]["time"]) + b"".join(map(event_of, lines)))
        return outcome.out

    def test_it_holds_the_log_and_again_when_that_has_grown(self):
        self.assertEqual(crc32c(b"123456789"), 0xE3069283)  # the value that every CRC-32C is known by
        log = self.log()
        lines = [json.loads(line) for line in log.read_text().splitlines()]
        self.assertEqual(len(lines), 30)
        self.assert_holds(log, lines)
        with log.open("a") as file:
            file.write('{"frame":300,"lo\n{"frame":310,"time":2e9,"loss":null}\n')
        told = self.assert_holds(log, [*lines, {"frame": 310, "time": 2e9}])
        self.assertIn("31 frames, 1 lines skipped", told)

    def test_bad_usage(self):
        self.assert_each_refused((("tensorboard", log, self.folder), log) for log in ("/nowhere.jsonl", program.VIDEO))
        log = self.folder / "one.jsonl"
        log.write_text('{"frame":0,"time":1.5,"loss":0.5}\n')
        self.assert_refused(program.FAILED, program.call("tensorboard", log, "/proc/nowhere"), "/proc/nowhere")
