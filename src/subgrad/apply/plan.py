"""What a convention means for one call: which kinks it can meet, the element at each, and which of them torch gives."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from subgrad.apply.autograd_nodes import are_known_absent, is_readable
from subgrad.apply.call import Arguments
from subgrad.apply.operators import Operator, operator
from subgrad.conventions import Convention, Spot, torch_element
from subgrad.kinks import Kink
from subgrad.kinks.sets import LEAST, OTHERS, Ball, Element, Joint, Jump, Slopes, Ties
from subgrad.kinks.table import COMPOSITES
from subgrad.torch_internals.autograd import forward_level
from subgrad.torch_internals.transforms import get_unwrapped, is_gradtracking_tensor
from subgrad.torch_internals.versions import COLUMN

VERSIONS = ("torch-2.13", "torch-2.14")
FOR_CLAMPS = ("pass-through", "straight-through")  # everything else is left to torch


@dataclass(frozen=True)
class Choice:
    """What to take at one kink, as functions of the call's arguments.

    Attributes:
        hits: which entries lie on the kink.
        weights: of the differentiated operands there; None for those that are tensors.
        element: all weights; asked for after the forward ran, as `rrelu` makes its slopes then.
        singular: torch's own derivative is not finite there, so that the operator must not meet these entries.
        require_inside: refuses weights that are no elements at some hits; asked after the forward ran, too.
        spares: a weight that is nan makes 0 of a cotangent of exactly 0.
    """

    hits: Callable[[Arguments], Tensor]
    weights: Mapping[str, float | None]
    element: Callable[[Arguments], Element]
    singular: bool = False
    require_inside: Callable[[Arguments, Tensor], None] | None = None
    spares: bool = False

    @property
    def is_blocked(self) -> bool:
        """Whether nothing passes, in which case the forks alone do all that is to be done in reverse mode."""
        return not self.singular and all(weight == 0 for weight in self.weights.values())


@dataclass(frozen=True)
class Meeting:
    """A kink that a call can meet.

    Attributes:
        spot: the kink with the numbers of the call.
        element: what is taken there; None where torch decides and the table cannot say what.
        choice: for the rule, where torch does not give that element by itself.
        is_exact: whether the tensor's type holds the place.
    """

    spot: Spot
    element: Element | None
    choice: Choice | None
    is_exact: bool


@dataclass(frozen=True)
class Plan:
    """All kinks that a call can meet, none if nothing is differentiated.

    Attributes:
        names: the differentiated arguments.
        meetings: the kinks of single entries.
        shares: whether tied entries share where torch selects one: the least element of a joint kink.
        other: what another framework returns at a joint kink, by its name in `OTHERS`.
        spares: whether slopes that are nan make 0 of cotangents of exactly 0.
        is_straight_through: the first operand is given the cotangent at every entry, on a kink or not.
    """

    names: frozenset[str]
    meetings: tuple[Meeting, ...]
    shares: bool = False
    other: str | None = None
    spares: bool = False
    is_straight_through: bool = False

    @cached_property
    def choices(self) -> list[Choice]:
        """What the convention takes out of torch's hands; nothing where both agree anyway."""
        return [meeting.choice for meeting in self.meetings if meeting.choice is not None]

    @cached_property
    def is_native(self) -> bool:
        """Whether torch's own kernel gives all that is wanted."""
        return not self.choices and not self.shares and self.other is None and not self.is_straight_through


def differentiated(op: Operator, arguments: Arguments) -> frozenset[str]:
    """The names of the tensors that require grad or carry a tangent."""
    tensors = [(name, arguments[name]) for name in op.tensor_names if arguments[name] is not None]
    found = {name for name, tensor in tensors if tensor.requires_grad} if torch.is_grad_enabled() else set()
    if forward_level() >= 0:
        found |= {name for name, tensor in tensors if forward_ad.unpack_dual(tensor).tangent is not None}
    return frozenset(found)


