"""What a slope is the sum of: the gradient's entries times those of a direction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import hypot
from typing import Any

import torch
from torch import Tensor

from subgrad.clarke.engine.duals import values
from subgrad.torch_internals.tensors import flatten_dense_tensors

SMALL = 10_000  # entries; what has more is checked in ways that cost less
WIDE = (torch.float32, torch.float64)


@dataclass(frozen=True)
class Sizes:
    """How large the terms are that a slope is the sum of.

    Attributes:
        moved: of the gradient's entries times those of the direction.
        here: of the gradient's entries times the point's own, whose last bits are lost when it is moved.
    """

    moved: float
    here: float


def product_of(gradient: Sequence[Tensor | None], ahead: Sequence[Tensor]) -> float:
    with values():
        return sum(numbers(list(map(torch.dot, *_laid_out(ahead, gradient, ahead)))), 0.0)


def sizes(gradient: Sequence[Tensor | None], ahead: Sequence[Tensor], leaves: Sequence[Tensor]) -> Sizes:
    """Of the terms along a direction, and at a point, if it is given."""
    with values():
        slopes, moved, *here = _laid_out(ahead, gradient, ahead, *([leaves] if leaves else []))
        rounded = [(slope * x).nan_to_num_(0, 0, 0) for slope, x in zip(slopes, *here, strict=True)] if here else []
        return Sizes(_length([slope * v for slope, v in zip(slopes, moved, strict=True)]), _length(rounded))


def product_and_size(gradient: Sequence[Tensor | None], ahead: Sequence[Tensor]) -> tuple[float, float]:
    """The same two along a direction, at once."""
    with values():
        pairs = list(zip(*_laid_out(ahead, gradient, ahead), strict=True))
        return sum(numbers([torch.dot(*each) for each in pairs]), 0.0), _length([slope * v for slope, v in pairs])


def length(ahead: Sequence[Tensor]) -> float:
    with values():
        return _length(*_laid_out(ahead, ahead))


def _length(parts: Sequence[Tensor]) -> float:
    return hypot(*numbers([torch.linalg.vector_norm(each, dtype=torch.float64) for each in parts]))


def _laid_out(like: Sequence[Tensor], *vectors: Sequence[Tensor | None]) -> list[list[Tensor]]:
    """Each vector in parts without shape: a large tensor is one, all small ones of a device another, in doubles."""
    large, small = [], dict[Any, list[int]]()
    for number, leaf in enumerate(like):
        if leaf.numel() > SMALL and leaf.dtype in WIDE:
            large.append(number)
        else:
            small.setdefault(None if leaf.is_cpu else leaf.device, []).append(number)
    found = []
    for vector in vectors:
        dense = [
            each if each is not None and each.layout is torch.strided else _dense(each, leaf)
            for each, leaf in zip(vector, like, strict=True)
        ]
        joined = [flatten_dense_tensors([dense[each] for each in group]).double() for group in small.values()]
        found.append([*[dense[each].reshape(-1) for each in large], *joined])
    return found


def _dense(each: Tensor | None, like: Tensor) -> Tensor:
    return torch.zeros_like(like) if each is None else each.to_dense()


def numbers(tensors: Sequence[Tensor]) -> list[float]:
    """Scalars on a device, all read at once."""
    if len(tensors) == 1 or all(each.is_cpu for each in tensors):  # where there is nothing to wait for twice
        return [each.item() for each in tensors]
    with values():
        if any(each.shape or each.dtype != tensors[0].dtype or each.device != tensors[0].device for each in tensors):
            tensors = [each.reshape(()).to(tensors[0].device, torch.float64) for each in tensors]
        return torch.stack(list(tensors)).tolist()
