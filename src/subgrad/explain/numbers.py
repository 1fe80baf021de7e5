"""Tensors as frozen data: their entries, and how many there are in each dimension."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

from torch import Tensor

Index = tuple[int, ...]


@dataclass(frozen=True)
class Numbers:
    """The entries of a tensor, in their order."""

    shape: tuple[int, ...]
    entries: tuple[float, ...]

    @classmethod
    def of(cls, tensor: Tensor) -> Numbers:
        return cls(tuple(tensor.shape), tuple(float(each) for each in tensor.detach().flatten().tolist()))

    def items(self) -> Iterator[tuple[Index, float]]:
        return zip(product(*map(range, self.shape)), self.entries, strict=True)

    def __getitem__(self, index: Index) -> float:
        place = 0
        for size, each in zip(self.shape, index, strict=True):
            place = place * size + each
        return self.entries[place]

    def nested(self) -> Any:
        """Lists of lists, as they are written."""

        def rows(shape: tuple[int, ...], entries: tuple[float, ...]) -> Any:
            if not shape:
                return entries[0]
            step = len(entries) // shape[0] if shape[0] else 0
            return [rows(shape[1:], entries[i * step : (i + 1) * step]) for i in range(shape[0])]

        return rows(self.shape, self.entries)


def named(name: str, index: Index) -> str:
    """``w[2,1]``; the name alone for a number."""
    return f"{name}[{','.join(map(str, index))}]" if index else name
