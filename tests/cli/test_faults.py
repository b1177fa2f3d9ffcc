"""Whatever happens to disk, power or process: what was learned stays, and every file is whole."""

import ctypes
import filecmp
import json
import os
import random
import select
import shutil
import signal
import subprocess
import time
import unittest
from pathlib import Path

from safetensors.torch import load_file

import program
from forked import ForkedProgram, ForkServer
from keeping import EVERY, FPS, KILLS, MODEL, NEWEST, PREVIOUS, KeepingTest, figure, frames_logged, frames_of

FRAMES = 30
FILES = (NEWEST, PREVIOUS, "weights.safetensors", "report.json", "loss.png")


@unittest.skipUnless(os.environ.get("FORK_SERVER"), "no fork server under a sanitizer")
class FaultTest(program.CliTest):
    @classmethod
    def setUpClass(cls):
        cls.server = ForkServer(program.MILLRACE, os.environ["FORK_SERVER"] + ":" + os.environ["FAULT_SHIM"])

    def setUp(self):
        super().setUp()
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(self.folder)  # where the shim finds its plan
        self.out = self.folder / "out"
        self.out.mkdir()
        uri = program.write_frames(self.folder / "frames", program.random_frames(seed=5, count=FRAMES))
        self.tables = program.bare(program.small(
            uri, source={"pace": "asap"}, model=MODEL, pipeline={"schedule": "sequential", "capture": "eager"},
            optimizer={"kind": "adam", "lr": 0.01}, checkpoint={"dir": self.out, "every": EVERY},
            output={"report": self.out / "report.json", "weights": self.out / "weights.safetensors",
                    "log": self.out / "log.jsonl", "log_every": 10, "loss_plot": self.out / "loss.png"}))
        self.config = self.write(self.tables)

    def start(self, *options):
        return self.ends(ForkedProgram(
            self.server,
            [program.MILLRACE, "run", str(self.config), "--quiet", *map(str, options)],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))

    def run_with(self, *faults, below=None):
        """A run with these faults: number, kind, number, kind..., of calls on files below that folder."""
        Path("fault").write_text(f"{below or self.out} {' '.join(map(str, faults))}")
        process = self.start()
        out, err = process.communicate(timeout=60)
        return program.Outcome(process.returncode, out, err)

    def numbers(self):
        """Which calls fail: every fifth, or all in the long run."""
        self.assert_code(program.DONE, self.run_with(0, "count"))
        return range(1, int(Path("calls").read_text().split()[0]) + 1, 1 if program.LONG else 5)

    def assert_all_whole(self, trained=FRAMES):
        """Every file was there before, so it is there now, as it was or replaced as a whole; `trained`: frames at least."""
        for name in FILES:
            file = self.out / name
            self.assertTrue(file.exists(), name)
            if name.endswith(".safetensors"):
                load_file(file)
            elif name.endswith(".json"):
                frames = json.loads(file.read_text())["frames"]
                self.assert_accounted(frames)
                self.assertGreaterEqual(frames["trained"], trained)
            else:
                self.assertTrue(file.read_bytes().endswith(b"IEND\xaeB`\x82"), name)


