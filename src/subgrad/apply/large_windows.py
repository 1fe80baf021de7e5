"""Adaptive max-pooling into few windows of many entries each, as global pooling: window after window."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from math import prod
from typing import Any

import torch
from torch import Tensor

from subgrad.apply.autograd_nodes import Gate, alias, is_readable, outer_levels, through

_LARGE = 64  # entries; smaller windows are many, and looked at place by place


def share(x: Tensor, values: Tensor, output_size: Sequence[int]) -> Tensor | None:
    """The values with a derivative that tied windows share; None for windows that are not large, or cannot be read."""
    sizes, outputs = tuple(x.shape[-len(output_size) :]), tuple(output_size)
    if prod(sizes) < _LARGE * prod(outputs) or prod(outputs) > _LARGE or not is_readable(x):
        return None
    with torch.no_grad():
        count = _gathered(values, outputs, (hit.sum(_dims(outputs)) for hit, _ in _hits(x, values, outputs)))
    if x.is_cpu and not bool((count > 1).any()):
        return values
    return through(_Shared, x, values, count, values.detach().clone(), outputs)


def _hits(x: Tensor, values: Tensor, outputs: tuple[int, ...]) -> Iterator[tuple[Tensor, tuple[Any, ...]]]:
    """For each window which of its entries are largest, and where they lie."""
    lines = [
        [slice(i * size // out, -(-(i + 1) * size // out)) for i in range(out)]
        for size, out in zip(x.shape[-len(outputs) :], outputs, strict=True)
    ]
    for place, region in zip(product(*map(range, outputs)), product(*lines), strict=True):
        yield x[(..., *region)] == _at(values, place), region


def _at(tensor: Tensor, place: tuple[int, ...]) -> Tensor:
    """One window's, shaped so that it is spread over its entries."""
    return tensor[(..., *place)][(..., *[None] * len(place))]


def _gathered(like: Tensor, outputs: tuple[int, ...], found: Iterator[Tensor]) -> Tensor:
    return torch.stack(list(found), -1).reshape(*like.shape[: -len(outputs)], *outputs)


def _dims(outputs: tuple[int, ...]) -> list[int]:
    return list(range(-len(outputs), 0))


class _Shared(Gate):
    """Windows without ties are torch's own, to the bit."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, values: Tensor, count: Tensor, kept: Tensor, outputs: tuple[int, ...]) -> Tensor:
        ctx.outputs = outputs
        ctx.save_for_backward(x, count, kept)
        ctx.save_for_forward(x, count, kept)
        with outer_levels():
            return alias(values)

    @staticmethod
    def backward(ctx: Any, cotangent: Tensor) -> tuple[Tensor | None, ...]:
        x, count, kept = ctx.saved_tensors
        shares = torch.where(count > 1, cotangent / count, 0)
        gradient = torch.zeros(x.shape, dtype=shares.dtype, device=shares.device)
        places = product(*map(range, ctx.outputs))
        for place, (hit, region) in zip(places, _hits(x.detach(), kept, ctx.outputs), strict=True):
            gradient[(..., *region)] += torch.where(hit, _at(shares, place), 0)
        return gradient, torch.where(count > 1, 0, cotangent), None, None, None

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, of_values: Tensor, *_: Any) -> Tensor:
        x, count, kept = ctx.saved_tensors
        moved = (
            torch.where(hit, tangent[(..., *region)], 0).sum(_dims(ctx.outputs))
            for hit, region in _hits(x, kept, ctx.outputs)
        )
        return torch.where(count > 1, _gathered(kept, ctx.outputs, moved) / count, of_values)
