"""A run's log as an event file, for `millrace tensorboard`."""

import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

from torch.utils.tensorboard import SummaryWriter

from millrace._error import fail
from millrace._export import write_whole


def frames(lines: list[str]) -> Iterator[dict[str, Any]]:
    """Skips lines that a crash cut off or that are still being written."""
    for text in lines:
        try:
            line = json.loads(text)
        except ValueError:
            continue
        if isinstance(line, dict) and isinstance(line.get("frame"), int) and isinstance(line.get("time"), (int, float)):
            yield line


def main(log: str, folder: str) -> int:
    """Writes each number of a frame as a scalar; a list's elements are "name/0", ... Returns the exit code."""
    try:
        lines = Path(log).read_text("utf-8", "replace").splitlines()
    except OSError as error:
        return fail(f"{log}: {error.strerror}", 2)
    found = list(frames(lines))
    if not found:
        return fail(f"{log}: holds no line that output.log wrote", 2)
    with tempfile.TemporaryDirectory() as temporary:
        with SummaryWriter(temporary) as writer:
            for line in found:
                lists = {f"{name}/{i}": item for name, items in line.items() if isinstance(items, list)
                         for i, item in enumerate(cast(list[object], items))}
                for name, value in {**line, **lists}.items():
                    if name not in ("frame", "time") and isinstance(value, (int, float)):
                        writer.add_scalar(name, value, line["frame"], line["time"])
        events = next(Path(temporary).iterdir()).read_bytes()
    # TensorBoard looks for "tfevents" in the name. The name depends only on the log, so converting a
    # grown log again doesn't show the run twice.
    path = f"{folder}/events.out.tfevents.{found[0]['time']:010.0f}.millrace"
    try:
        os.makedirs(folder, exist_ok=True)
        write_whole(path, events)
    except OSError as error:
        return fail(f"{path}: {error.strerror}")
    skipped = len(lines) - len(found)
    print(f"{path}: {len(found)} frames" + (f", {skipped} lines skipped: not frames" if skipped else ""))
    return 0
