"""What the tests of lost power, killed processes and full disks share."""

import json
import os

from safetensors import safe_open
from safetensors.torch import load_file

import program

KILLS = int(os.environ.get("MILLRACE_KILLS", 1000 if program.LONG else 12))
EVERY = 10  # frames from checkpoint to checkpoint
# So slow that a checkpoint is written before the next is due, unless the disk takes half a second.
FPS = 20
NEWEST, PREVIOUS = "checkpoint.safetensors", "checkpoint.previous.safetensors"
MODEL = {"layers": 3, "features": 4, "kernel": 3}


def figure(name, text):
    """Appends a figure for docs/reliability.md to the file MILLRACE_FIGURES, if that is set."""
    if "MILLRACE_FIGURES" in os.environ:
        with open(os.environ["MILLRACE_FIGURES"], "a") as file:
            file.write(json.dumps({name: text}) + "\n")


def frames_of(checkpoint):
    """How many frames a checkpoint was made after; 0 if there is none."""
    if not checkpoint.exists():
        return 0
    with safe_open(checkpoint, "pt") as file:
        return int(file.metadata()["frames"])


def frames_logged(log):
    """How many frames a log with log_every = 1 has whole lines about."""
    whole = log.read_text().rpartition("\n")[0].splitlines()
    return json.loads(whole[-1])["frame"] + 1 if whole else 0


class KeepingTest(program.CliTest):
    """Runs that keep checkpoints in a folder that can go away."""

    def setUp(self):
        super().setUp()
        self.kept = self.folder / "kept"
        self.weights = self.folder / "out.safetensors"

    def tables(self, **tables):
        return program.bare(program.small(**program.merged({
            "source": {"pace": "live", "fps": 100.0}, "model": MODEL,
            "checkpoint": {"dir": self.kept, "every": EVERY, "resume": True},
            "output": {"weights": self.weights, "report": self.folder / "report.json"}}, tables)))

    def learned(self):
        return frames_of(self.kept / NEWEST)

    def wait_for_more(self, process):
        before = self.learned()
        self.wait_until(lambda: self.learned() > before + EVERY, "no checkpoint is written", process)

    def break_disk(self):
        self.kept.rename(self.folder / "aside")
        self.kept.write_text("no folder")  # not even root can write there

    def mend_disk(self):
        self.kept.unlink()
        (self.folder / "aside").rename(self.kept)

    def assert_saved(self):
        self.report()
        load_file(self.weights)
