"""Converts users' frames and targets to contiguous float32 CPU tensors."""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

import numpy
import torch

from millrace._error import Error, nearest

Named = Mapping[object, Any]
_SCALES = {torch.bool: 1, torch.uint8: 255, torch.uint16: 65535}  # of pictures
_PILLOWS = {mode: mode for mode in ("1", "L", "I", "F", "I;16", "I;16L", "I;16B")} | {"LA": "L", "La": "L"}  # others: RGB


def _tensor(value: Any, what: str) -> torch.Tensor:
    """An array of numbers as a tensor of its own type, if PyTorch has it."""
    if not isinstance(value, torch.Tensor) and (hasattr(value, "__array__") or hasattr(value, "__array_interface__")):
        array = numpy.asarray(value)
        if array.dtype.kind == "f" or array.dtype.name == "bfloat16":
            array = array.astype(numpy.float32, copy=False)
        if array.dtype.kind in "biuf":
            value = torch.from_numpy(numpy.require(array, array.dtype.newbyteorder("="), ("C", "W")))
        else:
            raise Error(f"{what}: is {array.dtype}; it must be float32, or uint8 (a picture)")
    if not isinstance(value, torch.Tensor):
        raise Error(f"{what}: is a {type(value).__name__}; it must be a numpy array, a torch tensor or a PIL image")
    if value.layout != torch.strided or value.is_meta:
        raise Error(f"{what}: is {'a meta' if value.is_meta else 'a sparse'} tensor; it must be a plain one")
    if value.is_complex() or value.is_quantized:
        raise Error(f"{what}: is {str(value.dtype).removeprefix('torch.')}; it must be float32, or uint8 (a picture)")
    return value.detach().cpu()


def _picture(value: Any, what: str) -> torch.Tensor:
    """[C,H,W] in 0..1: of float32 [C,H,W]; of bytes [H,W,C], as cv2, PIL and imageio give them, or [C,H,W], as
    torchvision does; of grey [H,W]. Shares memory with contiguous float32."""
    pillow = sys.modules.get("PIL.Image")
    if pillow is not None and isinstance(value, pillow.Image):
        value = value.convert(_PILLOWS.get(value.mode, "RGB"))
    tensor = _tensor(value, what)
    if tensor.dim() == 4 and tensor.size(0) == 1:
        tensor = tensor[0]
    if tensor.dim() == 2:
        tensor = tensor[None]
    if tensor.dim() != 3:
        raise Error(f"{what}: has the shape {list(tensor.shape)}; it must be [C,H,W], or of uint8 [H,W,C]")
    if tensor.is_floating_point():
        return tensor.to(torch.float32).contiguous()
    if tensor.dtype not in _SCALES:
        raise Error(f"{what}: is {str(tensor.dtype).removeprefix('torch.')}; a picture is float32 in 0..1 or uint8")
    last, first = (tensor.size(side) in (1, 3, 4) for side in (2, 0))
    if last and not (first and isinstance(value, torch.Tensor)):
        tensor = tensor.permute(2, 0, 1)
    return (tensor.to(torch.float32) / _SCALES[tensor.dtype]).contiguous()


def _features(x: Named, what: str, names: list[Any]) -> torch.Tensor:
    """[C,1,1]: features in the order of `names`; if these are empty, the first dict sets them."""
    order = names or sorted(x, key=str)
    if other := [name for name in x if name not in order]:
        alike = nearest(str(other[0]), map(str, order))
        raise Error(f"{what}: has an unknown feature \"{other[0]}\"; the nearest is \"{alike}\"")
    values: list[float] = []
    for name in order:
        if name not in x:
            raise Error(f"{what}: lacks the feature \"{name}\", which those before had")
        try:
            values.append(float(x[name]))
        except (TypeError, ValueError):
            raise Error(f"{what}: feature \"{name}\" is {x[name]!r}; it must be a number in 0..1") from None
    names[:] = order
    return torch.tensor(values, dtype=torch.float32)[:, None, None]


