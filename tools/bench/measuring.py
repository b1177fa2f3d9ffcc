"""Shared by the suites: questions to the C++ half, runs of the program, turns, medians and the machine's load."""

import contextlib
import functools
import json
import math
import os
import resource
import select
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
# The networks of the PARTIME paper's slides (by default ten convolutions of 16 features, kernel 5), and one more.
NETWORKS = {"basic": {}, "layers": {"layers": 30}, "features": {"features": 48}, "kernel": {"kernel": 15},
            "resnet18": {"preset": "resnet18"}}


class Failure(Exception):
    """Ends the program with one line and an exit code that scripts rely on."""

    def __init__(self, text, code=1):
        super().__init__(text)
        self.code = code


class Asked:
    """A running program that answers each line of JSON with another."""

    def __init__(self, *command, **how):
        try:
            self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, **how)
        except OSError as error:
            raise Failure(f"{command[0]}: {error.strerror}", 2) from error

    def ask(self, limit=None, **question):
        with contextlib.suppress(BrokenPipeError):  # then there is no answer
            print(json.dumps(question), file=self.process.stdin, flush=True)
        if limit is not None and not select.select([self.process.stdout], [], [], limit)[0]:
            raise Failure(f"stopped after {limit:.0f} s")
        answer = self.process.stdout.readline()
        if not answer:
            raise Failure(f"{' '.join(map(str, self.process.args))} ended with {self.process.wait()} at {str(question)[:200]}")
        return json.loads(answer)

    def close(self):
        with contextlib.suppress(BrokenPipeError):  # it has ended
            self.process.stdin.close()
        self.process.wait()


def serve(answer):
    """The other side of Asked. What libraries print goes to standard error."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))), file=answers, flush=True)


class Machine(Asked):
    """The C++ half: machine.turn(arm=..., seconds=...) asks it the question "turn" (measure.h)."""

    def __init__(self, program):
        self.millrace = Path(program).with_name("millrace")
        super().__init__(program)
        self.facts = self.machine()
        self.cores = self.facts["cores"]

    @functools.cached_property
    def link(self):
        return self.ask(question="link")  # takes seconds

    def __getattr__(self, question):
        return lambda **details: self.ask(question=question, **details)

    def ask(self, **question):
        if "arm" in question:
            question["arm"] = {**question["arm"], "network": NETWORKS[question["arm"]["network"]]}
        reply = super().ask(**question)
        if "error" in reply:
            raise Failure(reply["error"], reply["code"])
        return reply["answer"]

    def run(self, settings, frames, launcher=(), log=False):
        """The report of `millrace run`; with `log` also its log, one line per frame."""
        with tempfile.TemporaryDirectory() as folder:
            report, lines = Path(folder, "report.json"), Path(folder, "log.jsonl")
            if log:
                settings = {**settings, "output.log": lines, "output.log_every": 1}
            chosen = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
            call(*launcher, self.millrace, "run", "--quiet", "--frames", frames, "--report", report, *chosen)
            result = json.loads(report.read_text())
            return (result, [json.loads(line) for line in lines.read_text().splitlines()]) if log else result


def call(*command):
    """A command's output. A failing command ends the benchmark with its first line."""
    try:
        done = subprocess.run([str(word) for word in command], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    except OSError as error:
        raise Failure(f"{command[0]}: {error.strerror}") from error
    if done.returncode != 0:
        raise Failure(f"{command[0]}: {done.stderr.strip().partition(chr(10))[0] or done.returncode}")
    return done.stdout


def toml(layers):
    """A list of tables in one line, as `[[model.layer]]` takes it."""
    return json.dumps(layers, separators=(", ", " = "))


class OtherLoad:
    """CPU time of other programs and of a hypervisor's other guests, in kernel ticks of about 10 ms."""

    def __init__(self, machine):
        self.machine = machine
        self.begin, self.before = time.monotonic(), self.seconds()

    def cores(self):
        """Cores kept busy by others so far."""
        return max(0.0, self.seconds() - self.before) / (time.monotonic() - self.begin)

    def seconds(self):
        tick = os.sysconf("SC_CLK_TCK")
        user, nice, system, _, _, irq, softirq, steal = map(int, Path("/proc/stat").read_text().split()[1:9])
        measuring = Path(f"/proc/{self.machine.process.pid}/stat").read_text().rpartition(")")[2].split()
        own = sum(usage.ru_utime + usage.ru_stime
                  for usage in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)))
        return (user + nice + system + irq + softirq + steal - int(measuring[11]) - int(measuring[12])) / tick - own


class Costs:
    """Of this process, from here on."""

    def __init__(self):
        self.begin, self.work = time.perf_counter(), time.process_time()

    def of(self, frames):
        """Milliseconds per frame, those that cores worked, and the most memory resident, with libraries."""
        lines = Path("/proc/self/status").read_text().splitlines()
        return {"ms": 1e3 * (time.perf_counter() - self.begin) / frames,
                "core_ms": 1e3 * (time.process_time() - self.work) / frames,
                "peak_bytes": next(1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM"))}


def progress(text):
    if sys.stderr.isatty():
        print(f"\r{text} \x1b[K", end="", file=sys.stderr, flush=True)


def one_by_one(text, jobs):
    """Each job, with its number shown meanwhile."""
    for number, job in enumerate(jobs):
        progress(f"{text}: {number + 1} of {len(jobs)}")
        yield job
    progress("")


def in_turns(arms, rounds, turn):
    """Calls turn(arm, round) for each arm in each round; every round begins with another arm. Returns pairs of an arm
    and its figures, a dict of lists."""
    figures = [{} for _ in arms]
    for number in range(rounds):
        for done in range(len(arms)):
            progress(f"round {number + 1} of {rounds}, arm {done + 1} of {len(arms)}")
            place = (done + number) % len(arms)
            for name, value in turn(arms[place], number).items():
                figures[place].setdefault(name, []).append(value)
    progress("")
    return list(zip(arms, figures))


def median(values):
    return statistics.median(values) if values else math.nan


def medians(figures, *names):
    return {name: median(figures[name]) for name in names or figures}


def median_ratio(over, under):
    """The median of the rounds' ratios: changing load disturbs it less than a ratio of medians."""
    return median([a / b for a, b in zip(over, under)])
