"""Passes frames into a run of the engine and results out of it."""

from __future__ import annotations

import atexit
import collections
import contextlib
import ctypes
import dataclasses
import json
import math
import threading
import time
import traceback
import weakref
from collections.abc import Callable, Generator, Iterator
from typing import Any, Optional

import torch

from millrace import _frames, _millrace
from millrace._error import Error
from millrace._show import png

WAIT_MS = 50  # how often Ctrl-C is checked
LEAVE_S = 5.0  # at exit, for all frames in flight
_MOST_NUMBERS = 1 << 26  # floats in waiting results, so that large predictions do not fill memory


@dataclasses.dataclass(frozen=True, slots=True)
class Result:
    """The network's result for one frame. Unpacks into picture, prediction and novelty; notebooks show it."""

    index: int
    """0, 1, ... in order, counting frames with a result"""
    loss: float
    """before the update; nan: no target"""
    prediction: torch.Tensor = dataclasses.field(repr=False)
    """[C,H,W], or a module's output without the batch; made before the update"""
    age: int
    """largest gradient age of any stage, in frames"""
    latency: float
    """milliseconds from passing the frame in to receiving this result; for a list mostly the wait for earlier frames"""
    frame: int = 0
    """the frame's number, as returned by submit()"""
    time: float | None = None
    """as passed to submit(); of the config's own source: seconds in the stream"""
    picture: torch.Tensor | None = dataclasses.field(default=None, repr=False)
    """[C,H,W] that was to be predicted, else the input"""
    novelty: float = 0.0
    """4 (novelty.threshold) and more: unlike all that came before; 0 at first, for some seconds"""
    event: dict[str, Any] | None = None
    """the event that begins here, with reason and box"""

    def __iter__(self) -> Iterator[Any]:
        return iter((self.picture, self.prediction, self.novelty))

    def _repr_png_(self) -> bytes | None:
        """The picture, with the event's box, beside the prediction."""
        alike = self.picture is not None and self.picture.shape[1:] == self.prediction.shape[1:]
        return self.picture if self.picture is None else png(
            [self.picture, self.prediction] if alike else [self.picture], (self.event or {}).get("box", ()))


_inboxes: weakref.WeakSet[Inbox] = weakref.WeakSet()
_leaving = threading.Event()
_inside: set[int] = set()  # threads


@contextlib.contextmanager
def inside() -> Generator[None]:
    """While a thread uses PyTorch: once the interpreter exits, it stays here, as the end of the interpreter would catch
    it inside PyTorch and abort the process."""
    thread = threading.get_ident()
    _inside.add(thread)
    try:
        yield
    finally:
        _inside.discard(thread)
        if _leaving.is_set() and threading.current_thread() is not threading.main_thread():
            threading.Event().wait()


#: The end of a source whose last frames were lost.
END = object()
#: A frame or pair, or END, its time, its segment, and how many before it were dropped and rejected.
Item = tuple[Any, Optional[float], int, tuple[int, int]]


def halt(run: _millrace.GivenRun) -> None:
    """Discards what waits in a run, if it has started."""
    if not run.over():
        run.stop()
    while not run.over():
        run.next(WAIT_MS)