def is_pair(item: Any) -> bool:
    """Whether it is a frame and its target."""
    if not isinstance(item, (tuple, list)):
        return False
    item = cast("Sequence[Any]", item)
    if len(item) != 2:
        raise Error(f"a frame is a {type(item).__name__} of {len(item)}; it must be an array, or a pair of it and its target")
    return True


def each(items: Iterable[Any], what: str) -> Iterator[Any]:
    """An iterator of the user's frames or targets."""
    try:
        return iter(items)
    except TypeError:
        raise Error(f"{what}: an iterable, such as a list, is due, not {items!r}") from None


def pairs(frames: Iterable[Any], targets: Iterable[Any]) -> Iterator[tuple[Any, Any]]:
    """Each frame and its target."""
    none = object()
    both = itertools.zip_longest(each(frames, "frames"), each(targets, "targets"), fillvalue=none)
    for number, pair in enumerate(both):
        if pair[0] is none or pair[1] is none:
            fewer, more = ("frames", "targets") if pair[0] is none else ("targets", "frames")
            raise Error(f"fit: there are {number} {fewer} and more {more}; it needs as many of each")
        yield pair


def frame(value: Any, number: int, names: list[Any]) -> torch.Tensor:
    """[C,H,W], or [C,1,1] for features by name, as _features() orders them."""
    what = f"frame {number}"
    tensor = _features(cast(Named, value), what, names) if isinstance(value, Mapping) else _picture(value, what)
    if not tensor.numel():
        raise Error(f"{what}: has the shape {list(tensor.shape)}: it is empty")
    low, high = (one.item() for one in torch.aminmax(tensor))
    if not 0 <= low <= high <= 1:  # also false for NaN
        bytes_ = "; divide bytes by 255" if low >= 0 and 2 < high <= 255 else ""
        raise Error(f"{what}: has values from {low:.4g} to {high:.4g}; they must be in 0..1{bytes_}")
    return tensor


def _number_of(name: str, what: str, classes: Sequence[str]) -> int:
    if not classes:
        raise Error(f"{what}: is the name \"{name}\"; list the names: classes=[\"{name}\", ...]")
    if name not in classes:
        raise Error(f"{what}: \"{name}\" is not in task.classes; the nearest is \"{nearest(name, classes)}\"")
    return classes.index(name)


def target(value: Any, number: int, shape: tuple[int, int, int], names: list[Any],
           classes: Sequence[str] | None) -> torch.Tensor | None:
    """A tensor of the network's output `shape`; None: no target. `classes`: their names, if it learns classes: then
    numbers and names, one or [H,W] of numbers, become one-hot."""
    what = f"target {number}"
    if isinstance(value, str):
        value = _number_of(value, what, classes or ())
    elif isinstance(value, Mapping):
        value = _features(cast(Named, value), what, names)
    if value is None:
        return None
    tensor = _tensor(numpy.asarray(value) if isinstance(value, (bool, int, float)) else value, what)
    if tensor.numel() == 1 and math.prod(shape) > 1:
        value = tensor.item()
        if shape[1:] != (1, 1):
            raise Error(f"{what}: is a number; the network gives {list(shape)}")
        if value not in range(shape[0]):
            raise Error(f"{what}: class {value} is out of range: the network has {shape[0]} classes")
        tensor = (torch.arange(shape[0], device="cpu") == value).to(torch.float32)
    elif (classes is not None and not tensor.is_floating_point() and shape[0] > 1
          and _sides(tensor.shape) == _sides(shape[1:])):
        pixels = tensor.reshape(1, *shape[1:]).to(torch.int64)  # other numbers have no target
        tensor = (pixels == torch.arange(shape[0], device="cpu")[:, None, None]).to(torch.float32)
        if not tensor.any():
            return None
    elif classes is None and tensor.dtype in _SCALES and shape[1:] != (1, 1):
        tensor = _picture(value, what)
    if _sides(tensor.shape) != _sides(shape):
        raise Error(f"{what}: has the shape {list(tensor.shape)}; the network gives {list(shape)}")
    if not tensor.isfinite().all():
        raise Error(f"{what}: holds numbers that are not finite; a frame without a target has the target None")
    return tensor.to(torch.float32).contiguous()


def _sides(shape: Sequence[int]) -> list[int]:
    return [side for side in shape if side != 1]
