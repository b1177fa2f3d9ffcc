"""Schedules as data: write, verify, draw, simulate and plan them."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence

from millrace import _millrace


def schedules() -> list[str]:
    """The names of the built-in schedules."""
    return _millrace.schedule_names()


@dataclasses.dataclass(frozen=True)
class Simulation:
    """A schedule simulated with given costs; times in milliseconds."""

    samples: int  #: processed
    dropped: int  #: frames that a live source dropped
    total_ms: float
    period_ms: float  #: between predictions, in the steady state
    fps: float
    bubble: float  #: idle share of the workers' time
    utilisation: float
    latency_p50_ms: float
    latency_max_ms: float
    gradient_age: list[int]  #: per stage, in frames
    events: list[tuple[int, str, float, float]]  #: (worker, "2F0", start, end)


class Schedule(_millrace.Schedule):
    """A schedule by name, like `Schedule("1f1b", stages=4, microbatches=8)`, or your own from `from_actions()`.

    Raises millrace.Error for an unknown name or actions that can't be read. `verify()` checks everything else.
    """

    _text: str | None = None  # the actions, if given

    def __init__(self, name: str = "partime", *, stages: int = 2, microbatches: int = 4, virtual_stages: int = 2,
                 vertical_sync: bool = False, replicas: Sequence[int] = (), recompute: bool = False) -> None:
        super().__init__(name, stages, microbatches, virtual_stages, vertical_sync, list(replicas), recompute)

    @classmethod
    def from_csv(cls, text: str) -> Schedule:
        """From the format of torch.distributed.pipelining: one row per worker, cells like "2F0"."""
        self = cls.__new__(cls)
        _millrace.Schedule.__init__(self, text)
        self._text = text
        return self

    @classmethod
    def from_actions(cls, workers: Sequence[Sequence[str]]) -> Schedule:
        """From one minibatch's actions per worker: "2F0" is stage 2's forward of sample 0, B its backward, I and W the
        backward's two parts. Every stage updates at the end."""
        return cls.from_csv("\n".join(",".join(row) for row in workers))

    def staircase(self, samples: int = 8) -> str:
        """actions() as text, one line per worker."""
        rows = self.actions(samples)
        width = max(len(cell) for row in rows for cell in row)
        return "\n".join(f"worker {i}  " + " ".join((cell or ".").ljust(width) for cell in row).rstrip()
                         for i, row in enumerate(rows))

    def simulate(self, samples: int = 0, *, forward: float | Sequence[float] = 1.0,
                 backward: float | Sequence[float] = 2.0, update: float | Sequence[float] = 0.0,
                 message_bytes: float = 0.0, link_ms: float = 0.0, bytes_per_ms: float = 0.0, cores: int = 0,
                 fps: float = 0.0) -> Simulation:
        """Simulates it with costs in milliseconds, one for all stages or one per stage. `samples` 0: enough for a
        steady rate. `cores` 0: one per worker. `fps`: a live source's rate; 0: samples are always ready."""
        ahead, back, change = ([float(v)] if isinstance(v, (int, float)) else [float(x) for x in v]
                               for v in (forward, backward, update))
        return Simulation(**self._simulate(samples, ahead, back, change, message_bytes, link_ms, bytes_per_ms, cores,
                                            fps))

    def __repr__(self) -> str:
        return f"<millrace.Schedule {self.name or 'of actions'}: {self.stages} stages on {self.workers} workers>"


@dataclasses.dataclass(frozen=True)
class Plan:
    """A way to run a network, with its costs; times in milliseconds per sample."""

    schedule: str
    stages: int
    cut: list[int]
    microbatches: int
    recompute: bool
    sample_ms: float
    frames_a_second: float
    bubble: float
    latency_ms: float
    peak_bytes: float
    gradient_age: list[int]


def plan(profile: str | os.PathLike[str], *, devices: int | str = 2, links: str = "", overlap: str = "none",
         schedules: Sequence[str] = ("partime",), microbatches: Sequence[int] = (4,), memory_bytes: float = 0.0,
         fps: float = 0.0, stages: int = 0, recompute: bool = False) -> list[Plan]:
    """The best plan of each method that fits, best first, for the network in `profile`, a file from `millrace profile`.
    Raises millrace.Error, naming the limit, if nothing fits."""
    with open(profile, encoding="utf-8") as file:
        text = file.read()
    return [Plan(**one) for one in _millrace.plan(text, str(devices), links, overlap, list(schedules),
                                                  list(microbatches), memory_bytes, fps, stages, recompute)]