class Stream:
    """One start of `run`. One thread gives frames, one takes results. `own`: a frame without a target is its own."""

    def __init__(self, run: _millrace.GivenRun, shape: tuple[int, int, int], pairs: bool, output: list[int] | None,
                 features: list[Any], classes: list[str] | None, *, own: bool, live: bool, ahead: int) -> None:
        self.run, self._shape, self.pairs, self.own = run, shape, pairs, own
        self._features, self._classes = features, classes  # their names
        channels, height, width = run.prediction_shape()
        self._goal = channels, height, width
        self._output = output if output is not None and math.prod(output) == math.prod(self._goal) else list(self._goal)
        self._age = max(run.gradient_age(), default=0)
        self._times: collections.deque[tuple[int, float]] = collections.deque()
        self._count = 0
        self._left, self.lock = False, threading.Lock()
        run.start(live, max(min(ahead, _MOST_NUMBERS // math.prod(self._goal)), 2))

    def give(self, frame: Any, target: Any, time: float | None = None, segment: int = 0) -> int:
        """Copies a frame and, for pairs, its target (None: unknown). A frame of another segment is not the next of the
        one before. Returns its number; -1: the stream is over."""
        number = self._count
        tensor = _frames.frame(frame, number, self._features)
        if tuple(tensor.shape) != self._shape:
            raise Error(f"frame {number}: has the shape {list(tensor.shape)}, those before {list(self._shape)}")
        told = _frames.target(target, number, self._goal, self._features, self._classes) if self.pairs else None
        if time is not None:
            try:
                time = float(time)
            except (TypeError, ValueError):
                raise Error(f"frame {number}: time is {time!r}; it must be in seconds") from None
            if not math.isfinite(time):
                raise Error(f"frame {number}: time is {time}")
            self._times.append((number, time))
        self._count += 1
        given: int = self._unless_left(self.run.give, tensor.data_ptr(), 0 if told is None else told.data_ptr(),
                                       time or 0.0, segment)
        return given

    def give_all(self, items: Iterator[Item]) -> None:
        """Gives all frames, or pairs, until the run is stopped."""
        for item, time, segment, lost in items:
            self._unless_left(self.run.lose, *lost)
            if item is END:
                return
            pair = _frames.is_pair(item)
            if (pair or self.own) != self.pairs:
                due = "an (input, target) pair" if self.pairs else "a frame without a target"
                raise Error(f"frame {self._count}: {due} is due")
            with inside():
                frame, target = item if pair else (item, item)
                number = self.give(frame, target, time, segment)
            if number < 0:
                return

    def end(self) -> None:
        """No frame follows."""
        self._unless_left(self.run.end)

    def leave(self) -> None:
        """Discards what waits, and what is still being read: by then `run` may be another stream's."""
        self._left = True
        self.run.stop()  # so that it does not wait in give()
        if not _leaving.is_set():  # then threads stand still
            with self.lock:
                pass
        halt(self.run)

    def _unless_left(self, act: Callable[..., Any], *given: Any) -> Any:
        with self.lock:
            return -1 if self._left else act(*given)

    def take(self, ms: int) -> Result | None:
        """The next result, if it comes within `ms` milliseconds."""
        found = self.run.next(ms)
        if found is None:
            return None
        index, frame, loss, prediction, latency, picture, novelty, event = found
        time = None
        while self._times and self._times[0][0] <= frame:
            number, stamp = self._times.popleft()
            time = stamp if number == frame else None
        return Result(index, loss, torch.from_numpy(prediction).reshape(self._output), self._age, latency, frame, time,
                      None if picture is None else torch.from_numpy(picture), novelty,
                      json.loads(event) if event else None)


class Inbox:
    """Takes the results of a stream on its own thread, and passes them to `see` or keeps the latest for take()."""

    KEPT = 256

    def __init__(self, stream: Stream, see: Callable[[Result], None] | None, before: "Inbox | None") -> None:
        """`before`: whose results have not all been taken; they move here."""
        self._stream, self.see = stream, see
        self._changed = threading.Condition()
        self._results: collections.deque[Result] = collections.deque(maxlen=self.KEPT)
        while before is not None and (result := before.pop()) is not None:
            self._results.append(result)
        self._over = False
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._take, name="millrace-results", daemon=True)
        _inboxes.add(self)
        self._thread.start()

    def _take(self) -> None:
        try:
            while not self._stream.run.over():
                result = self._stream.take(WAIT_MS)
                if result is None:
                    continue
                if self.see is not None:
                    self.see(result)
                    continue
                with self._changed:
                    self._results.append(result)
                    self._changed.notify_all()
        except BaseException as error:  # the engine's or the callback's; check() raises it
            self._error = error
            halt(self._stream.run)
        with self._changed:
            self._over = True
            self._changed.notify_all()

    def pop(self) -> Result | None:
        """The oldest result, if there is one."""
        with self._changed:
            return self._results.popleft() if self._results else None

    def take(self, timeout: float) -> Result | None:
        """The oldest result, if it comes within `timeout` seconds."""
        self.wait(timeout)
        if (result := self.pop()) is None:
            self.check()
        return result

    def wait(self, timeout: float) -> None:
        """Until there is a result or the stream is over, at most `timeout` seconds."""
        with self._changed:
            self._changed.wait_for(lambda: self._results or self._over, timeout)

    def check(self) -> None:
        """Raises, once, the error that ended the stream."""
        error, self._error = self._error, None
        if error is not None:
            raise error

    def tell(self) -> None:
        """Prints the error that check() never raised."""
        try:
            self.check()
        except BaseException:
            traceback.print_exc()

    def over(self) -> bool:
        """Whether all results have been taken."""
        with self._changed:
            return self._over and not self._results

    def join(self) -> None:
        while self._thread.is_alive():
            self._thread.join(WAIT_MS / 1000)


class Elsewhere:
    """Stands for what a forked process has inherited without the threads that learn: nothing waits for them, and any
    use is refused."""

    see: Callable[[Result], None] | None = None

    def __init__(self, *inherited: Any) -> None:
        # Not even destroyed: that might wait for a lock which a thread held.
        for one in inherited:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(one))

    def over(self) -> bool:
        return True

    def stop(self) -> None:
        pass

    def join(self) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        raise Error("this Trainer was learning when the process was forked: a child process needs one of its own")


def forget() -> None:
    """For a forked process, whose exit waits for no stream."""
    _inboxes.clear()
    _inside.clear()


@atexit.register  # runs before _millrace's own, which stops all other threads
def _leave() -> None:
    """Ends the streams that are still open. One that does not end in time, as its function for results may not return,
    is abandoned."""
    _leaving.set()
    for inbox in list(_inboxes):
        inbox._stream.run.stop()
    end = time.monotonic() + LEAVE_S
    while _inside and time.monotonic() < end:
        time.sleep(0.01)
    for inbox in list(_inboxes):
        inbox._thread.join(max(0.0, end - time.monotonic()))
        inbox.tell()