class Faults(FaultTest):
    def test_any_call_that_writes_may_fail(self):
        kinds = ("enospc", "eio", "erofs", "short")
        numbers, runs = self.numbers(), 0
        for number in numbers:
            for kind in kinds if program.LONG else [kinds[number // 5 % 4]]:
                with self.subTest(call=number, kind=kind):
                    (self.out / "log.jsonl").unlink(missing_ok=True)
                    outcome = self.run_with(number, kind)
                    runs += 1
                    self.assertIn(outcome.code, (program.DONE, program.FAILED), outcome)
                    self.assert_all_whole()
                    self.assertEqual([n for n in os.listdir(self.out) if ".tmp." in n], [])
                    told = outcome.err.splitlines()
                    errors = [line for line in told if line.startswith("millrace: error: ")]
                    self.assertEqual(len(errors), 1 if outcome.code == program.FAILED else 0, outcome)
                    if kind == "short":
                        self.assertEqual(told, [], "the rest of a short write is written")
                    self.assertLessEqual(len([line for line in told if line.startswith("checkpoint: /")]), 1)
        figure("write calls that failed", f"{runs} runs, in each of which one of {numbers[-1]} calls failed: ENOSPC, EIO, EROFS or a short write")

    def test_the_power_may_go_at_any_call_that_writes(self):
        numbers = self.numbers()
        shutil.copytree(self.out, "before")
        for number in numbers:
            with self.subTest(call=number):
                shutil.rmtree(self.out)
                shutil.copytree("before", self.out)
                self.assert_code(99, self.run_with(number, "power"))
                self.assert_all_whole()
        figure("power cuts", f"{len(numbers)} cuts, one at each call; each discards everything not synced")

    def test_killed_at_any_moment_it_goes_on(self):
        self.write(program.merged(self.tables, {
            "source": {"pace": "live", "fps": FPS, "drop": "never", "loop": True},
            "checkpoint": {"resume": True}, "output": {"log_every": 1}}))
        chance, learned, most, largest, compared = random.Random(7), 0, 0, 0, 0
        for kill in range(KILLS):
            with self.subTest(kill=kill):
                if learned:
                    shutil.copy(self.out / NEWEST, "before.safetensors")
                told = self.kill_a_run(chance)
                load_file(self.out / PREVIOUS) if kill else None
                now = frames_of(self.out / NEWEST)
                self.assertGreater(now, learned, "it starts from scratch")
                # The newest checkpoint may have been half written.
                self.assertGreaterEqual(now, told // EVERY * EVERY - EVERY, "more than an interval is lost")
                most = max(most, told - now)
                largest = max(largest, sum(file.stat().st_size for file in self.out.iterdir()))
                if program.LONG or kill % 5 == 0:
                    self.assert_bit_exact(learned, now)
                    compared += 1
                learned = now
        self.assertLess(largest, 4 * (self.out / NEWEST).stat().st_size + (1 << 20), "disk use is bounded")
        figure(f"kill -9, {KILLS} times", f"{KILLS} kills, {KILLS} resumes, {learned} frames in all; a checkpoint every {EVERY} frames, at most {most} "
                          f"frames lost; after {compared} kills the frames since the resume were trained again without a kill: "
                          f"bit-identical; at most {largest} bytes on disk")

    def kill_a_run(self, chance):
        """Kills a run after its first checkpoint; returns how many frames its log has lines about."""
        log = self.out / "log.jsonl"
        log.unlink(missing_ok=True)
        before = self.newest()
        process = self.start()
        self.wait_until(lambda: self.newest() != before, "no checkpoint is written", process)
        time.sleep(chance.uniform(0, 2 * EVERY / FPS))  # some more intervals
        _, err = self.stop(process, signal.SIGKILL, -signal.SIGKILL)
        self.assertEqual(err, "", "a checkpoint was damaged")
        return frames_logged(log)

    def newest(self):
        try:
            return (self.out / NEWEST).stat().st_ino
        except FileNotFoundError:
            return 0

    def assert_bit_exact(self, learned, now):
        """From the checkpoint before, the same frames without a kill give the same bits."""
        again = self.folder / f"again{now}"  # its own folder, so that a failure disturbs no later kill
        again.mkdir()
        if learned:
            shutil.copy("before.safetensors", again / NEWEST)
        options = {"checkpoint": {"dir": again, "every": 0}, "source": {"pace": "asap"},
                   "output": {"report": "", "weights": "", "log": "", "loss_plot": ""}}
        self.finish(self.start("--frames", now - learned, *program.settings(options)))
        self.assertEqual(program.tensors_of(self.out / NEWEST), program.tensors_of(again / NEWEST))
        shutil.rmtree(again)

    def test_too_few_threads_end_in_a_line(self):
        for number in range(6):
            with self.subTest(threads=number):
                self.assert_refused(program.FAILED, self.run_with(number, "threads"), "threads")
        figure("too few threads", "0 to 5 besides the first: the run ends with one line before it opens anything")

    def test_a_silent_name_service_keeps_nothing_from_being_saved(self):
        uri = program.write_frames(self.folder / "events", program.frames_with_an_event())
        Path("fault").write_text(f"{self.out} 0 names")
        for to, state in (({"mqtt": "mqtt://broker.example"}, {}),
                          ({"webhook": "http://camera.example/"}, {"broker": "mqtt://broker.example"})):
            with self.subTest(to=to, state=state):
                self.write(program.bare({
                    "source": {"uri": uri, "width": 16, "height": 16, "pace": "asap", "fps": 10.0}, "pipeline": {"stages": 1},
                    "model": {"layers": 2, "features": 4, "kernel": 3}, "novelty": {"minimum": 1, **to}, "mqtt": state,
                    "output": {"weights": self.out / "weights.safetensors", "report": self.out / "report.json"}}))
                _, err = self.start().communicate(timeout=120)
                load_file(self.out / "weights.safetensors")
                alerts = json.loads((self.out / "report.json").read_text())["novelty"]["alerts"]
                self.assertEqual(alerts["failed"], 1, err)
        figure("a name service that never answers", "webhook and MQTT: everything is saved; the alert counts as failed")


class Wedge(KeepingTest):
    """A stage's thread that stands still, as in a driver that never returns."""

    SEIZE, INTERRUPT = 0x4206, 0x4207

    @unittest.skipUnless(program.LONG, "takes half a minute")
    def test_a_wedged_stage_costs_at_most_an_interval(self):
        notify, environment = self.service(2_000_000)
        config = self.write(self.tables(output={"weights": "", "report": ""}))
        began = time.monotonic()
        process = self.ends(program.start("run", config, "--quiet", env=environment))
        self.wait_until((self.kept / NEWEST).exists, "no checkpoint is written", process)
        worker = self.stop_a_worker(process.pid)
        while notify.recv(4096) and select.select([notify], [], [], 3)[0]:
            self.assertLess(time.monotonic() - began, 200, "the watchdog still hears that all is well")
        asked = time.monotonic()
        process.send_signal(signal.SIGTERM)  # as systemd does when the watchdog hears nothing
        # The tracer of a thread must reap it, too.
        while not self.is_over(worker) and time.monotonic() < asked + 120:
            time.sleep(0.1)
        took = time.monotonic() - asked
        _, err = self.finish(process, program.FAILED)
        self.assertIn("stuck", err.splitlines()[-1])
        load_file(self.kept / NEWEST)
        self.assert_code(program.DONE, program.call("run", config, "--quiet", "--frames", "20"))
        figure("wedged stage", f"stopped notifying the watchdog at once, ended {took:.0f} s after SIGTERM, resumed from its last checkpoint")

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
        self.fail("no worker thread")


FAKE_TIME = Path("/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1")


class WallClock(program.CliTest):
    @unittest.skipUnless(FAKE_TIME.exists(), "no libfaketime")
    def test_steps_of_the_wall_clock_change_no_age_and_no_pace(self):
        clock, log = self.folder / "clock", self.folder / "log.jsonl"
        clock.write_text("+0")
        config = self.write(program.bare(program.small(
            source={"pace": "live", "fps": 100.0},
            output={"report": self.folder / "report.json", "log": log, "log_every": 1})))
        process = self.ends(program.start("run", config, "--quiet", env={
            "LD_PRELOAD": os.environ.get("PRELOAD_FIRST", "") + str(FAKE_TIME), "FAKETIME_TIMESTAMP_FILE": str(clock),
            "FAKETIME_NO_CACHE": "1", "FAKETIME_DONT_FAKE_MONOTONIC": "1"}))
        self.wait_until(log.exists, "nothing is logged", process)
        for step in ("+0", "+1h", "-1h", "+0"):
            clock.write_text(step)
            enough = frames_logged(log) + 70
            self.wait_until(lambda: frames_logged(log) >= enough, "the pace follows the wall clock", process)
        self.stop(process)
        report = self.report()
        self.assertLess(report["latency_ms"]["max"], 600e3, "an age that a step of the clock made")
        self.assertLess(report["run"]["duration_s"], 1800)
        self.assertLess(report["frames"]["received"], 100 * report["run"]["duration_s"] + 100, "an hour's frames at once")
        figure("wall clock", f"moved an hour forward and back: latency at most {report['latency_ms']['max']:.0f} ms, "
                             f"{report['frames']['received']} frames in {report['run']['duration_s']:.1f} s")


CUTS = int(os.environ.get("MILLRACE_CUTS", 300 if program.LONG else 6))


@unittest.skipUnless(os.geteuid() == 0 and Path("/dev/loop-control").exists() and shutil.which("mkfs.ext4"),
                     "only root can mount a disk")
class PowerCut(KeepingTest):
    """A file system in a file: a power cut takes whatever it has not yet written to that file."""

    def mount(self, image, name):
        there = self.folder / name
        there.mkdir(exist_ok=True)
        done = subprocess.run(["mount", "-o", "loop", image, there], capture_output=True, text=True)
        if done.returncode != 0:
            self.skipTest(done.stderr.strip())
        return there

    def begin(self):
        self.image = self.folder / "image"
        with open(self.image, "wb") as file:
            file.truncate(16 << 20)
        subprocess.run(["mkfs.ext4", "-q", "-F", self.image], check=True, capture_output=True)
        self.disk = self.mount(self.image, "disk")
        self.addCleanup(subprocess.run, ["umount", "-l", self.disk], stderr=subprocess.DEVNULL)
        self.config = self.write(self.tables(
            source={"fps": FPS}, pipeline={"schedule": "sequential", "capture": "eager"},
            checkpoint={"dir": self.disk / "kept"}, output={"log": self.folder / "log.jsonl", "log_every": 1}))
        self.process = self.ends(program.start("run", self.config, "--quiet"))
        self.wait_until((self.disk / "kept" / PREVIOUS).exists, "no checkpoint is written", self.process)

    def cut(self):
        """The disk as the power leaves it; how many frames had certainly been learned, and how many of them kept: a
        checkpoint is the previous one only after it was synced."""
        told = frames_logged(self.folder / "log.jsonl")
        synced = frames_of(self.disk / "kept" / PREVIOUS)
        self.process.send_signal(signal.SIGSTOP)
        left = self.folder / "left"
        shutil.copyfile(self.image, left)
        while not filecmp.cmp(self.image, left, shallow=False):  # the kernel wrote meanwhile
            shutil.copyfile(self.image, left)
        self.process.send_signal(signal.SIGCONT)
        return left, told, synced

    def look_after(self, left, told, synced, goes_on):
        """Both checkpoints are whole, and a run continues from the newest; returns how many frames were lost."""
        there = self.mount(left, "after")
        try:
            kept = there / "kept"
            now = frames_of(kept / NEWEST)
            self.assertGreaterEqual(now, synced, "what was synced is lost")
            for name in (NEWEST, PREVIOUS):
                load_file(kept / name)
            if goes_on:
                options = {"checkpoint": {"dir": kept}, "output": {"log": ""}, "source": {"pace": "asap"}}
                outcome = self.succeed("run", self.config, "--quiet", "--frames", "5", *program.settings(options))
                self.assertEqual(outcome.err, "", "it fell back")
                self.assertEqual(frames_of(kept / NEWEST), now + 5)
                self.assertEqual({file.name for file in kept.iterdir()}, {NEWEST, PREVIOUS}, "the cut left something behind")
            return told - now
        finally:
            subprocess.run(["umount", there], check=True)

    def test_what_was_synced_is_enough(self):
        self.begin()
        chance, most = random.Random(3), 0
        for number in range(CUTS):
            with self.subTest(cut=number):
                time.sleep(chance.uniform(0, EVERY / FPS))
                left, told, synced = self.cut()
                most = max(most, self.look_after(left, told, synced, number % 3 == 0))
        figure(f"power cuts below ext4, {CUTS} times", f"{CUTS} cuts of a disk that loses what was not synced; every checkpoint complete, one "
                                        f"every {EVERY} frames, at most {most} frames lost")
