"""The windows of pooling operators: which entries each output is selected from."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from inspect import signature
from itertools import product
from math import prod
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class Windows:
    """For every output the positions of its candidates in the flattened spatial dimensions.

    Attributes:
        lines: for each dimension the places of the candidates along it, and which of them exist: windows may reach over
            the border, and differ in size. With leading dimensions where windows differ from plane to plane.
        sizes: the spatial shape of the input.
        slices: for regular windows the first place, step and end of each candidate, dimension by dimension, in an input
            padded by ``padding``.
    """

    lines: tuple[tuple[Tensor, Tensor], ...]
    sizes: tuple[int, ...]
    slices: tuple[tuple[slice, ...], ...] = ()
    padding: tuple[int, ...] = ()

    @property
    def shape(self) -> tuple[int, ...]:
        """That of the output, in space."""
        return tuple(index.shape[-2] for index, _ in self.lines)

    @property
    def is_whole(self) -> bool:
        """Whether all candidates exist."""
        return bool(self.slices) and not any(self.padding)

    @property
    def candidates(self) -> int:
        """How many each output has at most."""
        return prod(index.shape[-1] for index, _ in self.lines)

    # Not needed where windows are looked at by their slices.

    @cached_property
    def positions(self) -> Tensor:
        """Long, ``[..., outputs, candidates]``."""
        found, *rest = (index.clamp(0, size - 1) for (index, _), size in zip(self.lines, self.sizes, strict=True))
        for index, size in zip(rest, self.sizes[1:], strict=True):
            found = _outer(found * size, index, torch.add)
        return found

    @cached_property
    def valid(self) -> Tensor:
        """Which of the positions exist."""
        return reduce(lambda one, other: _outer(one, other, torch.logical_and), (exists for _, exists in self.lines))

    def columns(self, x: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Candidate after candidate: that of every output, shaped as the output, and whether it exists."""
        leading = x.shape[: -len(self.shape)]
        padded = torch.nn.functional.pad(x, self.padding) if any(self.padding) else x
        flat = None if self.slices else x.flatten(-len(self.shape))
        for column in range(self.candidates):
            if flat is None:
                entries = padded[(..., *self.slices[column])]
            elif self.positions.ndim == 2:
                entries = flat.index_select(-1, self.positions[:, column])
            else:
                entries = flat.gather(-1, self.positions[..., column].expand(*leading, -1))
            yield entries.reshape(*leading, *self.shape), self._exists(column)

    def _exists(self, column: int) -> Tensor:
        if self.is_whole:
            return self.lines[0][1].new_ones(())
        valid = self.valid[..., column]
        return valid.reshape(*valid.shape[:-1], *self.shape)

    def of(self, outputs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """For some outputs, numbered through all planes: their planes, their candidates' positions, which exist."""
        plane, output = outputs // prod(self.shape), outputs % prod(self.shape)
        # Windows that are the same in every plane, or one set of them for each.
        row = output if self.positions.ndim == 2 else outputs
        positions, valid = (each.reshape(-1, self.candidates)[row] for each in (self.positions, self.valid))
        return plane, positions, valid


def of_call(make: Callable[..., Windows], arguments: Mapping[str, Any]) -> Windows:
    """The windows of a call, from those of its arguments that ``make`` names."""
    return make(arguments["self"], *(arguments[name] for name in list(signature(make).parameters)[1:]))


def regular(
    x: Tensor,
    kernel_size: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] | int = 0,
    dilation: Sequence[int] | int = 1,
    ceil_mode: bool = False,
) -> Windows:
    """The windows of ``max_pool2d`` and its relatives, with their arguments."""
    given = (kernel_size, stride or kernel_size, padding, dilation)
    # One number in a list, too, is for all dimensions.
    dims = max(2 if x.ndim < 5 else 3, *(1 if isinstance(each, int) else len(each) for each in given))
    sizes, steps, pads, dilate = (_each(value, dims) for value in given)
    lines, slices, padded = [], [], []
    for size, k, s, p, d in zip(x.shape[-dims:], sizes, steps, pads, dilate, strict=True):
        room = size + 2 * p - d * (k - 1) - 1
        outputs = (-(-room // s) if ceil_mode else room // s) + 1
        if ceil_mode and (outputs - 1) * s >= size + p:
            outputs -= 1  # the last window must begin inside the padded input
        starts = torch.arange(outputs, device=x.device)[:, None] * s - p
        index = starts + torch.arange(k, device=x.device) * d
        lines.append((index, (index >= 0) & (index < size)))
        slices.append([slice(i * d, i * d + (outputs - 1) * s + 1, s) for i in range(k)])
        padded.append((p, max(0, (outputs - 1) * s + d * (k - 1) + 1 - size - p)))
    padding = tuple(amount for line in reversed(padded) for amount in line)  # as `pad` wants it: last dimension first
    return Windows(tuple(lines), tuple(x.shape[-dims:]), tuple(product(*slices)), padding)


def adaptive(x: Tensor, output_size: Sequence[int]) -> Windows:
    """The windows of ``adaptive_max_pool2d`` and its relatives."""
    dims, lines = len(output_size), []
    for size, outputs in zip(x.shape[-dims:], output_size, strict=True):
        i = torch.arange(outputs, device=x.device)[:, None]
        start, end = i * size // outputs, -(-(i + 1) * size // outputs)
        index = start + torch.arange(-(-size // outputs) + 1, device=x.device)
        lines.append((index, index < end))
    return Windows(tuple(lines), tuple(x.shape[-dims:]))


def fractional(x: Tensor, kernel_size: Sequence[int], output_size: Sequence[int], random_samples: Tensor) -> Windows:
    """The windows of ``fractional_max_pool2d`` and its relatives, which differ from plane to plane."""
    dims, lines = len(output_size), []
    # One number per plane and dimension; in two dimensions torch takes the one for the width first.
    columns = range(dims) if dims == 3 else reversed(range(dims))
    samples = random_samples if x.ndim > dims + 1 else random_samples.squeeze(0)
    for size, k, outputs, column in zip(x.shape[-dims:], kernel_size, output_size, columns, strict=True):
        u = samples[..., column, None]
        alpha = (size - k) / (outputs - 1) if outputs > 1 else 0.0
        steps = torch.arange(outputs, device=x.device)
        starts = ((steps + u) * alpha).long() - (u * alpha).long()
        starts = torch.where(steps == outputs - 1, size - k, starts)
        index = starts[..., None] + torch.arange(k, device=x.device)
        lines.append((index, torch.ones_like(index, dtype=torch.bool)))
    return Windows(tuple(lines), tuple(x.shape[-dims:]))


def _each(value: Sequence[int] | int, dims: int) -> list[int]:
    values = [value] if isinstance(value, int) else list(value)
    return values * dims if len(values) == 1 else values


def _outer(one: Tensor, other: Tensor, combine: object) -> Tensor:
    grid = combine(one[..., :, None, :, None], other[..., None, :, None, :])  # type: ignore[operator]
    return grid.flatten(-4, -3).flatten(-2, -1)
