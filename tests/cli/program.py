"""Runs the built program from outside, as a user's scripts do, and makes what it is given."""

import json
import os
import struct
import subprocess
import tempfile
import time
import unittest
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy

from forked import ForkServer

ROOT = Path(__file__).resolve().parents[2]
MILLRACE = os.environ.get("MILLRACE", str(ROOT / "build" / "release" / "millrace"))
VIDEO = Path("/usr/share/doc/opencv-doc/examples/data/vtest.avi")

# The exit codes that scripts rely on.
DONE, FAILED, BAD_USAGE, NO_SOURCE = 0, 1, 2, 3


class Outcome(NamedTuple):
    code: int  # below 0: killed by that signal
    out: str
    err: str


# A command that takes longer hangs; a sanitizer's take their time.
LONG_ENOUGH = 1500 if "ASAN_OPTIONS" in os.environ else 300

# Without one, as with a sanitizer, which wants to be the first library: each start is a whole one.
FORK_SERVER = ForkServer(MILLRACE, os.environ["FORK_SERVER"]) if os.environ.get("FORK_SERVER") else None


def start(*args, env=None):
    """The program at work: for tests that talk to it meanwhile. With an `env` it is loaded anew."""
    command = [MILLRACE, *map(str, args)]
    streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    if FORK_SERVER and env is None:
        return FORK_SERVER.popen(command, **streams)
    return subprocess.Popen(command, env={**os.environ, **(env or {})}, **streams)


def call(*args, timeout=LONG_ENOUGH, env=None):
    """The program from start to end."""
    with start(*args, env=env) as process:
        try:
            out, err = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
    # libpng has its own say on stderr about a picture that it can't decode.
    err = "".join(line for line in err.splitlines(keepends=True) if not line.startswith("libpng "))
    return Outcome(process.returncode, out, err)


def call_all(commands):
    """Outcomes of many calls, as many at a time as there are cores: most of a short call is start-up."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(lambda command: call(*command), commands))


def settings(tables):
    """{"source": {"width": 8}} as --set options."""
    options = []
    for table, keys in tables.items():
        for key, value in keys.items():
            options += ["--set", f"{table}.{key}={toml_value(value)}"]
    return options


def toml_value(value):
    """JSON's text of a string, a number, a flag and a list is TOML's as well."""
    return json.dumps(str(value) if isinstance(value, Path) else value)


BARE = {"optimizer": {"kind": "sgd", "lr": 0.01}, "correction": {"kind": "none"}, "guard": {"kind": "none"}}


def bare(tables):
    """`tables`, with the schedule's bare rule named for whatever they don't say about learning."""
    return {**tables, **{table: {**keys, **tables.get(table, {})} for table, keys in BARE.items()}}


def write_toml(path, tables):
    """A config file; a list of dicts becomes [[table.key]]s."""
    lines = []
    for table, keys in tables.items():
        lines.append(f"[{table}]")
        lists = {key: value for key, value in keys.items() if is_tables(value)}
        lines += [f"{key} = {toml_value(value)}" for key, value in keys.items() if key not in lists]
        for key, items in lists.items():
            for item in items:
                lines.append(f"[[{table}.{key}]]")
                lines += [f"{name} = {toml_value(value)}" for name, value in item.items()]
    path.write_text("\n".join(lines) + "\n")
    return path


def is_tables(value):
    return isinstance(value, list) and bool(value) and isinstance(value[0], dict)


def random_frames(seed, count, height=16, width=24, channels=3):
    """[count,H,W,C] bytes."""
    return numpy.random.default_rng(seed).integers(0, 256, (count, height, width, channels), numpy.uint8)


def tensors_of(path):
    """The bytes of a safetensors file's tensors, with names and shapes, without what it says of its run."""
    data = path.read_bytes()
    end = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:end])
    del header["__metadata__"]
    return header, data[end:]


def write_frames(folder, frames):
    """Numbered PNGs; returns the URI that names them."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, frame in enumerate(frames):
        write_png(folder / f"{number:05d}.png", frame)
    return f"images:{folder}/%05d.png"


def write_png(path, pixels):
    """[H,W,1] grey or [H,W,3] RGB bytes: the least that is a PNG, so that no picture library is needed."""
    height, width, channels = pixels.shape
    colour = {1: 0, 3: 2}[channels]
    rows = b"".join(b"\0" + row.tobytes() for row in pixels)  # 0: the row is not filtered
    path.write_bytes(b"\x89PNG\r\n\x1a\n"
                     + png_chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, colour, 0, 0, 0))
                     + png_chunk(b"IDAT", zlib.compress(rows)) + png_chunk(b"IEND", b""))


def png_chunk(name, data):
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def png_size(path):
    """(width, height) that a PNG's header tells."""
    head = path.read_bytes()[:24]
    assert head[:8] == b"\x89PNG\r\n\x1a\n" and head[12:16] == b"IHDR", f"{path} is no PNG"
    return struct.unpack(">II", head[16:24])


class CliTest(unittest.TestCase):
    """A folder for the test, and what is asserted of every call."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="millrace-")
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def assert_code(self, code, outcome):
        self.assertEqual(outcome.code, code, outcome)

    def assert_refused(self, code, outcome, *parts):
        """That exit code, nothing on stdout, and one line on stderr that holds every part."""
        self.assert_code(code, outcome)
        self.assertEqual(outcome.out, "", outcome)
        self.assert_one_error(outcome, *parts)

    def assert_one_error(self, outcome, *parts):
        lines = outcome.err.splitlines()
        self.assertEqual(len(lines), 1, outcome)
        self.assertTrue(lines[0].startswith("millrace: error: "), outcome)
        for part in parts:
            self.assertIn(str(part), lines[0])

    def learn(self, tables, *options, code=DONE):
        """`millrace run` of the bare rule with a config of `tables`; returns (report, outcome)."""
        tables = {**bare(tables), "output": {"weights": str(self.folder / "out.safetensors"), **tables.get("output", {})}}
        config = write_toml(self.folder / "config.toml", tables)
        report = self.folder / "report.json"
        report.unlink(missing_ok=True)
        outcome = call("run", config, "--quiet", "--report", report, *options)
        self.assert_code(code, outcome)
        return json.loads(report.read_text()), outcome

    def start_run(self, config, *options):
        """`millrace run` on an endless source, returned when it has begun: its first progress line is out."""
        process = start("run", config, *options)
        self.addCleanup(self.end, process)
        for line in iter(process.stderr.readline, ""):
            if line.startswith("frame "):
                return process
        self.fail("it ended before its first progress line")

    def wait_until(self, what, text, process=None):
        """Until what() holds, for two minutes at most, and while `process` is there."""
        end = time.monotonic() + 120
        while not what():
            if process:
                self.assertIsNone(process.poll(), text)
            self.assertLess(time.monotonic(), end, text)
            time.sleep(0.02)

    def end(self, process):
        if process.poll() is None:
            process.kill()
        process.wait()
        process.stdout.close()
        process.stderr.close()

    def assert_balanced(self, report):
        """received = trained + dropped + rejected + in_flight, and nothing is left in flight."""
        frames = report["frames"]
        fates = frames["trained"] + frames["dropped"] + frames["rejected"] + frames["in_flight"]
        self.assertEqual(frames["received"], fates, frames)
        self.assertEqual(frames["in_flight"], 0, frames)
        self.assertTrue(all(count >= 0 for count in frames.values()), frames)
