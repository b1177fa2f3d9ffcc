"""Two faults at once, of disk, memory or time: the run ends with what it may end with, and every file is whole."""

import contextlib
import itertools
import os
import random
import resource
import signal
import socket
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import program
from keeping import KeepingTest, figure
from servers import Camera, CameraRun, needs_rtsp
from test_faults import FaultTest

SINGLES = int(os.environ.get("MILLRACE_SINGLES", 60 if program.LONG else 1))  # of each kind
PAIRS = int(os.environ.get("MILLRACE_PAIRS", 300 if program.LONG else 8))
# Faults of each kind of counted call, in the order of the file "calls".
KINDS = {"writes": ("enospc", "eio", "erofs", "short", "slow"), "reads": ("unread", "late"),
         "waits": ("interrupted", "overslept"), "allocations": ("memory",)}
HARMLESS = {"short", "slow", "late", "interrupted", "overslept"}


class FaultPairs(FaultTest):
    def setUp(self):
        super().setUp()
        self.write(program.merged(self.tables, {"pipeline": {"schedule": "partime"}, "checkpoint": {"resume": False}}))
        self.assert_code(program.DONE, self.run_with(0, "count", below=self.folder))
        self.counts = dict(zip(KINDS, map(int, Path("calls").read_text().split())))
        self.chance, self.codes, self.fired = random.Random(11), Counter(), Counter()

    def start(self, *options):
        return super().start("--serve", "127.0.0.1:0", *options)

    def any_fault(self, kind):
        called = next(what for what, kinds in KINDS.items() if kind in kinds)
        return self.chance.randint(1, max(1, self.counts[called])), kind

    def try_faults(self, *faults):
        for file in (self.out / "log.jsonl", Path("fired")):
            file.unlink(missing_ok=True)
        told = " ".join(f"{kind} {number}" for number, kind in faults)
        with self.subTest(told):
            outcome = self.run_with(*(part for fault in faults for part in fault), below=self.folder)
            fired = Path("fired").read_text().split() if Path("fired").exists() else []
            self.fired.update(fired)
            self.codes[outcome.code] += 1
            self.assert_all_whole(trained=0)  # a frame that can't be read is rejected
            if "memory" in fired and outcome.code == -signal.SIGABRT and "GSlice: failed to allocate" in outcome.err:
                return  # GLib's way
            self.assertIn(outcome.code, (program.DONE, program.FAILED, program.BAD_USAGE, program.NO_SOURCE), outcome)
            if HARMLESS.issuperset(fired):
                self.assert_code(program.DONE, outcome)
            errors = [line for line in outcome.err.splitlines() if line.startswith("millrace: error: ")]
            self.assertEqual(len(errors), 0 if outcome.code == program.DONE else 1, outcome)

    def told(self, tries):
        ends = ", ".join(f"{count} with {code}" for code, count in sorted(self.codes.items()))
        came = ", ".join(f"{count} {kind}" for kind, count in sorted(self.fired.items()))
        return f"exit codes of {tries} runs: {ends}; faults injected: {came}; every file complete, each failure reported once"

    def test_one_fault_of_any_kind(self):
        for kinds in KINDS.values():
            for kind in kinds:
                for _ in range(SINGLES):
                    self.try_faults(self.any_fault(kind))
        figure("one fault of disk, memory or time", self.told(self.codes.total()))

    def test_two_faults_at_once(self):
        every = [kind for kinds in KINDS.values() for kind in kinds]
        pairs = [(first, second) for at, first in enumerate(every) for second in every[at + 1:]]
        for number in range(PAIRS):
            self.try_faults(*map(self.any_fault, self.chance.choice(pairs) if not program.LONG else pairs[number % len(pairs)]))
        figure("two faults of disk, memory or time", self.told(self.codes.total()))


