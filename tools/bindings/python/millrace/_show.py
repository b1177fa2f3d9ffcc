"""Results as pictures, and the progress of a loop."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

import numpy
import torch

T = TypeVar("T")
_ORANGE = torch.tensor([230, 159, 0], dtype=torch.uint8)[:, None, None]
_LEGIBLE = 384  # pixels across


def progress(items: Iterable[T]) -> Iterator[T]:
    """`items` with tqdm's count and rate, if it is installed."""
    try:
        from tqdm.auto import tqdm
    except ImportError:
        return iter(items)
    return iter(tqdm(items, unit="frame", disable=None))


def png(pictures: Sequence[torch.Tensor], box: Sequence[int] = ()) -> bytes:
    """Pictures [C,H,W] in 0..1 of one height, side by side; `box`: x, y, width, height in the first."""
    scale = max(1, _LEGIBLE // pictures[0].size(2))
    rgb = [(one[: 3 if one.size(0) > 2 else 1].clamp(0, 1) * 255).to(torch.uint8).expand(3, -1, -1) for one in pictures]
    whole = torch.cat(rgb, 2).repeat_interleave(scale, 1).repeat_interleave(scale, 2)
    if box:
        x, y, width, height = (side * scale for side in box)
        inner = whole[:, y + 2:y + height - 2, x + 2:x + width - 2].clone()
        whole[:, y:y + height, x:x + width] = _ORANGE
        whole[:, y + 2:y + height - 2, x + 2:x + width - 2] = inner
    height, width = whole.shape[1:]
    rows = numpy.pad(whole.permute(1, 2, 0).reshape(height, width * 3).numpy(), ((0, 0), (1, 0)))  # 0: unfiltered
    parts = [(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)), (b"IDAT", zlib.compress(rows.tobytes())),
             (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in parts)
