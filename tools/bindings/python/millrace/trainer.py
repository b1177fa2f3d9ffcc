"""A network that learns from frames given in Python."""

from __future__ import annotations

import collections
import dataclasses
import json
import math
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import nn

from millrace import _frames, _millrace
from millrace._config import settings, toml
from millrace._cut import cut
from millrace._error import Error
from millrace._export import export, prepared
from millrace.schedule import Schedule

_WAIT_MS = 50  # Ctrl-C is noticed this often
_MOST_NUMBERS = 1 << 26  # floats waiting at most, so that large frames do not fill memory
_NOTHING = object()


@dataclasses.dataclass(frozen=True, slots=True)
class Result:
    """What the network made of one frame."""

    index: int  #: 0, 1, ... in the order of frames
    loss: float  #: before the update; nan: the frame had no target
    prediction: torch.Tensor  #: [C,H,W], or a module's output without the batch
    age: int  #: largest gradient age of any stage, in frames
    latency: float  #: milliseconds from taking the frame to its prediction


class Trainer:
    """Trains a network frame by frame while its stages work side by side, each on a core or GPU of its own.

    `net`: a torch.nn.Module (`millrace.export` says which), of which a copy is trained; or a config file's path; or a
    config as a dict of tables; or None: every key at its default. Keyword arguments are config keys: a table as a
    dict (`optimizer={"kind": "sgd", "lr": 0.1}`) or, if it has a `kind`, as that one word (`correction="none"`), and
    single keys by their own names (`schedule="1f1b"`, `stages=2`, `cut=[4]`, `lr=0.1`). `schedule` may be a
    millrace.Schedule. Raises millrace.Error, in the program's words, for what the program would refuse.

    Sets the process to one intra-op thread, as the engine computes with one per stage.
    """

    def __init__(self, net: nn.Module | str | os.PathLike[str] | Mapping[str, Any] | None = None, /, *,
                 schedule: str | Schedule | None = None, **keys: Any) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="millrace-")
        self._module: nn.Module | None = None
        self._file = ""
        self._settings: list[tuple[str, str]] = []
        self._run: _millrace.GivenRun | None = None
        self._shape: tuple[int, int, int] | None = None
        self._targets = False
        self._running = False
        self._output: list[int] | None = None  # the module's, without the batch
        self._ages: list[int] = []
        if isinstance(net, nn.Module):
            self._module = prepared(net)
        elif isinstance(net, Mapping):
            self._settings += settings(net)
        elif net is not None:
            self._file = os.fspath(net)
        if isinstance(schedule, Schedule):
            keys = {**keys, **self._own(schedule)}
        elif schedule is not None:
            keys["pipeline.schedule"] = schedule
        self._settings += settings(keys)
        for key, _ in self._settings:
            if self._module is not None and key in ("model.preset", "model.file", "model.layer"):
                raise Error(f"{key}: the network is the module that was given")
        config = self._config()
        self._task, self._horizon = config.task, config.horizon
        if self._module is not None:
            _millrace.check(config, len(cut(self._module, None)))

    def _own(self, schedule: Schedule) -> dict[str, Any]:
        """Writes the caller's schedule to a file, as a config would name it."""
        schedule.verify()
        text = schedule._text
        if text is None:
            raise Error(f"schedule: give its name: schedule=\"{schedule.name}\", stages={schedule.stages}")
        path = os.path.join(self._folder.name, "schedule.csv")
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return {"pipeline.schedule": path, "pipeline.stages": schedule.stages}

    def _config(self, **more: Any) -> _millrace.Config:
        return _millrace.Config(self._file, self._settings + [(key, toml(value)) for key, value in more.items()])

    def _build(self, shape: tuple[int, int, int], targets: bool) -> _millrace.GivenRun:
        if self._run is not None and (self._shape, self._targets) == (shape, targets):
            return self._run
        if self._run is not None:
            raise Error(f"frames of {list(shape)} {'with' if targets else 'without'} targets: it has learned from frames "
                        f"of {list(self._shape or ())} {'with' if self._targets else 'without'} targets")
        more = {}
        if self._module is not None:
            exported = export(self._module, torch.rand(1, *shape, generator=torch.Generator().manual_seed(0)))
            path = os.path.join(self._folder.name, "net.pt")
            exported.save(path)
            more = {"model.preset": "file", "model.file": path}
            self._output = exported.output[1:]
        self._run = _millrace.GivenRun(self._config(**more), shape, targets)
        self._shape, self._targets = shape, targets
        self._ages = self._run.gradient_age()
        return self._run

    def run(self, frames: Iterable[Any] | None = None, *, ahead: int = 32) -> Iterator[Result]:
        """Learns from `frames` and yields one Result per frame that it learned from, in order. Without `frames`, reads
        the config's own source and labels.

        `frames`: numpy arrays or torch tensors, float32 [C,H,W] (pictures: in 0..1), all of one shape, or pairs of one
        and its target. A target has the prediction's shape, or is a class's number, or None: the frame is only
        predicted. A frame without targets is its own target; with task="next-frame" the target is the frame
        `task.horizon` later. float32 contiguous memory is not copied: do not change it before its result is there. Up
        to `ahead` frames are taken in advance, in the caller's thread.

        A schedule with minibatches leaves out frames at the end that do not fill one. Breaking out of the loop, or
        Ctrl-C, stops the run: the pipeline finishes what it has begun, waiting frames are dropped.
        """
        if self._running:
            raise Error("it is already running")
        if frames is None:
            frames = _frames_of(self._config(), self._task == "label")
        return self._results(iter(_with_later(frames, self._horizon) if self._task == "next-frame" else frames),
                             max(int(ahead), 1))

    def _results(self, frames: Iterator[Any], ahead: int) -> Iterator[Result]:
        try:
            item = next(frames)
        except StopIteration:
            return
        pairs = isinstance(item, (tuple, list))
        run = self._build(tuple(_frames.frame(item[0] if pairs else item, 0).shape), pairs)  # type: ignore[arg-type]
        shape, goal = self._shape, tuple(run.prediction_shape())
        held: collections.deque[Any] = collections.deque()  # memory that the engine may still read
        count, more = 0, True
        numbers = max(math.prod(shape or (1,)), math.prod(goal))
        ahead = max(min(ahead, _MOST_NUMBERS // numbers), 2)

        def give() -> None:
            nonlocal item, count, more
            if item is _NOTHING:
                try:
                    item = next(frames)
                except StopIteration:
                    more = False
                    return run.end()
            if isinstance(item, (tuple, list)) != pairs or (pairs and len(item) != 2):
                raise Error(f"frame {count}: {'an (input, target) pair' if pairs else 'a frame without a target'} is due")
            frame = _frames.frame(item[0] if pairs else item, count)
            if tuple(frame.shape) != shape:
                raise Error(f"frame {count}: has the shape {list(frame.shape)}, those before {list(shape)}")
            told = _frames.target(item[1], count, goal) if pairs else None
            held.append((frame, told))
            run.give(frame.data_ptr(), 0 if told is None else told.data_ptr())
            count += 1
            item = _NOTHING

        run.start(ahead)
        self._running = True
        try:
            while not run.over():
                found = run.next(0)
                if more and run.has_room() and run.waiting() < (ahead if found is None else ahead // 2):
                    give()
                if found is None:
                    if not more or not run.has_room() or run.waiting() >= ahead:
                        found = run.next(_WAIT_MS)
                    if found is None:
                        continue
                index, loss, prediction, latency = found
                while len(held) > count - index - 1:
                    held.popleft()
                made = torch.from_numpy(prediction)
                if self._output is not None and math.prod(self._output) == made.numel():
                    made = made.reshape(self._output)
                yield Result(index, loss, made, max(self._ages, default=0), latency)
        finally:
            run.stop()
            while not run.over():
                run.next(_WAIT_MS)
            self._running = False

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Copies of all weights under the uncut network's names; of a module with its buffers, for the module's
        load_state_dict(). Not during a run."""
        if self._running:
            raise Error("weights cannot be read during a run")
        if self._run is None and self._module is None:
            raise Error("a config's network has weights once it has seen a frame")
        state = {} if self._run is None else {name: torch.from_numpy(value) for name, value in self._run.weights()}
        if self._module is None:
            return state
        whole, by_place = self._module.state_dict(), {}
        for name, value in whole.items():
            by_place.setdefault((value.data_ptr(), tuple(value.shape)), state.get(name))
        found = {}
        for name, value in whole.items():
            learned = state.get(name)
            if learned is None and value.numel():  # a second name of the same tensor
                learned = by_place[(value.data_ptr(), tuple(value.shape))]
            found[name] = value.clone() if learned is None else learned
        return found

    def load_state_dict(self, state: Mapping[str, torch.Tensor]) -> None:
        """Takes weights under the names of state_dict(); the optimizer's state stays. Not during a run."""
        if self._running:
            raise Error("weights cannot be set during a run")
        if self._module is not None:
            try:
                self._module.load_state_dict(state)
            except RuntimeError as error:
                raise Error(" ".join(str(error).split())) from error
        elif self._run is None:
            raise Error("a config's network has weights once it has seen a frame; before that, name model.weights")
        if self._run is None:
            return
        names = [name for name, _ in self._run.weights()]
        for name in names:
            if name not in state:
                raise Error(f"\"{name}\" is missing")
        self._run.set_weights([(name, state[name].detach().cpu().float().numpy()) for name in names])

    def report(self) -> dict[str, Any]:
        """The report of `millrace run`, as a dict; {} before the first run."""
        return {} if self._run is None else json.loads(self._run.report())

    @property
    def remarks(self) -> list[str]:
        """Notes on the network and on choices that were left open, a line each; after the first run."""
        return [] if self._run is None else self._run.remarks()


def _frames_of(config: _millrace.Config, labels: bool) -> Iterator[Any]:
    """Frames of the config's source, with their classes if `labels`."""
    source = _millrace.GivenFrames(config)
    while (found := source.next(_WAIT_MS)) is not None:
        if found:
            frame, label = found
            yield (frame, None if label < 0 else label) if labels else frame


def _with_later(frames: Iterable[Any], horizon: int) -> Iterator[tuple[Any, Any]]:
    """Each frame with the one `horizon` later."""
    waiting: collections.deque[Any] = collections.deque()
    for frame in frames:
        waiting.append(frame)
        if len(waiting) > horizon:
            yield waiting.popleft(), frame
