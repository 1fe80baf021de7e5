"""Reach: which entries of an operator's operands and results depend on each other.

An entry of an operand is *dead* where every cotangent that reaches it is exactly 0, and an entry of a result where
every tangent is that reaches it. Each kind of reach says so in both directions, from where one tensor is 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

Arguments = Mapping[str, Any]  # the numbers of a call, by name


@dataclass(frozen=True)
class Reach:
    """Everything depends on everything."""

    def dead_in(self, zero: Tensor, like: Tensor, name: str, given: Arguments) -> Tensor | None:
        """Which entries of the operand ``name``, or of its gradient ``like``, are dead by one result.

        ``zero`` is where the cotangent of that is 0. The answer is broadcast to ``like``; None if it is not known.
        """
        return None

    def dead_out(self, zero: Tensor, like: Tensor, name: str, given: Arguments) -> Tensor | None:
        """Which entries of a result, or of its tangent ``like``, are dead by the operand ``name``, as well."""
        return None


class Whole(Reach):
    """Everything depends on everything."""


class Products(Reach):
    """A sum of products of two operands; what is dead is told term by term."""


class Entries(Reach):
    """An entry of the result on one of each operand, if none is broadcast; a loss may be the sum of all."""

    def dead_in(self, zero: Tensor, like: Tensor, name: str, given: Arguments) -> Tensor | None:
        if zero.shape == like.shape:
            return zero
        return zero.reshape(()) if zero.numel() == 1 else None

    def dead_out(self, zero: Tensor, like: Tensor, name: str, given: Arguments) -> Tensor | None:
        return None if like.numel() == 1 else zero


class Halves(Reach):
    """`glu`: an entry of the result on one of each half of the operand."""

    def dead_in(self, zero: Tensor, like: Tensor, name: str, given: Arguments) -> Tensor | None:
        return torch.cat([zero, zero], given["dim"])

    def dead_out(self, zero: Tensor, like: Tensor, name: str, given: Arguments) -> Tensor | None:
        first, second = zero.chunk(2, given["dim"])
        return first & second


class Lines(Reach):
    """Entries along a dimension on each other."""

    def dead_in(self, zero: Tensor, like: Tensor, name: str, given: Arguments) -> Tensor | None:
        return all_along(zero, [given["dim"]]) if zero.shape == like.shape else None

    dead_out = dead_in


class Prefixes(Reach):
    """Entries along a dimension on those before them."""

    def dead_in(self, zero: Tensor, like: Tensor, name: str, given: Arguments) -> Tensor | None:
        if not zero.ndim:
            return zero
        dim = given["dim"]
        return ((~zero).flip(dim).cumsum(dim) == 0).flip(dim)

    def dead_out(self, zero: Tensor, like: Tensor, name: str, given: Arguments) -> Tensor | None:
        return (~zero).cumsum(given["dim"]) == 0 if zero.ndim else zero


class Reduced(Reach):
    """An entry of the result on those that it was reduced from."""

    def dead_in(self, zero: Tensor, like: Tensor, name: str, given: Arguments) -> Tensor | None:
        if not given.get("keepdim", False):
            for dim in sorted(_dims(given.get("dim"), like.ndim)):
                zero = zero.unsqueeze(dim)
        return zero

    def dead_out(self, zero: Tensor, like: Tensor, name: str, given: Arguments) -> Tensor | None:
        return all_along(zero, _dims(given.get("dim"), zero.ndim)).reshape(like.shape)


class Distances(Reach):
    """A distance on the two rows that it lies between."""

    def dead_in(self, zero: Tensor, like: Tensor, name: str, given: Arguments) -> Tensor | None:
        if zero.shape[:-2] != like.shape[:-2]:
            return None
        return all_along(zero, [-1]) if name == "x1" else all_along(zero, [-2]).mT

    def dead_out(self, zero: Tensor, like: Tensor, name: str, given: Arguments) -> Tensor | None:
        rows = all_along(zero, [-1])
        return rows if name == "x1" else rows.mT


class Attention(Reach):
    """A row of the result on its query and all keys of its head, a column on that of the values."""

    def dead_in(self, zero: Tensor, like: Tensor, name: str, given: Arguments) -> Tensor | None:
        if name not in ("query", "key", "value") or zero.ndim != like.ndim or zero.shape[:-2] != like.shape[:-2]:
            return None
        return all_along(zero, {"query": [-1], "key": [-1, -2], "value": [-2]}[name])

    dead_out = dead_in


class LastDims(Reach):
    """Entries on those with which they are normalised: over the last dimensions."""

    def dead_in(self, zero: Tensor, like: Tensor, name: str, given: Arguments) -> Tensor | None:
        dims = [-1 - dim for dim in range(len(given["normalized_shape"]))]
        is_of_rows = zero.ndim == like.ndim and zero.shape[: -len(dims)] == like.shape[: -len(dims)]
        return all_along(zero, dims) if is_of_rows else None

    dead_out = dead_in


class GroupNorm(Reach):
    """Entries on those of the same group of channels."""

    def dead_in(self, zero: Tensor, like: Tensor, name: str, given: Arguments) -> Tensor | None:
        if zero.ndim < 2 or like.ndim < 2:  # the weight of a channel
            return None
        groups = max(1, given["N"] * given["group"])  # reshape cannot tell how many are in each of none
        zero = zero.reshape(given["N"], given["group"], zero.numel() // groups)
        return all_along(zero, [-1]).expand(*zero.shape[:2], like.numel() // groups).reshape(like.shape)

    dead_out = dead_in


class BatchNorm(Reach):
    """Entries on those of the same channel, if the statistics are those of the batch."""

    def dead_in(self, zero: Tensor, like: Tensor, name: str, given: Arguments) -> Tensor | None:
        if zero.ndim == like.ndim > 1 and not given.get("training", True):
            return zero
        channels = zero if zero.ndim == 1 else all_along(zero, dims_but_channels(zero)).reshape(-1)
        if like.ndim == 1:
            return channels if channels.shape == like.shape else None
        return channels.reshape(1, -1, *[1] * (like.ndim - 2)) if len(channels) == like.shape[1] else None

    dead_out = dead_in


class Batches(Reach):
    """Entries on those of the same matrix of a batch."""

    def dead_in(self, zero: Tensor, like: Tensor, name: str, given: Arguments) -> Tensor | None:
        return _by_matrix(zero, like, like.shape[:-2])

    def dead_out(self, zero: Tensor, like: Tensor, name: str, given: Arguments) -> Tensor | None:
        return _by_matrix(zero, like, zero.shape[:-2])


def _by_matrix(zero: Tensor, like: Tensor, batch: Sequence[int]) -> Tensor | None:
    if zero.shape[: len(batch)] != like.shape[: len(batch)]:
        return None
    found = all_along(zero, range(len(batch), zero.ndim))
    return found.reshape((*batch, *[1] * (like.ndim - len(batch))))


def all_along(zero: Tensor, dims: Sequence[int]) -> Tensor:
    """Whether all entries along some dimensions are, which stay as ones."""
    for dim in dims if zero.ndim else ():
        zero = zero.all(dim, keepdim=True)
    return zero


def dims_but_channels(like: Tensor) -> list[int]:
    return [dim for dim in range(like.ndim) if dim != 1]


def _dims(dim: Any, ndim: int) -> list[int]:
    """The dimensions of a reduction; none and no dimension mean all."""
    given = [dim] if isinstance(dim, int) else list(dim or range(ndim))
    return [each % ndim for each in given] if ndim else []
