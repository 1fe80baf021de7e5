"""The windows of pooling operators: which entries each output is selected from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product

import torch
from torch import Tensor


@dataclass(frozen=True)
class Windows:
    """For every output the positions of its candidates in the flattened spatial dimensions.

    Attributes:
        positions: long, ``[..., outputs, candidates]``; leading dimensions where they differ from plane to plane.
        valid: which of them exist: windows may reach over the border, and differ in size.
        shape: the spatial shape of the output.
        slices: for regular windows the first place, step and end of each candidate, dimension by dimension, in an input
            padded by ``padding``.
    """

    positions: Tensor
    valid: Tensor
    shape: tuple[int, ...]
    slices: tuple[tuple[slice, ...], ...] = ()
    padding: tuple[int, ...] = ()

    def columns(self, x: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Candidate after candidate: that of every output, shaped as the output, and whether it exists."""
        dims = len(self.shape)
        leading = x.shape[:-dims]
        padded = torch.nn.functional.pad(x, self.padding) if any(self.padding) else x
        flat = x.flatten(-dims)
        for column in range(self.positions.shape[-1]):
            if self.slices:
                entries = padded[(..., *self.slices[column])]
            elif self.positions.ndim == 2:
                entries = flat.index_select(-1, self.positions[:, column])
            else:
                entries = flat.gather(-1, self.positions[..., column].expand(*leading, -1))
            valid = self.valid[..., column]
            yield entries.reshape(*leading, *self.shape), valid.reshape(*valid.shape[:-1], *self.shape)


def regular(
    x: Tensor,
    kernel_size: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] | int = 0,
    dilation: Sequence[int] | int = 1,
    ceil_mode: bool = False,
) -> Windows:
    """The windows of ``max_pool2d`` and its relatives, with their arguments."""
    dims = len(kernel_size)
    steps, pads, dilate = (_each(value, dims) for value in (stride or kernel_size, padding, dilation))
    lines, slices, padded = [], [], []
    for size, k, s, p, d in zip(x.shape[-dims:], kernel_size, steps, pads, dilate, strict=True):
        room = size + 2 * p - d * (k - 1) - 1
        outputs = (-(-room // s) if ceil_mode else room // s) + 1
        if ceil_mode and (outputs - 1) * s >= size + p:
            outputs -= 1  # the last window must begin inside the padded input
        starts = torch.arange(outputs, device=x.device)[:, None] * s - p
        index = starts + torch.arange(k, device=x.device) * d
        lines.append((index, (index >= 0) & (index < size)))
        slices.append([slice(i * d, i * d + (outputs - 1) * s + 1, s) for i in range(k)])
        padded.append((p, max(0, (outputs - 1) * s + d * (k - 1) + 1 - size - p)))
    windows = _product(lines, x.shape[-dims:])
    padding = tuple(amount for line in reversed(padded) for amount in line)  # as `pad` wants it: last dimension first
    return replace(windows, slices=tuple(product(*slices)), padding=padding)


def adaptive(x: Tensor, output_size: Sequence[int]) -> Windows:
    """The windows of ``adaptive_max_pool2d`` and its relatives."""
    dims, lines = len(output_size), []
    for size, outputs in zip(x.shape[-dims:], output_size, strict=True):
        i = torch.arange(outputs, device=x.device)[:, None]
        start, end = i * size // outputs, -(-(i + 1) * size // outputs)
        index = start + torch.arange(-(-size // outputs) + 1, device=x.device)
        lines.append((index, index < end))
    return _product(lines, x.shape[-dims:])


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
    return _product(lines, x.shape[-dims:])


def _each(value: Sequence[int] | int, dims: int) -> list[int]:
    values = [value] if isinstance(value, int) else list(value)
    return values * dims if len(values) == 1 else values


def _product(lines: list[tuple[Tensor, Tensor]], sizes: Sequence[int]) -> Windows:
    """Windows from those of each dimension alone."""
    inside = [(index.clamp(0, size - 1), ok, size) for (index, ok), size in zip(lines, sizes, strict=True)]
    positions, valid, _ = inside[0]
    for index, ok, size in inside[1:]:
        positions = _outer(positions * size, index, torch.add)
        valid = _outer(valid, ok, torch.logical_and)
    shape = [index.shape[-2] for index, _, _ in inside]
    return Windows(positions, valid, tuple(shape))


def _outer(one: Tensor, other: Tensor, combine: object) -> Tensor:
    grid = combine(one[..., :, None, :, None], other[..., None, :, None, :])  # type: ignore[operator]
    return grid.flatten(-4, -3).flatten(-2, -1)
