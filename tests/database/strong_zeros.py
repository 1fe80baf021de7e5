"""Entries of PyTorch's database with and without strong zeros, at zeros, poles and numbers that are not finite.

What torch gives that is no NaN must be the same to the bit. Where a NaN is replaced, values nearby say what is right:
the slope of what has a cotangent that is not 0. Where one stays although nothing that has one depends on the entry, a
dead entry was missed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import torch
from entries import Case, seed
from torch import Tensor
from unchanged import outputs

import subgrad

STRONG = subgrad.Convention("torch", strong_zero=True)
POLES = (0.0, 1.0, -1.0, float("inf"), 0.5, float("nan"), -float("inf"), 2.0, 1e200, -0.0)
LOOKED_AT = 4  # replaced entries of a gradient that are held against values
LARGE = 1e8  # beyond it rounding hides what a step changes
STEPS = (1e-5, -1e-5, 1e-8, -1e-8)
# Torch reads beyond the image where a coordinate is not finite, and the process dies: pytorch#24823.
DIES_AT_POLES = ("nn.functional.grid_sample", "grid_sampler_2d")
# Torch differentiates it by its result, which does not tell a negative length, nor the angle of one that is 0.
NOT_THE_SLOPE = ("polar",)


class Kind(Enum):
    CHANGED = "not NaN, and changed"
    WRONG = "NaN, replaced by what is not the slope"
    SURROGATE = "NaN, replaced by 0 where the slope is another number"
    UNDECIDED = "NaN, replaced where values say nothing"
    MISSED = "NaN, and dead"
    APART = "modes that give different numbers"
    FAILED = "an error that torch does not raise"
    RIGHT = "NaN, replaced by the slope"


@dataclass(frozen=True)
class Found:
    kind: Kind
    case: str
    variant: str
    mode: str
    detail: str = ""


# Inputs and cotangents.


def _zeros(x: Tensor) -> Tensor:
    return torch.zeros_like(x)


def _some_zeros(x: Tensor) -> Tensor:
    return torch.where(torch.arange(x.numel(), device=x.device).reshape(x.shape) % 3 == 0, 0, x)


def _poles(x: Tensor) -> Tensor:
    number = torch.arange(x.numel(), device=x.device) % (2 * len(POLES))
    planted = torch.tensor((*POLES, *[0.7] * len(POLES)), dtype=torch.float64, device=x.device)[number].reshape(x.shape)
    return torch.where((number < len(POLES)).reshape(x.shape), planted.to(x.dtype), x)


VARIANTS: dict[str, Callable[[Tensor], Tensor]] = {
    "as it is": torch.clone,
    "zeros": _zeros,
    "some zeros": _some_zeros,
    "poles": _poles,
}


def planted(case: Case, variant: str) -> tuple[Tensor, ...]:
    dense = VARIANTS[variant]
    return tuple(dense(each.detach()) if each.layout is torch.strided else each.detach() for each in case.inputs)


def with_zeros(like: Sequence[Tensor], place: int) -> list[Tensor]:
    """Numbers that differ, and zeros: where a result is not finite, in every third place, in the first half."""
    found = []
    for each in like:
        number = torch.arange(each.numel(), device=each.device).reshape(each.shape)
        is_zero = (~each.detach().isfinite(), number % 3 == 0, number < each.numel() // 2)[place]
        found.append(torch.where(is_zero, 0.0, 0.5 + number % 7).to(each.dtype))
    return found


# Reverse mode.


def results(case: Case, inputs: Sequence[Tensor], function: Callable[..., Any] | None = None) -> list[Tensor]:
    """What a case returns, or what a function makes of it, as compiled."""
    seed()
    return outputs((function or case.function)(*inputs))


def reverse(case: Case, inputs: Sequence[Tensor], place: int) -> tuple[list[Tensor], tuple[Tensor | None, ...]]:
    """The cotangents, and the gradients."""
    leaves = [each.clone().requires_grad_() for each in inputs]
    found = [each for each in results(case, leaves) if each.requires_grad]
    given = with_zeros(found, place)
    return given, torch.autograd.grad(found, leaves, given, allow_unused=True)


def batched(case: Case, inputs: Sequence[Tensor], place: int) -> tuple[list[Tensor], tuple[Tensor | None, ...]]:
    """The same by a vmap of `torch.func.vjp`."""

    def pulled(*each: Tensor) -> Any:
        found, pull = torch.func.vjp(lambda *given: results(case, given), *each)[:2]
        cotangents = with_zeros(found, place)
        return cotangents, pull(cotangents)

    cotangents, found = torch.func.vmap(pulled, randomness="same")(*(torch.stack((each, each)) for each in inputs))
    return [each[1] for each in cotangents], tuple(each[1] for each in found)


def forward(case: Case, inputs: Sequence[Tensor], place: int) -> tuple[list[Tensor], list[Tensor]]:
    """The tangents, and what comes of them."""
    ahead = with_zeros(inputs, place)
    return ahead, torch.func.jvp(lambda *given: results(case, given), tuple(inputs), tuple(ahead))[1]


Mode = Callable[[Case, Sequence[Tensor], int], tuple[list[Tensor], Sequence[Tensor | None]]]
MODES: dict[str, Mode] = {"reverse": reverse, "vmap": batched, "forward": forward}


def findings(case: Case, variants: Sequence[str] = (*VARIANTS,), modes: Sequence[str] = (*MODES,)) -> Iterator[Found]:
    """What is to be said of a case, in every variant and mode."""
    for variant in variants:
        if variant == "poles" and case.info.name in DIES_AT_POLES:
            continue
        inputs = planted(case, variant)
        for name in modes:
            for place in range(3):
                yield from _in_mode(case, inputs, name, place, f"{variant} {place}")


def _in_mode(case: Case, inputs: Sequence[Tensor], name: str, place: int, variant: str) -> Iterator[Found]:
    def said(kind: Kind, detail: str = "") -> Found:
        return Found(kind, str(case), variant, name, detail)

    try:
        vectors, plain = MODES[name](case, inputs, place)
    except Exception:  # torch refuses it
        return
    try:
        with subgrad.use(STRONG):
            _, strong = MODES[name](case, inputs, place)
    except Exception as error:
        yield said(Kind.FAILED, f"{type(error).__name__}: {error}"[:200])
        return
    judge = _by_tangents if name == "forward" else _by_cotangents
    for number, (one, other) in enumerate(zip(plain, strong, strict=True)):
        if one is None or other is None:
            if one is not other:
                yield said(Kind.CHANGED, "None")
            continue
        if not same(one, other, ~_is_nan(one)):
            yield said(Kind.CHANGED, f"{one.flatten()[:8].tolist()} {other.flatten()[:8].tolist()}")
        for entry in torch.nonzero(_is_nan(one).reshape(-1))[:LOOKED_AT].reshape(-1).tolist():
            kind = judge(case, inputs, vectors, number, entry, other.reshape(-1)[entry])
            if kind in (Kind.WRONG, Kind.SURROGATE) and case.info.name in NOT_THE_SLOPE:
                kind = Kind.UNDECIDED
            if kind is not None:
                yield said(kind, f"of {number}, entry {entry}: {other.reshape(-1)[entry].item()}")


def same(one: Tensor, other: Tensor, where: Tensor) -> bool:
    """To the bit, in the entries that are asked for."""
    if one.dtype != other.dtype or one.shape != other.shape or one.layout != other.layout:
        return False
    if one.layout is not torch.strided:
        return True
    plain = [each.detach().resolve_conj().resolve_neg() for each in (one, other)]
    parts = [torch.view_as_real(each) if each.is_complex() else each for each in plain]
    bits = [each[where].contiguous().view(torch.uint8) for each in parts]
    return torch.equal(*bits)


def _is_nan(tensor: Tensor) -> Tensor:
    return tensor.detach().isnan() if tensor.layout is torch.strided else torch.zeros(tensor.shape, dtype=torch.bool)


# Values nearby.


def _plain(inputs: Sequence[Tensor], least: float) -> list[Tensor]:
    """Other numbers, none of them at a pole."""
    return [torch.linspace(least, least + 0.46, each.numel()).to(each).reshape(each.shape) for each in inputs]


def _by_cotangents(
    case: Case, inputs: Sequence[Tensor], cotangents: Sequence[Tensor], number: int, entry: int, got: Tensor
) -> Kind | None:
    """Of one entry of a gradient that is NaN in torch: the slope of the results that have a cotangent."""

    def value(at: Sequence[Tensor], step: float) -> Tensor:
        moved = [each.clone() for each in at]
        place = moved[number].reshape(-1)
        if not place[entry].isfinite():
            raise ValueError("nothing is near infinity")
        place[entry] += step
        found = results(case, moved if step else at)
        terms = [torch.where(c == 0, 0, c.conj() * f).reshape(-1) for c, f in zip(cotangents, found, strict=True)]
        return torch.cat([each.real.double() for each in terms])

    return judged(value, inputs, got)


def _by_tangents(
    case: Case, inputs: Sequence[Tensor], tangents: Sequence[Tensor], number: int, entry: int, got: Tensor
) -> Kind | None:
    """Of one entry of a tangent that is NaN in torch: the slope along the inputs that have a tangent."""

    def value(at: Sequence[Tensor], step: float) -> Tensor:
        moved = [torch.where(v == 0, x, x + step * v) for x, v in zip(at, tangents, strict=True)]
        return results(case, moved)[number].reshape(-1)[entry].real.double()

    return judged(value, inputs, got)


Value = Callable[[Sequence[Tensor], float], Tensor]


def judged(value: Value, inputs: Sequence[Tensor], got: Tensor) -> Kind | None:
    """What a gradient that is NaN in torch is with strong zeros, against quotients of values."""
    is_nan, slope = bool(got.isnan().any()), float(got.real)
    found = _values(value, inputs)
    if found is None or not all(bool((each.abs() < LARGE).all()) for each in found):
        # What lies around it is not finite: then whether it matters at all, among numbers that are.
        others = [each for least in (0.31, 1.31, -1.31) if (each := _values(value, _plain(inputs, least))) is not None]
        others = [each for each in others if each[0].isfinite().all()]
        if not others or not all(map(_is_constant, others)):
            return None if is_nan else Kind.UNDECIDED
        found = others[0]
    if _is_constant(found):
        return Kind.MISSED if is_nan else Kind.RIGHT if slope == 0 else Kind.WRONG
    if is_nan:
        return None
    sides = _smooth_sides(found)
    if any(abs(each - slope) <= 1e-2 * max(1.0, abs(slope)) for each in sides):
        return Kind.RIGHT
    return Kind.UNDECIDED if not sides else Kind.SURROGATE if slope == 0 else Kind.WRONG


def _smooth_sides(found: Sequence[Tensor]) -> list[float]:
    """Quotients on the sides on which no entry jumps: there a smaller step does not make them larger."""
    far, behind, near, close_behind = ((each - found[0]) / step for each, step in zip(found[1:], STEPS, strict=True))
    sides = [pair for pair in ((far, near), (behind, close_behind)) if not _jumps(*pair)]
    return [float(each.sum()) for pair in sides for each in pair]


def _jumps(far: Tensor, near: Tensor) -> bool:
    return bool((near.abs() > 100 * far.abs() + 1).any())


def _is_constant(values: Sequence[Tensor]) -> bool:
    return all(torch.equal(each, values[0]) for each in values)


def _values(value: Value, at: Sequence[Tensor]) -> list[Tensor] | None:
    try:
        with torch.no_grad():
            return [value(at, step) for step in (0.0, *STEPS)]
    except Exception:
        return None
