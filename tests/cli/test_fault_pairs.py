"""Two faults at once, of disk, memory or time: the run ends with what it may end with, and every file is whole."""

import os
import random
import signal
import unittest
from collections import Counter
from pathlib import Path

import program
from keeping import LONG, figure
from test_faults import FaultTest

SINGLES = int(os.environ.get("MILLRACE_SINGLES", 60 if LONG else 1))  # of each kind
PAIRS = int(os.environ.get("MILLRACE_PAIRS", 300 if LONG else 8))
# By what is counted, in the order of the file "calls".
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
        return f"{tries} runs ended {ends}; what came: {came}; every file whole, each failure told once"

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
            self.try_faults(*map(self.any_fault, self.chance.choice(pairs) if not LONG else pairs[number % len(pairs)]))
        figure("two faults of disk, memory or time", self.told(self.codes.total()))


if __name__ == "__main__":
    unittest.main()