def plan(op: Operator, convention: Convention, arguments: Arguments) -> Plan:
    """The plan for one call."""
    names = differentiated(op, arguments)
    if op.is_joint:
        return _joint_plan(op, convention, arguments, names)
    self = arguments.get("self", arguments[op.tensor_names[0]])  # `qr` calls it A
    if names.isdisjoint(op.operands) or self.is_complex():
        return Plan(names, ())
    if convention.is_straight_through(op.kinks):
        return Plan(names, (), is_straight_through=True)
    rest = (names, self.dtype, forward_level() >= 0)
    if not op.slopes_are_numbers:
        return Plan(names, ()) if _meets_nothing(op, arguments) else _plan(op, convention, arguments, *rest)
    numbers = tuple((name, ... if isinstance(value, Tensor) else _key(value)) for name, value in arguments.items())
    try:
        return _remembered(op, convention, numbers, *rest)
    except TypeError:  # symbolic numbers, while compiling, are not hashable
        return _plan(op, convention, arguments, *rest)


def may_change(op: Operator, convention: Convention) -> bool:
    """Whether for some call the convention takes another element than torch; where the call's numbers decide, yes.

    A composite counts with what it calls, whose kernel must not be met in its place.
    """
    kinks = (*op.kinks, *operator(COMPOSITES[op.op][0]).kinks) if op.op in COMPOSITES else op.kinks
    if convention.is_straight_through(kinks):
        return True
    return convention.interferes and any(_may_change(kink, convention) for kink in kinks)


def _may_change(kink: Kink, convention: Convention) -> bool:
    choice = convention.choice(kink)
    if isinstance(kink.set, Jump) or choice == "torch" or (choice in FOR_CLAMPS and kink.family != "clamp"):
        return False
    if choice in VERSIONS:
        return kink.torch_picks(str(choice).removeprefix("torch-")) != kink.torch_picks(COLUMN) or _modes_differ(kink)
    if isinstance(kink.set, Joint):
        spot = Spot.of(kink, {}, kink.set.candidates)
        return is_shared(convention, spot) or _other(convention, spot) is not None
    if not isinstance(kink.set, Slopes) or not isinstance(choice, str) or kink.numbers:
        return True
    spot = Spot.of(kink, {}, kink.set.candidates)
    return convention.element(spot) != torch_element(spot, COLUMN)


def _modes_differ(kink: Kink) -> bool:
    """Whether torch's forward mode takes another element than its reverse mode: `fmax`, and `clamp` between tensors.

    They agree since 2.14, which changed these rows.
    """
    return COLUMN == "2.13" and isinstance(kink.set, Ties) and isinstance(kink.torch, Mapping)


def is_shared(convention: Convention, spot: Spot) -> bool:
    """Whether the convention takes the least element of a joint kink where torch does not."""
    return convention.element(spot) is LEAST and torch_element(spot, COLUMN) is not LEAST


def _other(convention: Convention, spot: Spot) -> str | None:
    """What another framework returns at a joint kink where that is neither torch's nor the least element."""
    element = convention.element(spot)
    return next((name for name, each in OTHERS.items() if each is element), None)


def _joint_plan(op: Operator, convention: Convention, arguments: Arguments, names: frozenset[str]) -> Plan:
    spots = [
        Spot.of(kink, arguments, names)
        for kink in op.kinks
        if isinstance(kink.set, Joint) and not names.isdisjoint(kink.set.candidates) and kink.applies(arguments)
    ]
    shares = any(is_shared(convention, spot) for spot in spots)
    other = next(filter(None, (_other(convention, spot) for spot in spots)), None)
    return Plan(names, (), shares, other, convention.strong_zero)


def _meets_nothing(op: Operator, arguments: Arguments) -> bool:
    """Whether it is seen on the CPU that no entry lies on a kink, before elements that are tensors are computed."""
    return arguments["self"].is_cpu and all(
        are_known_absent(kink.hits(arguments)) for kink in op.kinks if kink.applies(arguments)
    )


