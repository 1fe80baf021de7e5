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
    >>> settings = hypothesis.settings(database=None, derandomize=True, max_examples=500)
    >>> hypothesis.find(tensors(3), lambda x: bool((x == 6).any()), settings=settings)
    tensor([0., 0., 6.], dtype=torch.float64)

    They shrink to few entries, and these to zeros, or else to breakpoints and whole numbers, as small as they can be.

    Args:
        shape: of the tensors, or a number, or a strategy of these; by default up to two dimensions of up to four.
        dtype: of floating point.
        breakpoints: numbers that entries often are, exactly, or the opposite of; 0.0 and -0.0 are always among them.
        low, high: bounds of all entries. With one, infinite entries are left out, and nan.
        ties: entries often equal earlier ones.
        beside: entries often are the number before or after a breakpoint.
        nan, infinities, subnormals: whether there are such entries.
        requires_grad: of the tensors.

    Raises:
        ModuleNotFoundError: without hypothesis, which ``pip install hypothesis`` brings.
    """
    st = hypothesis_for("subgrad.testing.tensors").strategies
    if dtype not in WIDTHS:
        raise ValueError(f"dtype={dtype}: give one of {', '.join(map(str, WIDTHS))}.")
    low, high = _bounds(dtype, low, high)
    bounded = low is not None or high is not None
    kept = (nan and not bounded, infinities and not bounded, subnormals)
    lists = _numbers(dtype, breakpoints, (low, high), beside, *kept)
    often, *sometimes = (st.sampled_from(each) for each in lists if each)
    entry = st.one_of(often, often, *sometimes, _floats(dtype, low, high, subnormals))

    @st.composite
    def drawn(draw: Any) -> Tensor:
        size = torch.Size(_dimensions(draw(_shapes(shape))))
        values = draw(st.lists(entry, min_size=size.numel(), max_size=size.numel()))
        for k in range(1, len(values)) if ties else ():
            earlier = draw(st.none() | st.integers(0, k - 1))
            values[k] = values[k] if earlier is None else values[earlier]
        return torch.tensor(values, dtype=torch.float64).to(dtype).view(size).requires_grad_(requires_grad)

    return drawn()


def _bounds(dtype: torch.dtype, low: float | None, high: float | None) -> tuple[float | None, float | None]:
    """The numbers of a dtype that are nearest to some bounds, between them.

    Raises:
        ValueError: if no number lies between them.
    """
    found: list[float | None] = []
    for bound, sign in ((low, 1), (high, -1)):
        if bound is None:
            found.append(None)
            continue
        number = torch.tensor(bound, dtype=torch.float64).to(dtype)
        if sign * float(number) < sign * bound:
            number = torch.nextafter(number, torch.tensor(sign * inf, dtype=dtype))
        found.append(float(number))
    if found[0] is not None and found[1] is not None and not found[0] <= found[1]:
        raise ValueError(f"low={low}, high={high}: no number of {dtype} lies between them.")
    return found[0], found[1]


def _shapes(shape: Any) -> Any:
    st = hypothesis_for("subgrad.testing.tensors").strategies
    if shape is None:
        return st.lists(st.integers(1, 4), max_size=2)
    return st.just(shape) if isinstance(shape, int | Sequence) else shape


def _dimensions(shape: Any) -> tuple[int, ...]:
    return (shape,) if isinstance(shape, int) else tuple(shape)


def _numbers(
    dtype: torch.dtype,
    breakpoints: Sequence[float],
    bounds: tuple[float | None, float | None],
    beside: bool,
    has_nan: bool,
    has_infinities: bool,
    has_subnormals: bool,
) -> tuple[list[float], list[float]]:
    """Numbers that are often drawn, and those beside them, the simplest first.

    Hypothesis shrinks the place in this list, by one or two as long as an example stays one. So each number has its
    opposite beside it, and infinity follows the largest: what is large enough shrinks to the least that is.
    """
    low, high = bounds
    least, most = (-inf if low is None else low), (inf if high is None else high)
    normal = torch.finfo(dtype).smallest_normal

    def inside(numbers: Sequence[float]) -> list[float]:
        held = torch.tensor(list(numbers), dtype=torch.float64).to(dtype).tolist()
        held = [each for each in held if has_subnormals or not 0 < abs(each) < normal]
        return [each for each in held if each != each or least <= each <= most]

    plain = sorted({abs(float(each)) for each in (*breakpoints, *range(5)) if isfinite(each)})
    whole, broken = ([each for each in plain if each.is_integer() == is_whole] for is_whole in (True, False))
    places = _with_opposites([*whole, *([inf] if has_infinities else []), *broken])
    ends = torch.tensor(inside([each for each in places if isfinite(each)]), dtype=dtype)
    next_to = [torch.nextafter(ends, torch.tensor(end, dtype=dtype)).tolist() for end in (inf, -inf)]
    special = [-0.0, *([normal / 2, -normal / 2] if has_subnormals else []), *([nan] if has_nan else [])]
    return (
        [*inside(places), *inside([each for each in bounds if each is not None])],
        [*inside(special) * 5, *inside(sorted(next_to[0] + next_to[1], key=abs) if beside else [])],
    )


def _with_opposites(numbers: Sequence[float]) -> list[float]:
    return [each for number in numbers for each in ((number, -number) if number else (number,))]


def _floats(dtype: torch.dtype, low: float | None, high: float | None, has_subnormals: bool) -> Any:
    st, info = hypothesis_for("subgrad.testing.tensors").strategies, torch.finfo(dtype)
    smallest, largest = max(-inf if low is None else low, info.min), min(inf if high is None else high, info.max)
    subnormal = None if has_subnormals else False
    kinds = {"allow_nan": False, "allow_infinity": False, "allow_subnormal": subnormal}
    return st.floats(smallest, largest, width=WIDTHS[dtype], **kinds)
