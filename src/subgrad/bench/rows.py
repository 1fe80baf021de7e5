"""What is measured: every entrywise row of the table, with the numbers of its first sample, and some selections."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import isqrt
from typing import Any

import torch
from torch import Tensor

from subgrad.kinks import KINKS
from subgrad.kinks.overloads import is_torchs, overload, tensor_names
from subgrad.kinks.samples import samples


@dataclass(frozen=True)
class Row:
    """One thing to measure.

    Attributes:
        name: how it is called in tables.
        call: from the tensors to the result.
        operands: how many tensors there are; all are differentiated.
        tensors_moved: by an ideal backward besides masks: the cotangent read, gradients written.
    """

    name: str
    call: Callable[..., Tensor]
    operands: int = 1
    in_place: bool = False

    @property
    def tensors_moved(self) -> int:
        return 1 + self.operands

    def inputs(self, size: int, dtype: torch.dtype, device: str) -> list[Tensor]:
        return [torch.randn(size, dtype=dtype, device=device).requires_grad_() for _ in range(self.operands)]


# What has a packed mask, in the order of the pages.
CLAMPS = (
    Row("clamp", lambda x: torch.clamp(x, -1.0, 1.0)),
    Row("clamp_min", lambda x: torch.clamp_min(x, 0.0)),
    Row("clamp_max", lambda x: torch.clamp_max(x, 0.0)),
    Row("relu", torch.relu),
    Row("relu6", torch.nn.functional.relu6),
    Row("hardtanh", torch.nn.functional.hardtanh),
    Row("maximum(x, number)", lambda x: torch.maximum(x, x.new_zeros(()))),
    Row("minimum(x, number)", lambda x: torch.minimum(x, x.new_zeros(()))),
    Row("maximum(x, y)", torch.maximum, operands=2),
    Row("minimum(x, y)", torch.minimum, operands=2),
    Row("abs", torch.abs),
    Row("leaky_relu", torch.nn.functional.leaky_relu),
    Row("hardsigmoid", torch.nn.functional.hardsigmoid),
    Row("softshrink", torch.nn.functional.softshrink),
    Row("threshold", lambda x: torch.nn.functional.threshold(x, 0.1, 0.1)),
)
IN_PLACE = (
    Row("relu_", torch.relu_, in_place=True),
    Row("relu6_", lambda x: torch.nn.functional.relu6(x, inplace=True), in_place=True),
    Row("clamp_", lambda x: x.clamp_(-1.0, 1.0), in_place=True),
)
SELECTIONS = (
    Row("amax", lambda x: _square(x).amax(-1)),
    Row("max(dim)", lambda x: _square(x).max(-1).values),
    Row("sort", lambda x: _square(x).sort(-1).values),
    Row("topk", lambda x: _square(x).topk(1, -1).values),
    Row("cummax", lambda x: _square(x).cummax(-1).values),
    Row("max_pool2d", lambda x: torch.nn.functional.max_pool2d(_square(x)[None, None], 2)),
    Row("norm", lambda x: torch.linalg.vector_norm(_square(x), dim=-1)),
)


def _square(x: Tensor) -> Tensor:
    side = max(2, isqrt(x.numel()))
    return x[: side * side].view(side, side)


def _others() -> tuple[Row, ...]:
    """The entrywise rows of the table that are not above, with the numbers of their first sample."""
    left_out = {row.name for row in CLAMPS} | {"maximum", "minimum", "rrelu_with_noise"}
    return tuple(_from_table(op) for op in KINKS.entrywise if op not in left_out and is_torchs(op))


def _from_table(op: str) -> Row:
    sample = next(iter(samples(op, torch.float32)))
    tensors = [name for name in tensor_names(op) if isinstance(sample[name], Tensor)]
    numbers = {name: value for name, value in sample.items() if name not in tensors}

    def call(*given: Tensor) -> Any:
        return overload(op)(**dict(zip(tensors, given, strict=True)), **numbers)

    return Row(op, call, operands=len(tensors))


def rows(names: Sequence[str] = ()) -> list[Row]:
    """All rows, or those with some names.

    Raises:
        ValueError: for a name that there is not.
    """
    every = {row.name: row for row in (*CLAMPS, *IN_PLACE, *_others(), *SELECTIONS)}
    unknown = [name for name in names if name not in every]
    if unknown:
        raise ValueError(f"unknown row {unknown[0]!r}. Known: {', '.join(every)}.")
    return [every[name] for name in names] if names else list(every.values())
