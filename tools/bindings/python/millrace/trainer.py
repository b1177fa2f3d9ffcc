"""Trains a network on frames from Python."""

from __future__ import annotations

import asyncio
import copy
import itertools
import json
import os
import shutil
import tempfile
import threading
import time
import weakref
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sized
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import nn

from millrace import _frames, _millrace
from millrace._config import settings, toml
from millrace._cut import cut, ends_in_sigmoid
from millrace._error import Error
from millrace._export import example_for, export, own_modes, prepared
from millrace._show import progress
from millrace._stream import END, WAIT_MS, Elsewhere, Inbox, Item, Result, Stream, forget, halt, inside
from millrace.schedule import Schedule

if TYPE_CHECKING:
    from typing_extensions import Self

_NOTHING = object()
_WRITES = "checkpoint.", "output.", "mqtt.", "novelty.snapshots", "novelty.webhook", "novelty.mqtt"
_trainers: weakref.WeakSet[Trainer] = weakref.WeakSet()


class Trainer:
    """Trains a network frame by frame, its stages in parallel, each on its own core or GPU.

    `net`: a torch.nn.Module (see `millrace.export` for which), of which a copy is trained; or the path of a config
    file; or a config as a dict of tables; or None for the defaults. Keyword arguments are config keys: a table as a
    dict (`optimizer={"kind": "sgd", "lr": 0.1}`) or, if it has a `kind`, as that word (`correction="none"`), and single
    keys by name (`schedule="1f1b"`, `stages=2`, `cut=[4]`, `lr=0.1`); None leaves a key at its default. `schedule` may
    be a millrace.Schedule. Raises millrace.Error, with the program's message, for whatever the program would refuse.

    Sets the process to one intra-op thread, as the engine uses one per stage.
    """

    def __init__(self, net: nn.Module | str | os.PathLike[str] | Mapping[str, Any] | None = None, /, *,
                 schedule: str | Schedule | None = None, **keys: Any) -> None:
        self._folder = tempfile.mkdtemp(prefix="millrace-")
        weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        _trainers.add(self)
        self._net, self._keys = net, keys if schedule is None else {"schedule": schedule, **keys}
        self._fps = 0.0  # of the config's own source
        self._reads = False  # frames come from the config's own source
        self._module: nn.Module | None = None
        self._file = ""
        self._settings: list[tuple[str, str | bytes]] = []
        self._run: _millrace.GivenRun | None = None
        self._shape: tuple[int, int, int] | None = None
        self._live = False  # the config's own source
        self._targets = False
        self._stream: Stream | None = None  # in progress
        self._inbox: Inbox | None = None  # the latest submit()'s
        self._mode = ""  # "run", "submit" or "one": who uses the stream
        self._giving = threading.RLock()
        self._halting: weakref.finalize[Any, Any] | None = None
        self._see: Callable[[Result], None] | None = None
        self._output: list[int] | None = None  # the module's, without the batch
        self._features: list[Any] = []  # their names, once a dict was learned from
        self._named = False  # classes are learned by name
        if isinstance(net, nn.Module):
            with own_modes():
                self._module = prepared(net)
        elif isinstance(net, Mapping):
            self._settings += settings(net)
        elif isinstance(net, (str, os.PathLike)):
            self._file = os.fspath(net)
        elif net is not None:
            raise Error(f"Trainer: a torch.nn.Module, the path of a config or a dict is due, not {net!r}")
        if isinstance(schedule, Schedule):
            keys = {**keys, **self._own(schedule)}
        elif schedule is not None:
            keys["pipeline.schedule"] = schedule
        self._settings += settings(keys)
        for key, _ in self._settings:
            if key.startswith(_WRITES):
                raise Error(f"{key}: a Trainer writes nothing: save its state_dict() and report()")
            if self._module is not None and key in ("model.preset", "model.file", "model.layer"):
                raise Error(f"{key}: the network is the module that was given")
        config = self._config()
        self._task = config.task if self._module is None or "task.kind" in dict(self._settings) else "autoencode"
        self._classes = config.classes if config.task == "label" or config.loss == "cross-entropy" else None
        if self._module is not None:
            parts = cut(self._module, None)
            try:
                _millrace.check(config, len(parts))
            except Error:  # which results may be passed on shows on a sample
                _millrace.check(config, max(len(parts), len(cut(self._module, example_for(self._module)))))
            if self._task == "next-frame" and ends_in_sigmoid(parts[-1].graph):
                self._settings.insert(0, ("task.predict", toml("frame")))  # later settings win
                config = self._config()
        self._context = config.context if self._task == "next-frame" else 1

    def __repr__(self) -> str:
        net = type(self._module).__name__ if self._module is not None else repr(self._net)
        return f"{type(self).__name__}({', '.join([net, *(f'{key}={value!r}' for key, value in self._keys.items())])})"

    def clone(self, new_params: Mapping[str, Any] | None = None) -> Self:
        """An untrained Trainer of the same network, as last loaded, and keys, with those of `new_params` on top, like
        River's models."""
        return type(self)(self._net if self._module is None else self._module, **{**self._keys, **(new_params or {})})

    def __reduce__(self) -> Any:
        raise Error("a Trainer is not copied or pickled: load its state_dict() into another")

    def _own(self, schedule: Schedule) -> dict[str, Any]:
        """Writes the caller's schedule to a file for the config to name."""
        schedule.verify()
        text = schedule._text
        if text is None:
            raise Error("schedule: pass a built-in schedule by name: "
                        f"schedule=\"{schedule.name}\", stages={schedule.stages}")
        path = os.path.join(self._folder, "schedule.csv")
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return {"pipeline.schedule": path, "pipeline.stages": schedule.stages}

    def _config(self, **more: Any) -> _millrace.Config:
        return _millrace.Config(self._file, self._settings + [(key, toml(value)) for key, value in more.items()])

    def _build(self, shape: tuple[int, int, int], targets: bool, live: bool) -> _millrace.GivenRun:
        if self._run is not None and (self._shape, self._targets) == (shape, targets):
            return self._run
        if self._run is not None:
            raise Error(f"frames of {list(shape)} {'with' if targets else 'without'} targets: it has learned from "
                        f"frames of {list(self._shape or ())} {'with' if self._targets else 'without'} targets")
        more: dict[str, Any] = {} if self._reads else {"task.labels": ""}  # those are of its source's frames
        if self._fps and not self._config().fps:
            more["monitor.fps"] = self._fps
        if self._module is not None:
            if not targets:
                more["task.kind"] = self._task
            sample = (shape[0] if targets else shape[0] * self._context, *shape[1:])
            try:
                exported = export(self._module, torch.rand(1, *sample, generator=torch.Generator().manual_seed(0)))
            except Error as error:
                if sample[2] in (1, 3, 4) and sample[0] not in (1, 3, 4):
                    raise Error(f"{error}; frames of floats are [C,H,W]: frame.transpose(2, 0, 1)") from error
                raise
            path = os.path.join(self._folder, "net.pt")
            exported.save(path)
            more |= {"model.preset": "file", "model.file": path}
            self._output = exported.output[1:]
        self._run = _millrace.GivenRun(self._config(**more), shape, targets, live)
        self._shape, self._targets = shape, targets
        return self._run

    def _require_elsewhere(self, method: str) -> None:
        """Refuses, in the function that sees results, a call that may wait for them."""
        if self._inbox is not None and threading.current_thread() is self._inbox._thread:
            raise Error(f"{method} can't be called from on_result()'s function")

    def _require_idle(self) -> None:
        if self._mode:
            raise Error({"run": "it is already running", "submit": "it learns from submitted frames: close() it first",
                         "one": "learn_one() or predict_one() uses it: close() it first"}[self._mode])

    @own_modes()
    def _start(self, mode: str, frame: Any, targets: bool, *, own: bool = False, ahead: int = 32) -> Stream:
        """Starts learning from frames with the shape of `frame`; `own`: one without a target is its own."""
        self._require_idle()
        live = mode == "submit"
        shape: tuple[int, int, int] = tuple(_frames.frame(frame, 0, self._features).shape)  # type: ignore[assignment]
        run = self._build(shape, targets, live)
        if mode == "one" and run.frames_an_update() > 1:
            raise Error(f"pipeline.schedule: learns from {run.frames_an_update()} frames at a time; one by one, take "
                        "\"sequential\", \"partime\", \"pb\" or \"pipedream\"")
        try:
            self._stream = Stream(run, shape, targets, self._output, self._features, self._classes,
                                  own=own, live=live, ahead=ahead)
            self._mode = mode
        except BaseException:  # Ctrl-C, say
            halt(run)
            self._stream = None
            raise
        return self._stream

    def run(self, frames: Iterable[Any] | None = None, *, ahead: int | None = None) -> Iterator[Result]:
        """Learns from `frames` and yields one Result per trained frame, in order. Without `frames`, reads the config's
        source and labels.

        `frames`: numpy arrays or torch tensors, float32 [C,H,W] in 0..1, all of one shape, or (frame, target) pairs. A
        target has the prediction's shape, or is a class number, or None: the frame is only predicted. If frames come
        without targets, each is its own target; with task="next-frame" the target is the frame `task.horizon` later,
        and the network sees `task.context` frames as channels, the latest last. Frames are read ahead on a separate
        thread, until about `ahead` results (32; 2 of a live source) wait for the loop, and copied. None is dropped, unless
        source.drop = "newest".

        A schedule with minibatches leaves out frames at the end that do not fill one. Breaking out of the loop, or
        Ctrl-C, stops the run: frames in flight are finished, waiting frames are dropped.
        """
        return self._learn(frames, ahead)

    def _learn(self, frames: Iterable[Any] | None, ahead: int | None = None, own: bool = False) -> Iterator[Result]:
        self._require_idle()
        self._live, self._reads = False, frames is None
        items = self._source_frames() if frames is None else (
            (self._seen(item), None, 0, (0, 0)) for item in _frames.each(frames, "frames"))
        return self._results(items, ahead, own)

    def _seen(self, item: Any) -> Any:
        """Notes whether classes are learned by name."""
        if _frames.is_pair(item) and item[1] is not None:
            self._named = isinstance(item[1], str)
        return item

    def _reproduces(self) -> bool:
        """Whether it has learned from pairs whose target can be the frame."""
        return self._run is not None and self._targets and self._output == list(self._shape or ())

    def _source_frames(self) -> Iterator[Item]:
        """Frames of the config's source, for labels with their classes."""
        if self._module is not None and not {"source.uri", "source.uris"} & dict(self._settings).keys():
            raise Error("frames are due, or a source: Trainer(net, source={\"uri\": \"clip.mp4\"})")
        source = _millrace.GivenFrames(self._config())
        self._fps, self._live = source.fps, source.live
        while (found := source.next(WAIT_MS)) is not None:
            if found:
                frame, label = found
                item = (frame, None if label < 0 else label) if self._task == "label" else frame
                yield item, source.time, source.segment, source.lost()
        yield END, None, source.segment, source.lost()

    def fit(self, frames: Iterable[Any] | None = None, targets: Iterable[Any] | None = None) -> Self:
        """Forgets what it has learned and learns from the stream, once: partial_fit() from the initial weights."""
        self.close()
        self._require_idle()
        self._run, self._features, self._named = None, [], False
        return self.partial_fit(frames, targets)

    def partial_fit(self, frames: Iterable[Any] | None = None, targets: Iterable[Any] | None = None) -> Self:
        """Learns from more frames, as run() takes them, or from frames and as many targets; shows progress if tqdm is
        there. A frame without a target is its own, except with task="next-frame"."""
        self.close()
        if frames is not None and targets is not None:
            if isinstance(frames, Sized) and isinstance(targets, Sized) and len(frames) != len(targets):
                raise Error(f"fit: there are {len(frames)} frames and {len(targets)} targets; it needs as many of each")
            frames = _frames.pairs(frames, targets)
        own = frames is not None and self._task != "next-frame" and (self._run is None or self._targets)
        for _ in progress(self._learn(frames, own=own)):
            pass
        return self

    def predict(self, frames: Iterable[Any]) -> list[Any]:
        """predict_one() of each frame."""
        begun = bool(self._mode)
        try:
            return [self.predict_one(frame) for frame in _frames.each(frames, "frames")]
        finally:
            if not begun:
                self.close()

    def _results(self, items: Iterator[Item], ahead: int | None, own: bool) -> Iterator[Result]:
        self._require_elsewhere("run()")
        first = next(items, None)
        if first is None or first[0] is END:
            return
        item = first[0]
        pair = _frames.is_pair(item)
        own = own or (not pair and self._reproduces())
        raised: list[BaseException] = []

        def give(stream: Stream) -> None:
            try:
                stream.give_all(itertools.chain([first], items))
            except BaseException as error:  # the user's; it ends the loop
                raised.append(error)
            finally:
                stream.end()

        giver: threading.Thread | None = None
        stream: Stream | None = None
        try:
            with inside(), self._giving:
                stream = self._start("run", item[0] if pair else item, pair or own, own=own,
                                     ahead=ahead or (2 if self._live else 32))
            # The iterator may block for as long as it likes; results come meanwhile.
            giver = threading.Thread(target=give, args=(stream,), name="millrace-frames", daemon=True)
            giver.start()
            while not stream.run.over():
                with inside():
                    result = stream.take(WAIT_MS)
                if result is not None:
                    yield result
            if raised:
                raise raised[0]
        finally:
            if stream is not None:  # another's run goes on
                stream.leave()
                if giver is not None and giver.ident is not None:
                    giver.join(1.0)  # for the current frame, but not for ever
                self._mode, self._stream = "", None

    def submit(self, frame: Any, target: Any = _NOTHING, *, time: float | None = None) -> int:
        """Copies a frame of a live source and its target, as for run(), and returns at once with the frame's number: 0,
        1, ... since the last close(). The first call builds the pipeline. If the pipeline is busy, the newest frame
        replaces the waiting one, which counts as dropped; with source.drop = "never" submit() waits.

        `time`: when the frame was captured, in seconds of any clock; it is passed on to the result and gives the frame
        rate. Results come through poll(), on_result() or `async for result in trainer`. Any thread.
        """
        self._require_elsewhere("submit()")
        with inside(), self._giving:
            told = target is not _NOTHING
            if self._mode != "submit":
                own = not told and self._reproduces()
                stream = self._start("submit", frame, told or own, own=own)
                self._inbox = Inbox(stream, self._see, self._inbox)
                self._halt_when_gone(stream, self._inbox)
            assert self._stream is not None and self._inbox is not None
            self._inbox.check()
            if (told or self._stream.own) != self._stream.pairs:
                due = "no targets" if told else "targets (or None)"
                raise Error(f"submit: earlier frames had {due}, and so must this one")
            number = self._stream.give(frame, target if told else frame, time)
            if number < 0:
                self.close()
                raise Error("submit: the run is over")
            return number

    def poll(self, timeout: float = 0.0) -> Result | None:
        """The oldest result of a submitted frame, if it comes within `timeout` seconds. The latest 256 are kept. Raises
        the error that ended the run. Any thread."""
        end = time.monotonic() + timeout
        while self._inbox is None:
            if (left := end - time.monotonic()) <= 0:
                return None
            time.sleep(min(left, WAIT_MS / 1000))
        return self._inbox.take(max(0.0, end - time.monotonic()))

    def on_result(self, see: Callable[[Result], None] | None) -> None:
        """Calls `see` with each result of a submitted frame, on a separate thread, instead of keeping it for poll(). An
        exception in `see` ends the run and is raised by the next submit(), poll() or close(). It must not call methods
        that learn, predict, close, or read or set weights: it may set an event for another thread. At exit it is printed."""
        if see is not None and not callable(see):
            raise Error(f"on_result: a function or None is due, not {see!r}")
        self._see = see
        if self._inbox is not None:
            self._inbox.see = see

    async def __aiter__(self) -> AsyncIterator[Result]:
        """The results of submitted frames, until close()."""
        loop = asyncio.get_running_loop()
        ended = self._inbox if self._inbox is not None and self._inbox.over() else None
        while True:
            if self._inbox is None or self._inbox is ended:
                await asyncio.sleep(WAIT_MS / 1000)
                continue
            # Only waits elsewhere: if it is cancelled, no result is lost.
            await loop.run_in_executor(None, self._inbox.wait, WAIT_MS / 1000)
            if (result := self.poll()) is not None:
                yield result
            elif self._inbox.over():
                return

    def close(self) -> None:
        """Ends a series of submit(), learn_one() and predict_one(): waits until all frames are trained. Their results
        stay for poll(). The next submit() or run() continues with the same weights."""
        self._require_elsewhere("close()")
        with self._giving:
            if self._mode not in ("submit", "one") or self._stream is None:
                return
            self._stream.run.end()
            if self._mode == "submit" and self._inbox is not None:
                self._inbox.join()
            else:
                halt(self._stream.run)
            self._mode, self._stream = "", None
            if self._halting is not None:
                self._halting.detach()
        if self._inbox is not None:
            self._inbox.check()

    def _halt_when_gone(self, stream: Stream, inbox: Inbox | None) -> None:
        """Until close()."""
        self._halting = weakref.finalize(self, _halt, stream, inbox)
        self._halting.atexit = False

    def _one(self, frame: Any, target: Any) -> torch.Tensor:
        """Learns from one frame and waits for its prediction."""
        self._require_elsewhere("learn_one() or predict()")
        with inside(), self._giving:
            if self._mode != "one":
                if self._run is not None and not self._targets:
                    raise Error("it has learned from frames without targets: run() and submit() give its predictions; "
                                "learn_one() and predict() are for frames with targets")
                self._halt_when_gone(self._start("one", frame, True, ahead=2), None)
            assert self._stream is not None
            number = self._stream.give(frame, target)
            while number >= 0 and not self._stream.run.over():
                result = self._stream.take(WAIT_MS)
                if result is not None and result.frame == number:
                    return result.prediction
            self.close()
            raise Error("the run is over")

    def learn_one(self, x: Any, y: Any = None) -> None:
        """Learns from one frame, like River's models. `x`: a frame, or features in 0..1 by name, the same in
        every dict; the network sees them in the order of their names. `y`: its target, as for run(); None: the frame
        itself. Returns once it is predicted."""
        self._one(x, x if y is None else y)
        self._named = isinstance(y, str)

    def predict_one(self, x: Any) -> Any:
        """Predicts one frame without learning from it, like River's models: if the network learns classes, a class's
        name if the last target was one, else its number; a number if it has one output; otherwise a
        tensor."""
        made = self._one(x, None)
        if self._classes is not None and made.numel() == made.size(0):
            return self._called(int(made.argmax()))
        return made.item() if made.numel() == 1 else made

    def predict_proba_one(self, x: Any) -> dict[Any, float]:
        """The probability of each class, by softmax, like River's models."""
        shares = cast(list[float], self._one(x, None).flatten().softmax(0).tolist())
        return {self._called(i): share for i, share in enumerate(shares)}

    def _called(self, number: int) -> Any:
        return self._classes[number] if self._named and self._classes else number

    def state_dict(self) -> dict[str, Any]:
        """Copies of all weights under the uncut network's names; for a module with its buffers and extra state, ready
        for its load_state_dict(). Of classes it holds weights alone, without the remembered frames: a Trainer that loads
        it answers them until it learns its first label. Not during a run(); calls close() after submit() or
        learn_one()."""
        self._require_elsewhere("state_dict()")
        with self._giving:
            if self._mode == "run":
                raise Error("weights cannot be read during a run")
            self.close()
            if self._run is None and self._module is None:
                raise Error("a config's network has weights once it has seen a frame")
            state = {} if self._run is None else {name: torch.from_numpy(value) for name, value in self._run.weights()}
            whole = state if self._module is None else self._module.state_dict()
            return {name: state[name] if name in state else copy.deepcopy(value) for name, value in whole.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Sets weights by the names of state_dict(); the optimizer's state stays, unless a buffer changes that is not
        float32: it is part of the recorded forward, which is built anew. When state_dict() is allowed."""
        self._require_elsewhere("load_state_dict()")
        with self._giving:
            if self._mode == "run":
                raise Error("weights cannot be set during a run")
            self.close()
            if self._module is not None:
                module = copy.deepcopy(self._module)
                try:
                    module.load_state_dict(state)
                except RuntimeError as error:  # by then it has loaded what fits
                    raise Error(" ".join(str(error).split())) from error
                _require_finite(module.state_dict())
                before, self._module = dict(self._module.named_buffers()), module
                if any(not torch.equal(before[name], value) for name, value in module.named_buffers()
                       if value.dtype != torch.float32 and not name.endswith("num_batches_tracked")):
                    self._run = None
                state = {**dict(module.named_parameters(remove_duplicate=False)),  # as its hooks have left them
                         **dict(module.named_buffers(remove_duplicate=False))}
            elif self._run is None:
                raise Error("a config's network has weights once it has seen a frame; before that, name model.weights")
            else:
                _require_finite(state)
            if self._run is None:
                return
            weights: list[tuple[str, Any]] = []
            for name, _ in self._run.weights():
                if name not in state:
                    raise Error(f"\"{name}\" is missing")
                weights.append((name, state[name].detach().cpu().float().numpy()))
            self._run.set_weights(weights)

    def report(self) -> dict[str, Any]:
        """The report of the latest run, as by `millrace run`, as a dict; {} before the first. Also while it learns."""
        return {} if self._run is None else json.loads(self._run.report())

    @property
    def remarks(self) -> list[str]:
        """Notes on the network and on choices left open, one line each; after the first run."""
        return [] if self._run is None else self._run.remarks()


def watch(source: str | os.PathLike[str], /, **keys: Any) -> Iterator[Result]:
    """Learns from a video or camera as `millrace run SOURCE` does, and yields one Result a frame:
    `for frame, prediction, novelty in millrace.watch("clip.mp4")`. Keyword arguments are config keys, as
    Trainer takes them. Shows progress if tqdm is there."""
    return progress(Trainer({"source": {"uri": os.fspath(source)}}, **keys).run())


def _require_finite(state: Mapping[str, Any]) -> None:
    for name, value in state.items():
        if isinstance(value, torch.Tensor) and not value.isfinite().all():
            raise Error(f"\"{name}\" holds numbers that are not finite")


def _halt(stream: Stream, inbox: Inbox | None) -> None:
    """Ends a stream when its trainer is gone."""
    if inbox is None:
        return halt(stream.run)
    stream.run.stop()
    inbox.join()
    inbox.tell()


def _forked() -> None:
    """In a forked process."""
    forget()
    for one in _trainers:
        if one._stream is not None:
            gone: Any = Elsewhere(one._run, one._inbox)
            one._run = one._inbox = one._stream.run = gone
            one._stream.lock = threading.Lock()
            one._giving = threading.RLock()


os.register_at_fork(after_in_child=_forked)
