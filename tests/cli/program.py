"""Runs the built program from outside, as a user's scripts do, and writes its input."""

import functools
import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import unittest
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy
from PIL import Image

from forked import ForkedProgram, ForkServer

ROOT = Path(__file__).resolve().parents[2]
MILLRACE = os.environ.get("MILLRACE", str(ROOT / "build" / "release" / "millrace"))
VIDEO = Path("/usr/share/doc/opencv-doc/examples/data/vtest.avi")

# The exit codes that scripts rely on.
DONE, FAILED, BAD_USAGE, NO_SOURCE = 0, 1, 2, 3


class Outcome(NamedTuple):
    code: int  # -N: killed by signal N
    out: str
    err: str


# Under `tools/test --long`.
LONG = "MILLRACE_LONG" in os.environ
# A command that takes longer than this many seconds hangs. Sanitizers are slow.
LONG_ENOUGH = 1500 if "ASAN_OPTIONS" in os.environ else 300

# A sanitizer must be the first library, so there every start loads LibTorch anew.
FORK_SERVER = ForkServer(MILLRACE, os.environ["FORK_SERVER"]) if os.environ.get("FORK_SERVER") else None


def start(*args, env=None):
    """The running program. With an `env` it loads LibTorch anew."""
    command = [MILLRACE, *map(str, args)]
    streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "errors": "surrogateescape"}
    if FORK_SERVER and env is None:
        return ForkedProgram(FORK_SERVER, command, **streams)
    return subprocess.Popen(command, env={**os.environ, **(env or {})}, **streams)


def call(*args, timeout=LONG_ENOUGH, env=None):
    """Runs the program to its end."""
    with start(*args, env=env) as process:
        try:
            out, err = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
    # libpng writes to stderr itself about a picture that it can't decode.
    err = "".join(line for line in err.splitlines(keepends=True) if not line.startswith("libpng "))
    return Outcome(process.returncode, out, err)


def output_of(*command, env=None, **settings):
    """What any command prints; it must end with 0."""
    done = subprocess.run([str(part) for part in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
                          env={**os.environ, **(env or {})}, **settings)
    if done.returncode != 0:
        raise AssertionError(done.stdout)
    return done.stdout


def needs(name):
    """For tests that another program takes part in."""
    return unittest.skipUnless(shutil.which(name), f"no {name} here")


def each(*cases):
    """Runs a test with each of these cases, an argument or a tuple of them."""
    def decorate(test):
        @functools.wraps(test)
        def run(self):
            for case in cases:
                with self.subTest(case=case):
                    test(self, *(case if isinstance(case, tuple) else (case,)))
        return run
    return decorate


def call_all(commands):
    """Outcomes of many calls, one per core at a time: most of a short call is start-up."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(lambda command: call(*command), commands))


def settings(tables):
    """{"source": {"width": 8}} as --set options."""
    return sets(*(f"{table}.{key}={toml_value(value)}" for table, keys in tables.items() for key, value in keys.items()))


def sets(*each):
    """Settings as they stand on the command line, "source.width=8", each behind its --set."""
    return [word for setting in each for word in ("--set", setting)]


def toml_value(value):
    """As TOML on one line. Strings, numbers and booleans are written as in JSON."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {toml_value(each)}" for key, each in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(toml_value, value)) + "]"
    return json.dumps(str(value) if isinstance(value, Path) else value)


def merged(tables, more):
    """`tables` with the keys of `more` on top."""
    return {**tables, **{table: {**tables.get(table, {}), **keys} for table, keys in more.items()}}


PLAIN = {"task": {"kind": "autoencode"}, "model": {"preset": "partime-cnn"}}
BARE = {**PLAIN, "optimizer": {"kind": "sgd", "lr": 0.01}, "correction": {"kind": "none"}, "guard": {"kind": "none"}}
SMALL = {"source": {"uri": "synth:shapes", "width": 24, "height": 16},
         "model": {"preset": "partime-cnn", "layers": 2, "features": 2, "kernel": 3}, "pipeline": {"stages": 2, "cut": [2]},
         "task": {"kind": "autoencode"}}


def bare(tables):
    """`tables`, with PARTIME's network and task and the schedule's bare update rule where they don't name others."""
    return merged(BARE, tables)


def small(uri="synth:shapes", **tables):
    """The config of a small, fast run over two stages, with the keys of `tables` on top."""
    return merged(merged(SMALL, {"source": {"uri": uri}}), tables)


def write_toml(path, tables):
    """A config file."""
    lines = []
    for table, keys in tables.items():
        lines += [f"[{table}]", *(f"{key} = {toml_value(value)}" for key, value in keys.items())]
    path.write_text("\n".join(lines) + "\n")
    return path


def random_frames(seed, count, height=16, width=24, channels=3):
    """[count,H,W,C] bytes."""
    return numpy.random.default_rng(seed).integers(0, 256, (count, height, width, channels), numpy.uint8)


def frames_with_an_event(frames=slice(380, 383)):
    """400 frames as noisy as a camera's, of which some are as they never were."""
    pictures = random_frames(1, 400, 16, 16) // 8 + 64
    pictures[frames] = 255 - pictures[frames]
    return pictures


def tensors_of(path):
    """A safetensors file's tensors as (names and shapes, bytes), without the metadata of its run."""
    data = path.read_bytes()
    end = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:end])
    del header["__metadata__"]
    return header, data[end:]


def lines_of(log):
    """The objects of a file of JSON, one a line."""
    return [json.loads(line) for line in log.read_text().splitlines()]


