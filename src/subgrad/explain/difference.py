"""Two expressions at one point: under which conventions their gradients differ, and which entries are the reason.

Under a convention that gives both the same gradient nothing is to be explained. From there single entries are switched,
one by one, to a convention under which they differ: those that move the gradient are the reason.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isclose, isfinite, isnan

import torch
from torch import Tensor

from subgrad.conventions import CHOICES
from subgrad.explain.evaluation import Evaluation
from subgrad.explain.numbers import Index, Numbers
from subgrad.explain.program import INSTALLED, Gradient, Hit, Own, Subject, gradient, hit, hits, own
from subgrad.explain.watch import Inputs, Met, Run, Switch
from subgrad.kinks.sets import Jump

AT_ONCE = 64  # entries of a call that are switched one by one; of more, all at once
NEARBY, STEP = 32, 2.0**-10  # points at which the values of both are compared, and how far away they are
SAME = 1e-9  # relative, of numbers that sums in another order may have made differ; more in dtypes that hold less

SIDES = ("A", "B")
_INSTALLED_FIRST = tuple(sorted(CHOICES, key=lambda name: (name != INSTALLED, not name.startswith("torch-"))))


@dataclass(frozen=True)
class Gap:
    """An entry of the gradient in which two expressions differ."""

    name: str
    index: Index
    first: float
    second: float


@dataclass(frozen=True)
class Cause:
    """Entries of one call whose element makes a difference.

    Attributes:
        side: of the two expressions, the one that they are in.
        hit: the call, with the entry first, and what conventions take there.
        cotangent: that it is given; None where the call was switched as a whole.
        effects: what becomes of it in the gradient.
    """

    side: str
    hit: Hit
    cotangent: float | None
    effects: tuple[tuple[str, Index, float], ...]


@dataclass(frozen=True)
class Reason:
    """Why gradients differ under some conventions, which all give the same ones.

    Attributes:
        conventions: under which they differ so.
        gaps: in which entries.
        reference: a convention under which they agree, from which single entries were switched; None if there is none.
        causes: the entries that move the gradient.
        in_turn: alone their moves do not add up, since one acts through another: each was switched after those before.
        is_complete: whether these moves, added up, are the difference.
    """

    conventions: tuple[str, ...]
    gaps: tuple[Gap, ...]
    reference: str | None
    causes: tuple[Cause, ...]
    in_turn: bool
    is_complete: bool


@dataclass(frozen=True)
class Difference:
    """Two expressions at a point.

    Attributes:
        agree: the conventions under which they have the same gradient.
        reasons: for all others, the installed torch first.
        nearby: how many of the points nearby have the same value under both.
        own: the gradients of both as whole programs.
    """

    texts: tuple[str, str]
    at: Gradient
    wrt: tuple[str, ...]
    dtype: str
    torch: str
    values: tuple[float, float]
    entries: tuple[int, int]
    nearby: int
    hits: tuple[tuple[Hit, ...], tuple[Hit, ...]]
    gradients: tuple[Mapping[str, Gradient], Mapping[str, Gradient]]
    agree: tuple[str, ...]
    reasons: tuple[Reason, ...]
    own: tuple[Own, Own]


def difference(
    first: str, second: str, inputs: Inputs, wrt: Sequence[str] = (), dtype: torch.dtype = torch.float64
) -> Difference:
    """Explain whether and why two expressions have different gradients at a point.

    >>> import torch
    >>> from subgrad.explain.difference import difference
    >>> found = difference("F.relu(x)", "torch.clamp(x, min=0)", {"x": torch.tensor(0.0)}, dtype=torch.float32)
    >>> [(gap.first, gap.second) for each in found.reasons if "torch-2.13" in each.conventions for gap in each.gaps]
    [(0.0, 1.0)]

    Args:
        first, second: the expressions.
        inputs: tensors by the names that they use.
        wrt: those that are differentiated; all by default.
        dtype: of the constants in the expressions.

    Raises:
        Mistake: for anything but expressions of these inputs, with the place. Nothing has run then.
    """
    subjects = [Subject(text, inputs, wrt, dtype) for text in (first, second)]
    values = [subject.value() for subject in subjects]
    runs = [{convention: subject.run(convention) for convention in CHOICES} for subject in subjects]
    reasons = tuple(_reasons(subjects, runs))
    differing = {name for reason in reasons for name in reason.conventions}
    one, other = subjects
    return Difference(
        texts=(one.expression.text, other.expression.text),
        at=one.numbers(),
        wrt=one.wrt,
        dtype=str(dtype).removeprefix("torch."),
        torch=str(torch.__version__),
        values=(float(values[0]), float(values[1])),
        entries=(one.evaluation.entries, other.evaluation.entries),
        nearby=_same_nearby(one, other),
        hits=(_hits(one, runs[0]), _hits(other, runs[1])),
        gradients=(
            {name: gradient(each) for name, each in runs[0].items()},
            {name: gradient(each) for name, each in runs[1].items()},
        ),
        agree=tuple(convention for convention in CHOICES if convention not in differing),
        reasons=reasons,
        own=(own(one), own(other)),
    )


def _gradients(runs: Mapping[str, Run]) -> dict[str, Gradient]:
    return {convention: gradient(each) for convention, each in runs.items()}


def _hits(subject: Subject, runs: Mapping[str, Run]) -> tuple[Hit, ...]:
    return tuple(hit for met in runs[INSTALLED].met for hit in hits(subject.expression, met))


def _same_nearby(one: Subject, other: Subject) -> int:
    """At how many points nearby two expressions have the same value, in double precision."""
    generator = torch.Generator().manual_seed(0)
    wide = [Evaluation(subject.expression, list(subject.inputs)) for subject in (one, other)]
    same = 0
    for _ in range(NEARBY):
        moves = (
            2 * torch.rand(each.shape, generator=generator, dtype=torch.float64) - 1 for each in one.inputs.values()
        )
        moved = [each.double() + STEP * move for each, move in zip(one.inputs.values(), moves, strict=True)]
        with torch.no_grad():
            values = [evaluation.first(*moved) for evaluation in wide]
        same += bool(torch.isclose(values[0], values[1], rtol=SAME, atol=SAME, equal_nan=True))
    return same


def _reasons(subjects: Sequence[Subject], runs: Sequence[Mapping[str, Run]]) -> Iterator[Reason]:
    """One for each difference that there is, of the conventions that have it."""
    tolerance = _Tolerance.of(subjects[0].dtype, runs)
    one, other = map(_gradients, runs)
    found = {convention: _gaps(one[convention], other[convention], tolerance) for convention in CHOICES}
    reference = next((convention for convention, gaps in found.items() if not gaps), None)
    written = {name: repr(gaps) for name, gaps in found.items()}  # in which nan is equal to nan
    for text in dict.fromkeys(written[name] for name in _INSTALLED_FIRST if found[name]):
        conventions = tuple(name for name in _INSTALLED_FIRST if written[name] == text)
        gaps = found[conventions[0]]
        if reference is None:
            yield Reason(conventions, gaps, None, (), False, False)
            continue
        first = INSTALLED if INSTALLED in conventions else conventions[0]
        pairs = [(side, subject, each[reference]) for side, subject, each in zip(SIDES, subjects, runs, strict=True)]
        wanted = runs[0][conventions[0]].flat() - runs[1][conventions[0]].flat()
        for in_turn in (False, True):
            listed = [_causes(*pair, conventions[0], in_turn) for pair in pairs]
            first, second = (sum((move for _, move in each), torch.zeros_like(wanted)) for each in listed)
            is_complete = not any(map(tolerance.differ, (first - second).tolist(), wanted.tolist()))
            if is_complete:
                break
        causes = tuple(cause for each in listed for cause, _ in each)
        yield Reason(conventions, gaps, reference, causes, in_turn, is_complete)


@dataclass(frozen=True)
class _Tolerance:
    """How far equal numbers may be apart, where they are sums in another order."""

    relative: float
    absolute: float

    @classmethod
    def of(cls, dtype: torch.dtype, runs: Sequence[Mapping[str, Run]]) -> _Tolerance:
        rounding = torch.finfo(dtype).eps
        entries = torch.cat([each.flat().double() for by_convention in runs for each in by_convention.values()])
        largest = max((abs(each) for each in entries.tolist() if isfinite(each)), default=0.0)
        return cls(max(SAME, 8 * rounding), 64 * rounding * largest)

    def differ(self, one: float, other: float) -> bool:
        if one == other or (isnan(one) and isnan(other)):
            return False
        return not isclose(one, other, rel_tol=self.relative, abs_tol=self.absolute)


def _gaps(first: Gradient, second: Gradient, tolerance: _Tolerance) -> tuple[Gap, ...]:
    pairs = ((name, index, one, second[name][index]) for name in first for index, one in first[name].items())
    return tuple(Gap(name, index, one, other) for name, index, one, other in pairs if tolerance.differ(one, other))


def _causes(side: str, subject: Subject, before: Run, convention: str, in_turn: bool) -> list[tuple[Cause, Tensor]]:
    """The entries that move the gradient when they are taken under another convention, and by how much.

    Each alone; or in turn, as the expression comes to them, those before it being taken so already.
    """
    found, last, switches = [], before, {}
    for met in before.met:
        taken = None
        for mask, index in _parts(met) if met.has_choice else ():
            taken = mask if taken is None or mask is None or not in_turn else taken | mask
            switches = {**(switches if in_turn else {}), met.number: Switch(convention, taken)}
            after = subject.run(before.convention, switches=switches)
            start = last if in_turn else before
            move, last = after.flat() - start.flat(), after
            if bool((move != 0).any()):
                cotangent = _cotangent(start, met, index)
                found.append((Cause(side, _hit_at(subject, met, index), cotangent, _effects(start, after)), move))
    return found


def _parts(met: Met) -> Iterator[tuple[Tensor | None, Index | None]]:
    """Single entries where they are known and few, else the whole call."""
    if met.mask is None or int(met.mask.sum()) > AT_ONCE:
        yield met.mask, None
        return
    for index in map(tuple, met.mask.nonzero().tolist()):
        alone = torch.zeros_like(met.mask)
        alone[index] = True
        yield alone, index


def _hit_at(subject: Subject, met: Met, index: Index | None) -> Hit:
    """The call at one entry, or at all that lie on the first of its kinks."""
    choices = [(kink, where) for kink, where in met.kinks if not isinstance(kink.set, Jump)]
    for kink, where in choices:
        if index is not None and met.mask is not None and where.numel() == met.mask.numel():
            alone = torch.zeros_like(met.mask)
            alone[index] = True
            alone = alone.reshape(where.shape) & where
            if bool(alone.any()):
                return hit(subject.expression, met, kink, alone)
    return hit(subject.expression, met, *choices[0])


def _cotangent(before: Run, met: Met, index: Index | None) -> float | None:
    if index is None or met.number not in before.cotangents:
        return None
    return float(before.cotangents[met.number][index])


def _effects(before: Run, after: Run) -> tuple[tuple[str, Index, float], ...]:
    found = []
    for name, one in gradient(before).items():
        other = Numbers.of(after.gradients[name])
        moves = ((index, other[index] - number) for index, number in one.items())
        found += [(name, index, move) for index, move in moves if move != 0]
    return tuple(found)
