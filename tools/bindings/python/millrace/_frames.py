"""Converts users' frames and targets to contiguous float32 CPU tensors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy
import torch

from millrace._error import Error

_SCALARS = (int, numpy.integer)


def _plain(value: Any, what: str) -> torch.Tensor:
    if isinstance(value, numpy.ndarray):
        try:
            value = torch.from_numpy(value if value.flags.writeable else value.copy())
        except (TypeError, ValueError) as error:
            raise Error(f"{what}: {error}") from error
    if not isinstance(value, torch.Tensor):
        raise Error(f"{what}: is a {type(value).__name__}; it must be a numpy array or a torch tensor")
    if value.layout != torch.strided or value.is_meta:
        raise Error(f"{what}: is {'a meta' if value.is_meta else 'a sparse'} tensor; it must be a plain one")
    if not value.is_floating_point():
        raise Error(f"{what}: is {str(value.dtype).removeprefix('torch.')}; it must be float32 (a picture: in 0..1)")
    return value.detach().to("cpu", torch.float32).contiguous()  # copies only if needed


def frame(value: Any, number: int) -> torch.Tensor:
    """[C,H,W], or [C,1,1] for features by name. Shares memory with a contiguous float32 `value`."""
    if isinstance(value, Mapping):
        value = torch.tensor([float(one) for one in value.values()])[:, None, None]
    tensor = _plain(value, f"frame {number}")
    if tensor.dim() == 4 and tensor.size(0) == 1:
        tensor = tensor[0]
    if tensor.dim() != 3:
        raise Error(f"frame {number}: has the shape {list(tensor.shape)}; it must be [C,H,W]")
    if not tensor.numel():
        raise Error(f"frame {number}: has the shape {list(tensor.shape)}: it is empty")
    low, high = (one.item() for one in torch.aminmax(tensor))
    if not 0 <= low <= high <= 1:  # also false for NaN
        bytes_ = "; divide bytes by 255" if low >= 0 and 2 < high <= 255 else ""
        raise Error(f"frame {number}: has values from {low:.4g} to {high:.4g}; they must be in 0..1{bytes_}")
    return tensor


def target(value: Any, number: int, shape: tuple[int, int, int]) -> torch.Tensor | None:
    """A tensor of the network's output `shape`. Class numbers, one or [H,W], become one-hot. None stays None."""
    if value is None:
        return None
    what, numbers = f"target {number}", shape[0] * shape[1] * shape[2]
    if isinstance(value, (torch.Tensor, numpy.ndarray)) and value.ndim == 0:
        value = value.item()
    if isinstance(value, _SCALARS) and not isinstance(value, bool):
        if shape[1:] != (1, 1) or not 0 <= value < numbers:
            raise Error(f"{what}: class {value} is out of range: the network has {shape[0]} classes"
                        if shape[1:] == (1, 1) else f"{what}: is a number; the network gives {list(shape)}")
        told = torch.zeros(numbers)
        told[int(value)] = 1
        return told
    if isinstance(value, (torch.Tensor, numpy.ndarray)) and tuple(value.shape) == tuple(shape[1:]) and (
            not torch.as_tensor(value).is_floating_point()):
        classes = torch.as_tensor(value)  # of pixels; invalid numbers have no target
        told = (classes[None] == torch.arange(shape[0])[:, None, None]).float()
        return told if told.any() else None
    tensor = _plain(value, what)
    sides = list(tensor.shape)
    while len(sides) > 3 and sides[0] == 1:
        sides = sides[1:]
    if [*sides, *[1] * (3 - len(sides))] != list(shape) and (
            [*sides[1:], *[1] * (4 - len(sides))] != list(shape) or sides[0] != 1):
        raise Error(f"{what}: has the shape {list(tensor.shape)}; the network gives {list(shape)}")
    return tensor
