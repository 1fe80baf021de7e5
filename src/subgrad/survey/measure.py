"""Measure every row at every kink: reverse and forward mode, torch's own and under a convention."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from subgrad.apply.use import use
from subgrad.conventions import RULES, Convention, Spot, convention
from subgrad.kinks import KINKS, Kink
from subgrad.kinks.overloads import call_by_name, is_torchs, qualified
from subgrad.kinks.samples import samples
from subgrad.kinks.sets import Jump, Ties
from subgrad.survey.finding import Description, Finding, Measured
from subgrad.survey.joint import Entries, JointCall, joint_calls

# Not constant: a derivative that drops the incoming gradient would look right with ones.
COTANGENTS = (3.0, -0.5)
SAME, NEAR = 1e-12, 1e-4

Mode = Callable[[str, Mapping[str, Any], tuple[str, ...], float], list[float]]


def survey(like: str | Convention = "min-norm") -> Iterator[Finding]:
    """Measure the installed torch at every kink of the table, and what a convention makes of it.

    >>> from subgrad.survey import survey
    >>> next(survey("right")).chosen
    {'self': 1.0}
    """
    for place in places():
        yield place.finding(like)


@dataclass(frozen=True)
class Place:
    """One kink met by one call, whose tensors are numbers where the kink bends entry by entry."""

    kink: Kink
    call: dict[str, Any]
    differentiated: tuple[str, ...]

    @property
    def description(self) -> Description:
        kink = self.kink
        if kink.op in KINKS.entrywise:
            return _entrywise_description(kink, _numbers(self.call), self.differentiated)
        return _joint_description(JointCall(kink, self.call))

    def finding(self, like: str | Convention = "min-norm") -> Finding:
        """What torch returns here, and what a convention makes of it."""
        if self.kink.op in KINKS.entrywise:
            return _finding(self.kink, self.call, self.differentiated, convention(like))
        return _joint_finding(JointCall(self.kink, self.call), convention(like))

    def element(self, like: str | Convention) -> Measured | None:
        """What a convention returns here in reverse mode; None where torch has no derivative."""
        with use(convention(like)):
            if self.kink.op in KINKS.entrywise:
                return _measure(reverse_mode, self.kink.op, self.call, self.differentiated)
            return _linear(JointCall(self.kink, self.call).reverse)


def places(overloads: Container[str] | None = None) -> Iterator[Place]:
    """Where the survey measures: every kink, or those of some overloads, at every sample that meets it."""
    for op in [op for op in KINKS.entrywise if overloads is None or op in overloads]:
        for call in samples(op, steep=True):
            for kink in KINKS.of_overload(op):
                if kink.applies(call) and kink.hits(call).any():
                    for differentiated in _differentiated(kink):
                        yield Place(kink, _at_first_hit(kink, call), differentiated)
    for joint in joint_calls(overloads=overloads):
        yield Place(joint.kink, dict(joint.call), joint.names)


def _differentiated(kink: Kink) -> list[tuple[str, ...]]:
    """All candidates at once; for a tie also the first alone, the others constant."""
    candidates = kink.set.candidates or ("self",)
    return [candidates, candidates[:1]] if isinstance(kink.set, Ties) else [candidates]


def _at_first_hit(kink: Kink, call: Mapping[str, Any]) -> dict[str, Any]:
    """The call with its tensors reduced to the first entry on the kink."""
    first = int(kink.hits(call).nonzero()[0])
    return {name: value[first].clone() if isinstance(value, Tensor) else value for name, value in call.items()}


def _finding(kink: Kink, call: dict[str, Any], differentiated: tuple[str, ...], like: Convention) -> Finding:
    with use("torch"):
        reverse = _measure(reverse_mode, kink.op, call, differentiated)
        forward = _measure(forward_mode, kink.op, call, differentiated)
    with use(like):
        chosen = _measure(reverse_mode, kink.op, call, differentiated)
        chosen_forward = _measure(forward_mode, kink.op, call, differentiated)
    numbers = _numbers(call)
    documented = None if isinstance(kink.set, Jump) else _documented(kink, numbers, differentiated)
    measured = [each for each in (reverse, forward) if each is not None]
    return Finding(
        **vars(_entrywise_description(kink, numbers, differentiated)),
        reverse=reverse,
        forward=forward,
        documented=documented,
        keeps_rule=None if documented is None else all(_same(each, documented) for each in measured),
        convention=str(like),
        chosen=chosen,
        chosen_forward=chosen_forward,
    )


def _joint_finding(joint: JointCall, like: Convention) -> Finding:
    with use("torch"):
        reverse, forward = _linear(joint.reverse), _linear(joint.forward)
    with use(like):
        chosen, chosen_forward = _linear(joint.reverse), _linear(joint.forward)
    # None too where this torch has no derivative of the operator (aminmax until 2.11), from which to find the set.
    documented = None if isinstance(joint.kink.set, Jump) or reverse is None else joint.least()
    measured = [each for each in (reverse, forward) if each is not None]
    return Finding(
        **vars(_joint_description(joint)),
        reverse=reverse,
        forward=forward,
        documented=documented,
        keeps_rule=None if documented is None else all(_near(each, documented) for each in measured),
        convention=str(like),
        chosen=chosen,
        chosen_forward=chosen_forward,
    )


def _numbers(call: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value.item() if isinstance(value, Tensor) else value for name, value in call.items()}


def _entrywise_description(kink: Kink, numbers: Mapping[str, Any], differentiated: tuple[str, ...]) -> Description:
    hidden = {*kink.set.candidates, "self", "noise"}
    return Description(
        operator=kink.name,
        overload=qualified(kink.op),
        place=kink.place,
        arguments={name: value for name, value in numbers.items() if name not in hidden or value is None},
        differentiated=differentiated,
        set=str(kink.set if isinstance(kink.set, Jump) else kink.set.at(numbers)),
    )


def _joint_description(joint: JointCall) -> Description:
    return Description(
        operator=joint.kink.name,
        overload=qualified(joint.kink.op),
        place=joint.kink.words,
        arguments={name: value for name, value in joint.call.items() if isinstance(value, int | float | str | list)},
        differentiated=joint.names,
        set=str(joint.kink.set),
    )


def _linear(mode: Callable[[float], Entries | None]) -> Entries | None:
    """What a mode returns, nan where it does not grow with the cotangent as a derivative must."""
    one, other = (mode(cotangent) for cotangent in COTANGENTS)
    if one is None or other is None:
        return None
    return {
        name: tuple(
            a if a == b or abs(a - b) < SAME else float("nan") for a, b in zip(one[name], other[name], strict=True)
        )
        for name in one
    }


def _near(one: Entries, other: Entries) -> bool:
    """Equal but for what differences nearby leave open."""
    pairs = [pair for name in other for pair in zip(one[name], other[name], strict=True)]
    return all(abs(a - b) < NEAR for a, b in pairs)


def _documented(kink: Kink, numbers: Mapping[str, Any], differentiated: tuple[str, ...]) -> Mapping[str, float]:
    element = RULES["documented"](Spot.of(kink, numbers, differentiated)) or {}
    return {name: float(element[name]) for name in differentiated}


class NoForwardMode(Exception):  # noqa: N818
    """An operator that is not torch's has reverse mode alone."""


