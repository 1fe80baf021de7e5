"""Strategies for hypothesis: tensors with entries on kinks."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, isfinite, nan
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from subgrad.testing.needs_hypothesis import hypothesis_for

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

# Where operators of torch bend that are called without a number of their own, and where people put bounds.
BREAKPOINTS = (0.0, 1.0, -1.0, 3.0, -3.0, 6.0, 0.5, -0.5)
WIDTHS = {torch.float64: 64, torch.float32: 32, torch.float16: 16, torch.bfloat16: 32}


def tensors(
    shape: Sequence[int] | SearchStrategy[Any] | None = None,
    *,
    dtype: torch.dtype = torch.float64,
    breakpoints: Sequence[float] = BREAKPOINTS,
    low: float | None = None,
    high: float | None = None,
    ties: bool = True,
    beside: bool = True,
    nan: bool = True,
    infinities: bool = True,
    subnormals: bool = True,
    requires_grad: bool = False,
) -> SearchStrategy[Tensor]:
    """Tensors whose entries lie on kinks, beside them, tie with each other, or are what programs forget.

    >>> import hypothesis, torch
    >>> from subgrad.testing import tensors
    >>> hypothesis.find(tensors(3), lambda x: bool((x == 6).any()), settings=hypothesis.settings(database=None))
    tensor([0., 0., 6.], dtype=torch.float64)

    They shrink to few entries, and these to zeros, then breakpoints, then small whole numbers.

    Args:
        shape: of the tensors, or a number, or a strategy of these; by default up to two dimensions of up to four.
        dtype: of floating point.
        breakpoints: numbers that entries often are, exactly; 0.0 and -0.0 are always among them.
        low, high: bounds of all entries. With one, infinite entries are left out, and nan.
        ties: entries often equal earlier ones.
        beside: entries often are the number before or after a breakpoint.
        nan, infinities, subnormals: whether there are such entries.
        requires_grad: of the tensors.

    Raises:
        ModuleNotFoundError: without hypothesis, which ``pip install 'subgrad[testing]'`` brings.
    """
    st = hypothesis_for("subgrad.testing.tensors").strategies
    if dtype not in WIDTHS:
        raise ValueError(f"dtype={dtype}: give one of {', '.join(map(str, WIDTHS))}.")
    bounded = low is not None or high is not None
    entry = st.one_of(
        *_entries(dtype, breakpoints, low, high, beside, nan and not bounded, infinities and not bounded, subnormals)
    )

    @st.composite
    def drawn(draw: Any) -> Tensor:
        size = torch.Size(_dimensions(draw(_shapes(shape))))
        values = draw(st.lists(entry, min_size=size.numel(), max_size=size.numel()))
        for k in range(1, len(values)) if ties else ():
            earlier = draw(st.none() | st.integers(0, k - 1))
            values[k] = values[k] if earlier is None else values[earlier]
        return torch.tensor(values, dtype=torch.float64).to(dtype).view(size).requires_grad_(requires_grad)

    return drawn()


def _shapes(shape: Any) -> Any:
    st = hypothesis_for("subgrad.testing.tensors").strategies
    if shape is None:
        return st.lists(st.integers(1, 4), max_size=2)
    return st.just(shape) if isinstance(shape, int | Sequence) else shape


def _dimensions(shape: Any) -> tuple[int, ...]:
    return (shape,) if isinstance(shape, int) else tuple(shape)


def _entries(
    dtype: torch.dtype,
    breakpoints: Sequence[float],
    low: float | None,
    high: float | None,
    beside: bool,
    has_nan: bool,
    has_infinities: bool,
    has_subnormals: bool,
) -> list[Any]:
    """Kinds of entries, the simplest first."""
    st = hypothesis_for("subgrad.testing.tensors").strategies
    least, most = (-inf if low is None else low), (inf if high is None else high)

    def inside(numbers: Sequence[float]) -> list[float]:
        held = torch.tensor(list(numbers), dtype=torch.float64).to(dtype).tolist()
        return [each for each in held if each != each or least <= each <= most]

    places = inside([0.0, *breakpoints, -0.0, *(each for each in (low, high) if each is not None)])
    finite = torch.tensor([each for each in places if isfinite(each)], dtype=dtype)
    next_to = [torch.nextafter(finite, torch.tensor(end, dtype=dtype)).tolist() for end in (inf, -inf)]
    info = torch.finfo(dtype)
    special = [nan] * has_nan + [inf, -inf] * has_infinities
    special += [info.smallest_normal / 2, -info.smallest_normal / 2] * has_subnormals
    smallest, largest = max(least, info.min), min(most, info.max)
    kinds = [
        places,
        inside(range(-4, 5)),
        inside(next_to[0] + next_to[1]) if beside else [],
        inside(special),
    ]
    subnormal = None if has_subnormals else False
    numbers = st.floats(
        smallest, largest, width=WIDTHS[dtype], allow_nan=False, allow_infinity=False, allow_subnormal=subnormal
    )
    return [*(st.sampled_from(each) for each in kinds if each), numbers]
