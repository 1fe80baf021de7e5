"""Points on a bound as far as their precision tells, or nearer to a kink than any step that values are told at."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import subgrad
from subgrad.clarke import Refused

Function = Callable[[Tensor], Tensor]
NARROW = (torch.float32, torch.float16, torch.bfloat16)

# Of each the slopes on the left and on the right of 0.1, which no narrow dtype holds.
BOUNDED: dict[str, tuple[Function, float, float]] = {
    "clamp from below": (lambda x: x.clamp(min=0.1).sum(), 0, 1),
    "clamp from above": (lambda x: x.clamp(max=0.1).sum(), 1, 0),
    "where": (lambda x: torch.where(x > 0.1, x, 2 * x - 0.1).sum(), 2, 1),
    "where, the other way": (lambda x: torch.where(x <= 0.1, x, 0.1).sum(), 1, 0),
    "hardtanh": (lambda x: F.hardtanh(x, -0.1, 0.1).sum(), 1, 0),
    "softshrink": (lambda x: F.softshrink(x, 0.1).sum(), 0, 1),
    "threshold": (lambda x: F.threshold(x, 0.1, 0.1).sum(), 0, 1),
    "if": (lambda x: sum(v if v > 0.1 else 2 * v - 0.1 for v in x), 2, 1),  # type: ignore[arg-type, return-value]
    "relu": (lambda x: F.relu(x - 0.1).sum(), 0, 1),
    "maximum": (lambda x: torch.maximum(x, torch.full_like(x, 0.1)).sum(), 0, 1),
}


@pytest.mark.parametrize("dtype", NARROW, ids=str)
@pytest.mark.parametrize("name", BOUNDED)
def test_bounds_are_where_the_precision_puts_them(name: str, dtype: torch.dtype) -> None:
    f, left, right = BOUNDED[name]
    on = torch.tensor(0.1, dtype=dtype)
    above, below = torch.nextafter(on, on + 1), torch.nextafter(on, on - 1)
    for beside, slope in ((above, right), (below, left)):
        found = subgrad.element(f)(torch.stack([on, beside]))
        assert found.gradient.tolist() == [right if found.direction[0] > 0 else left, slope]
    for ahead, slope in ((1.0, right), (-1.0, -left)):
        assert subgrad.jvp(f, (on.reshape(1),), (torch.full((1,), ahead, dtype=dtype),))[1].item() == slope


@pytest.mark.parametrize("dtype", NARROW, ids=str)
def test_a_jump_at_a_bound_is_seen_in_every_precision(dtype: torch.dtype) -> None:
    x = torch.full((2,), 0.1, dtype=dtype)
    for f in (lambda x: F.hardshrink(x, 0.1).sum(), lambda x: torch.where(x > 0.1, 1 + x, 0.0).sum()):
        with pytest.raises(Refused):
            subgrad.grad(f)(x)