def _measure(mode: Mode, op: str, call: dict[str, Any], differentiated: tuple[str, ...]) -> Mapping[str, float] | None:
    """The weight of each argument, nan where it does not grow with the cotangent as a derivative must."""
    try:
        with torch.random.fork_rng(devices=[]):  # rrelu draws its slopes: seeded here, the caller's state left alone
            ratios = [
                [value / cotangent for value in mode(op, call, differentiated, cotangent)] for cotangent in COTANGENTS
            ]
    except NoForwardMode:
        return None
    return {
        name: one if one == other or abs(one - other) < SAME else float("nan")
        for name, one, other in zip(differentiated, *ratios, strict=True)
    }


def reverse_mode(op: str, call: Mapping[str, Any], differentiated: tuple[str, ...], cotangent: float) -> list[float]:
    """The gradients of a call for all its differentiated arguments at once."""
    torch.default_generator.manual_seed(0)  # of the CPU alone
    leaves = {name: call[name].clone().requires_grad_() for name in differentiated}
    out = call_by_name(op, {**call, **leaves})
    # Given as an argument, the cotangent would have torch import its symbolic shapes, which takes a second.
    found = torch.autograd.grad(out * torch.tensor(cotangent).to(out), list(leaves.values()), materialize_grads=True)
    return [float(grad) for grad in found]


def forward_mode(op: str, call: Mapping[str, Any], differentiated: tuple[str, ...], tangent: float) -> list[float]:
    """The tangents of a call along each argument alone; the others carry zeros, so that they count as well."""
    tangents = []
    for along in differentiated:
        torch.default_generator.manual_seed(0)
        with forward_ad.dual_level():
            duals = {
                name: forward_ad.make_dual(call[name], torch.full_like(call[name], tangent if name == along else 0.0))
                for name in differentiated
            }
            tangent_out = _tangent(op, {**call, **duals})
            tangents.append(0.0 if tangent_out is None else float(tangent_out))
    return tangents


def _tangent(op: str, call: Mapping[str, Any]) -> Tensor | None:
    if is_torchs(op):
        return forward_ad.unpack_dual(call_by_name(op, call)).tangent
    try:
        found = forward_ad.unpack_dual(call_by_name(op, call)).tangent
    except RuntimeError as error:  # of which torch's NotImplementedError is one
        raise NoForwardMode from error
    if found is None:  # torch drops it in silence where a custom operator has reverse mode alone
        raise NoForwardMode
    return found


def _same(one: Mapping[str, float], other: Mapping[str, float]) -> bool:
    return all(abs(one[name] - other[name]) < SAME for name in other)
