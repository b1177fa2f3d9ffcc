"""The power goes, and with it all that the disk was not told to keep: what was learned stays."""

import filecmp
import os
import random
import shutil
import signal
import subprocess
import time
import unittest
from pathlib import Path

from safetensors.torch import load_file

import program
from keeping import EVERY, FPS, MODEL, NEWEST, PREVIOUS, figure, frames_logged, frames_of

CUTS = int(os.environ.get("MILLRACE_CUTS", 300 if program.LONG else 6))


@unittest.skipUnless(os.geteuid() == 0 and Path("/dev/loop-control").exists() and shutil.which("mkfs.ext4"),
                     "only root can mount a disk")
class PowerCut(program.CliTest):
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
        self.config = self.write(program.bare(program.small(
            source={"pace": "live", "fps": FPS}, model=MODEL,
            pipeline={"schedule": "sequential", "capture": "eager"},
            checkpoint={"dir": self.disk / "kept", "every": EVERY, "resume": True},
            output={"log": self.folder / "log.jsonl", "log_every": 1})))
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
