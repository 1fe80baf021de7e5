"""Groups of rows: which segment of ``segment_reduce``, or bag of ``embedding_bag``, each row is in."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, prod

import torch
from torch import Tensor


@dataclass(frozen=True)
class Groups:
    """Rows in groups.

    Attributes:
        rows: a matrix.
        number: of the group that each row is in; ``count`` for rows that are in none.
        count: of the groups, those without rows included.
    """

    rows: Tensor
    number: Tensor
    count: int

    def tied(self, largest: bool, start: float | None = None) -> Tensor:
        """Which groups hold their largest, or smallest, entry more than once; or equal to where they start from."""
        index = self.number.unsqueeze(1).expand_as(self.rows)
        none = self.rows.new_full((self.count + 1, self.rows.shape[1]), -inf if largest else inf)
        selected = none.scatter_reduce(0, index, self.rows, "amax" if largest else "amin")
        meets = (self.rows == selected.gather(0, index)).long()
        times = torch.zeros_like(none, dtype=torch.long).scatter_add(0, index, meets)[:-1]
        return times > 1 if start is None else (times > 0) & (selected[:-1] == start)


def segment_numbers(data: Tensor, lengths: Tensor | None, offsets: Tensor | None, axis: int) -> tuple[Tensor, int]:
    """The segment of each place along the axis and those before it, and how many there are; their number for none."""
    axis %= data.ndim
    if lengths is None:
        assert offsets is not None, "segment_reduce is given one of the two"
        first, ends = offsets[..., :1], offsets[..., 1:].contiguous()
    else:
        first, ends = 0, lengths.cumsum(-1)
    places = torch.arange(data.shape[axis], device=data.device, dtype=ends.dtype)
    places = places.expand(data.shape[: axis + 1]).contiguous()
    found = torch.searchsorted(ends, places, right=True)  # `right`: segments without entries are passed over
    return torch.where(places >= first, found, ends.shape[-1]), ends.shape[-1]


def segments(data: Tensor, lengths: Tensor | None, offsets: Tensor | None, axis: int) -> Groups:
    """The groups of ``segment_reduce``, which may have other lengths in every batch."""
    axis %= data.ndim
    number, count = segment_numbers(data, lengths, offsets, axis)
    batches = prod(data.shape[:axis])
    number = number.reshape(batches, data.shape[axis])
    batch = torch.arange(batches, device=data.device).unsqueeze(1)
    number = torch.where(number < count, number + batch * count, batches * count)
    return Groups(data.reshape(number.numel(), prod(data.shape[axis + 1 :])), number.flatten(), batches * count)


def bag_numbers(indices: Tensor, offsets: Tensor, bags: int, padding_idx: int) -> Tensor:
    """The bag of each index; the number of bags for padding, which is in none."""
    places = torch.arange(len(indices), device=indices.device, dtype=offsets.dtype)
    bag = torch.searchsorted(offsets[:bags].contiguous(), places, right=True) - 1
    return torch.where(indices == padding_idx, bags, bag)


def bags(weight: Tensor, indices: Tensor, offsets: Tensor, padding_idx: int, include_last_offset: bool) -> Groups:
    """The groups of ``embedding_bag``; a row that is looked up twice in a bag is one."""
    count = len(offsets) - include_last_offset
    number = bag_numbers(indices, offsets, count, padding_idx)
    pairs = torch.unique(number * len(weight) + indices)
    return Groups(weight[pairs % len(weight)], pairs // len(weight), count)