def _key(number: Any) -> Any:
    """A number as a key, by which 0.0 and -0.0 are told apart."""
    return (number, str(number)) if number == 0 else number


@lru_cache(maxsize=4096)
def _remembered(op: Operator, convention: Convention, keys: tuple[tuple[str, Any], ...], *rest: Any) -> Plan:
    numbers = {name: key[0] if isinstance(key, tuple) else key for name, key in keys}
    return _plan(op, convention, numbers, *rest)


def _plan(
    op: Operator,
    convention: Convention,
    arguments: Mapping[str, Any],
    names: frozenset[str],
    dtype: torch.dtype,
    forward_mode: bool,
) -> Plan:
    meetings = []
    for kink in op.kinks:
        if isinstance(kink.set, Jump | Joint) or names.isdisjoint(kink.set.candidates):
            continue
        if not kink.applies(arguments, dtype):
            continue
        spot = Spot.of(kink, arguments, names)
        element, native = convention.element(spot), torch_element(spot, COLUMN)
        is_exact = _is_exact(kink, arguments, dtype)
        is_torchs_own = element is None or (
            native is not None
            and all(_equal(element.get(name), native.get(name)) for name in names)
            and not (forward_mode and _modes_differ(kink))
            and (convention.choice(kink) in VERSIONS or is_exact)
        )
        if element is None or is_torchs_own:
            meetings.append(Meeting(spot, native if is_exact else None, None, is_exact))
        else:
            judged = convention.is_judged_by_entry(spot)
            if judged and not is_readable(_below_gradients(arguments["self"])):
                raise ValueError(_cannot_be_judged(convention, spot))
            meetings.append(Meeting(spot, element, _choice(kink, convention, element, names, judged), is_exact))
    return Plan(names, tuple(meetings))


def _below_gradients(tensor: Tensor) -> Tensor:
    """What `torch.func.grad` and `jvp` have wrapped, which can be read though the wrapper says nothing of it."""
    while is_gradtracking_tensor(tensor):
        tensor = get_unwrapped(tensor)
    return tensor


def _cannot_be_judged(convention: Convention, spot: Spot) -> str:
    return (
        f"{spot.kink.name}={convention.choice(spot.kink)}: whether it is a generalised derivative depends on a tensor, "
        f"which cannot be read in compiled code, under vmap or in a CUDA graph: the set is {spot.set}.\n"
        "Pass surrogate=True if you want it whatever they are."
    )


def _choice(kink: Kink, convention: Convention, element: Element, names: frozenset[str], judged: bool) -> Choice:
    weights = {name: element.get(name, 0.0) for name in names}

    def spot(arguments: Arguments) -> Spot:
        return Spot.of(kink, arguments, names)

    return Choice(
        kink.hits,
        {name: None if isinstance(weight, Tensor) else float(weight) for name, weight in weights.items()},
        lambda arguments: convention.element(spot(arguments)) or {},
        singular=isinstance(kink.set, Ball),
        require_inside=(lambda arguments, hit: convention.require_inside(spot(arguments), hit)) if judged else None,
        spares=convention.strong_zero,
    )


def _equal(one: Any, other: Any) -> bool:
    return one is other or (not isinstance(one, Tensor) and not isinstance(other, Tensor) and one == other)


def _is_exact(kink: Kink, arguments: Arguments, dtype: torch.dtype) -> bool:
    """Whether torch's backward looks for the kink where its forward has it.

    With a bound that 16 bits cannot hold, the forward rounds it and some backwards do not: at its own bound
    ``hardtanh(x, -0.7, 0.7)`` in bfloat16 has slope 1.
    """
    if dtype not in (torch.float16, torch.bfloat16) or not isinstance(kink.set, Slopes):
        return True
    place = kink.place_value(arguments, dtype)
    return torch.tensor(place, dtype=dtype).item() == place