@needs_rtsp
class PairsFromOutside(CameraRun, KeepingTest):
    """A camera over RTSP, the page, checkpoints and a log; two things happen at the same time, and it goes on."""

    def limit(self, what, number):
        resource.prlimit(self.process.pid, what, (number, 1 << 40 if what == resource.RLIMIT_FSIZE else 4096))

    def lose_the_camera(self):
        self.camera.stop()
        time.sleep(0.8)
        self.camera = Camera(self, "rate=50", port=self.camera.port)

    def reload(self, text=""):
        """Its config again, or this text."""
        self.write(self.tables_there)
        if text:
            (self.folder / "config.toml").write_text(text)
        self.process.send_signal(signal.SIGHUP)

    def crowd_the_page(self):
        for _ in range(60):
            one = socket.create_connection(("127.0.0.1", int(self.page.url.split(":")[2].strip("/"))), timeout=1)
            self.addCleanup(one.close)
            one.sendall(b"GET / HT")

    # Calls by name; a number is a pause in seconds between two of them.
    HAPPEN = {
        "stand still": (lambda self: self.process.send_signal(signal.SIGSTOP), 1.2,
                        lambda self: self.process.send_signal(signal.SIGCONT)),
        "lose descriptors": (lambda self: self.limit(resource.RLIMIT_NOFILE, 40), 0.3,
                             lambda self: self.limit(resource.RLIMIT_NOFILE, 4096)),
        "reach the limit of files": (lambda self: self.limit(resource.RLIMIT_FSIZE, 3000), 0.6,
                                     lambda self: self.limit(resource.RLIMIT_FSIZE, 1 << 40)),
        "lose the camera": (lose_the_camera,),
        "freeze the camera": (lambda self: self.camera.process.send_signal(signal.SIGSTOP), 1,
                              lambda self: self.camera.process.send_signal(signal.SIGCONT)),
        "lose the disk": (KeepingTest.break_disk, 0.7, KeepingTest.mend_disk),
        "read the config again": (reload,), "break the config": (lambda self: self.reload("["),),
        "crowd the page": (crowd_the_page,), "raise the rate": (lambda self: self.page.ask(learning_rate=100.0),),
        "pause and resume": (lambda self: self.page.ask(action="pause"), 0.5,
                             lambda self: self.page.ask(action="resume"))}

    def begin_some_frames(self):
        self.camera = Camera(self, "rate=50")
        self.tables_there = program.small(
            f"{self.camera.uri}/ball", source={"width": 48, "height": 32},
            checkpoint={"dir": self.kept, "every": 20, "resume": True},
            output={"weights": self.weights, "report": self.folder / "report.json", "log": self.folder / "log.jsonl", "log_every": 1})
        self.begin(self.tables_there)
        self.wait_until(lambda: self.page.trained() > 10, "nothing is trained", self.process)

    def test_two_things_happen_at_once(self):
        pairs = list(itertools.combinations(self.HAPPEN, 2))
        for pair in pairs if program.LONG else random.Random(5).sample(pairs, 2):
            with self.subTest(pair), ThreadPoolExecutor(2) as pool:
                self.begin_some_frames()
                list(pool.map(self.try_to, pair))
                learned = self.learned()
                self.wait_until(lambda: self.learned() > learned, "it does not go on", self.process)
                self.process.send_signal(signal.SIGTERM)
                code = self.process.wait(timeout=60)
                if "reach the limit of files" not in pair:  # by which the log is cut, a failure, and the only one
                    self.assertEqual(code, program.DONE)
                self.assertIn(code, (program.DONE, program.FAILED))
                self.assert_saved()
                self.camera.stop()
        figure("two things at once, from outside", f"{len(pairs)} pairs of {', '.join(self.HAPPEN)}: "
               "each run continues, shuts down cleanly, and everything is saved")

    def try_to(self, happen):
        for step in self.HAPPEN[happen]:
            with contextlib.suppress(OSError):  # the page refuses, since the other fault took the last descriptor
                step(self) if callable(step) else time.sleep(step)