def write_frames(folder, frames):
    """Writes numbered PNGs and returns their URI."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, frame in enumerate(frames):
        write_png(folder / f"{number:05d}.png", frame)
    return f"images:{folder}/%05d.png"


def write_png(path, pixels):
    """Writes [H,W,1] grey or [H,W,3] RGB bytes."""
    Image.fromarray(pixels.squeeze(2) if pixels.shape[2] == 1 else pixels).save(path)


def png_size(path):
    """(width, height)"""
    with Image.open(path, formats=["PNG"]) as picture:
        return picture.size


class CliTest(unittest.TestCase):
    """Has a folder of its own; asserts what holds for every call."""

    def setUp(self):
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory(prefix="millrace-")))

    def write(self, tables, name="config.toml"):
        return write_toml(self.folder / name, tables)

    def report(self, name="report.json"):
        """The report in that file; its frames are balanced."""
        report = json.loads((self.folder / name).read_text())
        self.assert_balanced(report)
        return report

    def assert_code(self, code, outcome):
        self.assertEqual(outcome.code, code, outcome)

    def succeed(self, *args, **options):
        """The outcome of a call that ends with 0."""
        outcome = call(*args, **options)
        self.assert_code(DONE, outcome)
        return outcome

    def assert_refused(self, code, outcome, *parts):
        """It ended with that code, an empty stdout and one line on stderr that holds every part."""
        self.assert_code(code, outcome)
        self.assertEqual(outcome.out, "", outcome)
        self.assert_one_error(outcome, *parts)

    def assert_each_refused(self, cases, code=BAD_USAGE):
        """Each case: a command's words, then what its error holds."""
        cases = list(cases)
        for (command, *parts), outcome in zip(cases, call_all([command for command, *_ in cases])):
            with self.subTest(command):
                self.assert_refused(code, outcome, *parts)

    def assert_refuses(self, command, tables, *parts, code=BAD_USAGE):
        """`check` or `run`, of a config of `tables`."""
        self.assert_refused(code, call(command, self.write(tables)), *parts)

    def reported(self, *words, code=DONE, trained=None, **options):
        """(report, outcome) of a command that ends so and, where that is asked, learns from so many frames."""
        (self.folder / "report.json").unlink(missing_ok=True)
        outcome = call(*words, "--report", self.folder / "report.json", **options)
        self.assert_code(code, outcome)
        report = self.report()
        self.assertEqual(report["frames"]["trained"] if trained else None, trained, outcome)
        return report, outcome

    def assert_one_error(self, outcome, *parts):
        self.assertEqual(len(outcome.err.splitlines()), 1, outcome)
        self.assert_error_among(outcome.err, *parts)

    def assert_error_among(self, err, *parts):
        """One line of `err` is an error, and it holds every part."""
        errors = [line for line in err.splitlines() if line.startswith("millrace: error: ")]
        self.assertEqual(len(errors), 1, err)
        for part in parts:
            self.assertIn(str(part), errors[0])

    def learn(self, tables, *options, **expected):
        """reported() of `millrace run` of the bare rule with a config of `tables`."""
        output = {"weights": self.folder / "out.safetensors", **tables.get("output", {})}
        return self.reported("run", self.write({**bare(tables), "output": output}), "--quiet", *options, **expected)

    def ends(self, process):
        """`process`, which ends with the test if not before."""
        self.addCleanup(self.end, process)
        return process

    def spawn(self, command, env=None, stderr=subprocess.PIPE):
        """Any command at work, its output in pipes."""
        return self.ends(subprocess.Popen(list(map(str, command)), env=env, text=True, stdin=subprocess.DEVNULL,
                                          stdout=subprocess.PIPE, stderr=stderr))

    def service(self, watchdog_us):
        """(the socket at which a service manager hears, the environment that tells a run of it)"""
        heard = self.enterContext(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
        heard.bind(str(self.folder / "notify"))
        heard.settimeout(60)
        return heard, {"NOTIFY_SOCKET": str(self.folder / "notify"), "WATCHDOG_USEC": str(watchdog_us)}

    def start_run(self, config, *options):
        """`millrace run` on an endless source, after its first progress line."""
        process = self.ends(start("run", config, *options))
        self.read_until(process, "frame ")
        return process

    def read_until(self, process, begin):
        """The rest of the next line on stderr that begins so."""
        for line in iter(process.stderr.readline, ""):
            if line.startswith(begin):
                return line.removeprefix(begin).rstrip("\n")
        self.fail(f"it ended before it wrote {begin!r}")

    def stop(self, process, number=signal.SIGINT, code=DONE):
        """Sends a signal and waits for the end; returns (stdout, stderr)."""
        process.send_signal(number)
        return self.finish(process, code)

    def finish(self, process, code=DONE):
        out, err = process.communicate(timeout=120)
        self.assertEqual(process.returncode, code, err)
        return out, err

    def wait_until(self, what, text="it does not come", process=None):
        """Waits until what() is true, for at most two minutes, while `process` is alive; returns what it gave."""
        end = time.monotonic() + 120
        while not (result := what()):
            if process:
                self.assertIsNone(process.poll(), text)
            self.assertLess(time.monotonic(), end, text)
            time.sleep(0.02)
        return result

    def end(self, process):
        if process.poll() is None:
            process.kill()
        process.wait()
        for stream in filter(None, (process.stdout, process.stderr)):
            stream.close()

    def assert_accounted(self, frames):
        """received = trained + dropped + rejected + in_flight."""
        fates = [frames[fate] for fate in ("trained", "dropped", "rejected", "in_flight")]
        self.assertEqual(frames["received"], sum(fates), frames)
        self.assertGreaterEqual(min(fates), 0, frames)

    def assert_balanced(self, report):
        """So it is, and nothing is in flight."""
        self.assert_accounted(report["frames"])
        self.assertEqual(report["frames"]["in_flight"], 0, report["frames"])
