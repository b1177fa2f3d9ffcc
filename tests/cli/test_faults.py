"""Whatever happens to disk, power or process: what was learned stays, and what is there is whole."""

import ctypes
import json
import os
import random
import select
import shutil
import signal
import socket
import subprocess
import time
import unittest
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import load_file

import program
from forked import ForkServer

LONG = "MILLRACE_LONG" in os.environ
KILLS = int(os.environ.get("MILLRACE_KILLS", 1000 if LONG else 12))
FRAMES, EVERY = 30, 10
# So slow that a checkpoint is written before the next is due, wherever a disk takes less than a second.
FPS = 20
NEWEST, PREVIOUS = "checkpoint.safetensors", "checkpoint.previous.safetensors"


def figure(name, text):
    """Kept for docs/reliability.md, where somebody wants it."""
    if "MILLRACE_FIGURES" in os.environ:
        with open(os.environ["MILLRACE_FIGURES"], "a") as file:
            file.write(json.dumps({name: text}) + "\n")


def frames_of(checkpoint):
    """Frames that it was made after."""
    with safe_open(checkpoint, "pt") as file:
        return int(file.metadata()["frames"])


@unittest.skipUnless(os.environ.get("FORK_SERVER"), "no fork server under a sanitizer")
class FaultTest(program.CliTest):

    @classmethod
    def setUpClass(cls):
        cls.server = ForkServer(program.MILLRACE, os.environ["FORK_SERVER"] + ":" + os.environ["FAULT_SHIM"])

    def setUp(self):
        super().setUp()
        here = os.getcwd()
        self.addCleanup(os.chdir, here)
        os.chdir(self.folder)  # where the shim finds its plan
        self.out = self.folder / "out"
        self.out.mkdir()
        uri = program.write_frames(self.folder / "frames", program.random_frames(seed=5, count=FRAMES))
        self.config = program.write_toml(self.folder / "config.toml", program.bare({
            "source": {"uri": uri, "width": 24, "height": 16, "pace": "asap"},
            "model": {"layers": 3, "features": 4, "kernel": 3},
            "pipeline": {"schedule": "sequential", "stages": 2, "cut": [2], "capture": "eager"},
            "optimizer": {"kind": "adam", "lr": 0.01},
            "checkpoint": {"dir": self.out, "every": EVERY},
            "output": {"report": self.out / "report.json", "weights": self.out / "weights.safetensors",
                       "log": self.out / "log.jsonl", "log_every": 10, "loss_plot": self.out / "loss.png"}}))

    def run_with(self, number, kind):
        Path("fault").write_text(f"{self.out} {number} {kind}")
        process = self.server.popen([program.MILLRACE, "run", str(self.config), "--quiet"],
                                    stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        out, err = process.communicate(timeout=60)
        return program.Outcome(process.returncode, out, err)

    def calls(self):
        outcome = self.run_with(0, "count")
        self.assert_code(program.DONE, outcome)
        return int(Path("calls").read_text())

    def numbers(self):
        """Which calls are to fail: every one in the long run."""
        return range(1, self.calls() + 1, 1 if LONG else 5)

    def assert_whole(self, name):
        """That file is all there, or not at all."""
        file = self.out / name
        if not file.exists():
            return False
        if name.endswith(".safetensors"):
            load_file(file)
        elif name.endswith(".json"):
            self.assertEqual(json.loads(file.read_text())["frames"]["trained"], FRAMES)
        else:
            self.assertTrue(file.read_bytes().endswith(b"IEND\xaeB`\x82"), name)
        return True


class WriteFaults(FaultTest):

    def test_any_call_that_writes_may_fail(self):
        kinds = ("enospc", "eio", "erofs", "short")
        numbers, runs = self.numbers(), 0
        for number in numbers:
            for kind in kinds if LONG else [kinds[number // 5 % 4]]:
                with self.subTest(call=number, kind=kind):
                    (self.out / "log.jsonl").unlink(missing_ok=True)
                    outcome = self.run_with(number, kind)
                    runs += 1
                    self.assertIn(outcome.code, (program.DONE, program.FAILED), outcome)
                    # What was there stays, or is replaced as a whole; and something was there.
                    for name in (NEWEST, PREVIOUS, "weights.safetensors", "report.json", "loss.png"):
                        self.assertTrue(self.assert_whole(name), name)
                    self.assertEqual([n for n in os.listdir(self.out) if ".tmp." in n], [])
                    told = outcome.err.splitlines()
                    errors = [line for line in told if line.startswith("millrace: error: ")]
                    self.assertEqual(len(errors), 1 if outcome.code == program.FAILED else 0, outcome)
                    if kind == "short":
                        self.assertEqual(told, [], "the rest of a short write is written")
                    self.assertLessEqual(len([line for line in told if line.startswith("checkpoint: /")]), 1)
        figure("write calls that failed", f"{runs} runs, one of {numbers[-1]} calls in each, by ENOSPC, EIO, EROFS or a short write")

    def test_the_power_may_go_at_any_call_that_writes(self):
        numbers = self.numbers()
        shutil.copytree(self.out, "before")
        for number in numbers:
            with self.subTest(call=number):
                shutil.rmtree(self.out)
                shutil.copytree("before", self.out)
                outcome = self.run_with(number, "power")
                self.assert_code(99, outcome)
                for name in (NEWEST, PREVIOUS, "weights.safetensors", "report.json", "loss.png"):
                    self.assertTrue(self.assert_whole(name), name)
        figure("power cuts", f"{len(numbers)} cuts, one at each call, with all that was not synced gone")


class Kills(FaultTest):

    def test_killed_at_any_moment_it_goes_on(self):
        text = self.config.read_text().replace(
            'pace = "asap"', f'pace = "live"\nfps = {FPS}.0\ndrop = "never"\nloop = true').replace("log_every = 10", "log_every = 1")
        self.config.write_text(text.replace("[checkpoint]", "[checkpoint]\nresume = true"))
        chance, learned, most, largest, compared = random.Random(7), 0, 0, 0, 0
        for kill in range(KILLS):
            with self.subTest(kill=kill):
                if learned:
                    shutil.copy(self.out / NEWEST, "before.safetensors")
                told = self.kill_a_run(chance)
                load_file(self.out / PREVIOUS) if kill else None
                now = frames_of(self.out / NEWEST)
                self.assertGreater(now, learned, "it does not go on from what it had learned")
                # The checkpoint that was last due may have been under way.
                self.assertGreaterEqual(now, told // EVERY * EVERY - EVERY, "more than an interval is lost")
                most = max(most, told - now)
                largest = max(largest, sum(file.stat().st_size for file in self.out.iterdir()))
                if LONG or kill % 5 == 0:
                    self.assert_bit_exact(learned, now)
                    compared += 1
                learned = now
        self.assertLess(largest, 4 * (self.out / NEWEST).stat().st_size + (1 << 20), "disk use is bounded")
        figure(f"kill -9, {KILLS} times", f"{KILLS} kills, {KILLS} resumes, {learned} frames learned over all; a checkpoint every {EVERY} frames, {most} "
                          f"frames at most lost; {compared} times what was learned since the resume was learned again without a kill: "
                          f"the same bits; {largest} bytes at most on disk")

    def kill_a_run(self, chance):
        """A run, killed after its first checkpoint; how many frames its log tells of."""
        log = self.out / "log.jsonl"
        log.unlink(missing_ok=True)
        process = self.server.popen([program.MILLRACE, "run", str(self.config), "--quiet"],
                                    stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        before = self.newest()
        for _ in range(12000):
            if self.newest() != before or process.poll() is not None:
                break
            time.sleep(0.01)
        time.sleep(chance.uniform(0, 2 * EVERY / FPS))  # some intervals more
        process.kill()
        _, err = process.communicate(timeout=60)
        self.assertEqual(process.returncode, -signal.SIGKILL, err)
        self.assertEqual(err, "", "a checkpoint was damaged")
        whole = log.read_text().rpartition("\n")[0].splitlines()
        return json.loads(whole[-1])["frame"] + 1 if whole else 0

    def newest(self):
        try:
            return (self.out / NEWEST).stat().st_ino
        except FileNotFoundError:
            return 0

    def assert_bit_exact(self, learned, now):
        """From the checkpoint before, the same frames without a kill end at the same bits."""
        again = self.folder / f"again{now}"  # one that fails is in no other's way
        again.mkdir()
        if learned:
            shutil.copy("before.safetensors", again / NEWEST)
        options = {"checkpoint": {"dir": again, "every": 0}, "source": {"pace": "asap"},
                   "output": {"report": "", "weights": "", "log": "", "loss_plot": ""}}
        process = self.server.popen(
            [program.MILLRACE, "run", str(self.config), "--quiet", "--frames", str(now - learned), *program.settings(options)],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        _, err = process.communicate(timeout=600)
        self.assertEqual(process.returncode, program.DONE, err)
        killed, whole = load_file(self.out / NEWEST), load_file(again / NEWEST)
        self.assertEqual(killed.keys(), whole.keys())
        for name, value in killed.items():
            self.assertTrue(torch.equal(value, whole[name]), name)
        shutil.rmtree(again)


class Wedge(program.CliTest):
    """A stage's thread that stands still, as in a driver that never returns."""

    SEIZE, INTERRUPT = 0x4206, 0x4207

    @unittest.skipUnless(LONG, "takes half a minute")
    def test_a_wedged_stage_costs_an_interval_and_no_more(self):
        there = self.folder / "state"
        notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.addCleanup(notify.close)
        notify.bind(str(self.folder / "notify"))
        config = program.write_toml(self.folder / "config.toml", program.bare({
            "source": {"uri": "synth:shapes", "width": 24, "height": 16, "pace": "live", "fps": 100.0},
            "model": {"layers": 3, "features": 4, "kernel": 3}, "pipeline": {"stages": 2, "cut": [2]},
            "checkpoint": {"dir": there, "every": 10, "resume": True}}))
        began = time.monotonic()
        process = program.start("run", config, "--quiet",
                                env={"NOTIFY_SOCKET": str(self.folder / "notify"), "WATCHDOG_USEC": "2000000"})
        self.addCleanup(self.end, process)
        while not (there / NEWEST).exists():
            self.assertIsNone(process.poll())
            time.sleep(0.01)
        worker = self.stop_a_worker(process.pid)
        while notify.recv(4096) and select.select([notify], [], [], 3)[0]:
            self.assertLess(time.monotonic() - began, 200, "the watchdog goes on hearing that all is well")
        asked = time.monotonic()
        process.send_signal(signal.SIGTERM)  # as systemd does when the watchdog hears nothing
        # Whoever traces a thread has to bury it, too.
        while not self.is_over(worker) and time.monotonic() < asked + 120:
            time.sleep(0.1)
        took = time.monotonic() - asked
        _, err = process.communicate(timeout=60)
        self.assertEqual(process.returncode, program.FAILED, err)
        self.assertIn("wedged", err.splitlines()[-1])
        load_file(there / NEWEST)
        self.assert_code(program.DONE, program.call("run", config, "--quiet", "--frames", "20"))
        figure("wedged stage", f"silent to the watchdog at once, ended {took:.0f} s after SIGTERM, went on from its last checkpoint")

    def is_over(self, thread):
        done, status = os.waitpid(thread, os.WNOHANG | 0x40000000)  # __WALL
        return done == thread and not os.WIFSTOPPED(status)

    def stop_a_worker(self, process):
        libc = ctypes.CDLL(None, use_errno=True)
        for task in os.listdir(f"/proc/{process}/task"):
            if "worker" in Path(f"/proc/{process}/task/{task}/comm").read_text():
                self.assertEqual(libc.ptrace(self.SEIZE, int(task), 0, 0), 0)
                self.assertEqual(libc.ptrace(self.INTERRUPT, int(task), 0, 0), 0)
                return int(task)
        self.fail("no worker's thread")


FAKE_TIME = Path("/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1")


class WallClock(program.CliTest):

    @unittest.skipUnless(FAKE_TIME.exists(), "no libfaketime")
    def test_steps_of_the_wall_clock_change_no_age_and_no_pace(self):
        clock, log = self.folder / "clock", self.folder / "log.jsonl"
        clock.write_text("+0")
        config = program.write_toml(self.folder / "config.toml", program.bare({
            "source": {"uri": "synth:shapes", "width": 24, "height": 16, "pace": "live", "fps": 100.0},
            "model": {"layers": 2, "features": 2, "kernel": 3}, "pipeline": {"stages": 2, "cut": [2]},
            "output": {"report": self.folder / "report.json", "log": log, "log_every": 1}}))
        process = program.start("run", config, "--quiet", env={
            "LD_PRELOAD": os.environ.get("PRELOAD_FIRST", "") + str(FAKE_TIME), "FAKETIME_TIMESTAMP_FILE": str(clock),
            "FAKETIME_NO_CACHE": "1", "FAKETIME_DONT_FAKE_MONOTONIC": "1"})
        self.addCleanup(self.end, process)
        for step in ("+0", "+1h", "-1h", "+0"):
            clock.write_text(step)
            self.wait_for_frames(process, log, 70)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
        self.assertEqual(process.returncode, program.DONE, err)
        report = json.loads((self.folder / "report.json").read_text())
        self.assert_balanced(report)
        self.assertLess(report["latency_ms"]["max"], 600e3, "an age that a step of the clock made")
        self.assertLess(report["run"]["duration_s"], 1800)
        self.assertLess(report["frames"]["received"], 100 * report["run"]["duration_s"] + 100, "an hour's frames at once")
        figure("wall clock", f"an hour forth and back: latency {report['latency_ms']['max']:.0f} ms at most, "
                             f"{report['frames']['received']} frames in {report['run']['duration_s']:.1f} s")

    def wait_for_frames(self, process, log, count):
        lines = lambda: log.read_text().count("\n") if log.exists() else 0
        enough, end = lines() + count, time.monotonic() + 120
        while lines() < enough:
            self.assertIsNone(process.poll())
            self.assertLess(time.monotonic(), end, "the pace follows the wall clock")
            time.sleep(0.05)


if __name__ == "__main__":
    unittest.main()
