"""Faster ways to the same gradient, which `kernels` offers, and a memory of what was planned for calls like this."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.autograd import forward_ad

from subgrad.apply.active import around
from subgrad.apply.gates import PLAIN
from subgrad.apply.operators import Operator
from subgrad.apply.plan import Plan
from subgrad.apply.rule import Arguments
from subgrad.conventions import Convention

# Torch's own kernel of any overload of the table, called with positional arguments.
Originals = Callable[[str, Sequence[Any]], Tensor]


class Shortcut(Protocol):
    """A faster way for one operator on one backend."""

    def pays_from(self, plan: Plan) -> int:
        """From this size on it is better than torch's own operator, where that gives the wanted gradient too."""
        ...

    def ever_pays(self) -> bool:
        """Whether there is such a size: a kernel that only calls torch's own costs time."""
        ...

    def __call__(self, plan: Plan, arguments: Arguments, originals: Originals) -> Tensor | None:
        """The operator's result, or None for a call that it is not made for."""
        ...


# By operator and Autograd key; filled when `subgrad` is imported, before any kernel is registered.
_functional: dict[tuple[str, str], Shortcut] = {}
_in_place: dict[tuple[str, str], Shortcut] = {}


def offer(op: str, key: str, functional: Shortcut, in_place: Shortcut | None = None) -> None:
    _functional[op, key] = functional
    if in_place is not None:
        _in_place[op, key] = in_place


def functional(op: str, key: str) -> Shortcut | None:
    return _functional.get((op, key))


def in_place(op: str, key: str) -> Shortcut | None:
    return _in_place.get((op, key))


def ever_pay(op: str, key: str) -> bool:
    """Whether some shortcut of an operator does more than to give what torch does not."""
    found = (each.get((op, key)) for each in (_functional, _in_place))
    return any(shortcut is not None and shortcut.ever_pays() for shortcut in found)


# From a plan, the arguments and the operator's value: the value with the derivative, or None. For compiled graphs.
Composition = Callable[[Plan, Arguments, Tensor], "Tensor | None"]
_for_graphs: dict[str, Composition] = {}


def offer_for_graphs(op: str, composition: Composition) -> None:
    _for_graphs[op] = composition


def for_graphs(op: str) -> Composition | None:
    return _for_graphs.get(op)


class ForWindows(Protocol):
    """One pass over the windows of max-pooling, where torch's operators take one for each place; None if not seen."""

    def ties(self, x: Tensor, values: Tensor | None, arguments: Arguments) -> Tensor | None:
        """How many windows hold their largest entry, if it is known, twice: a count that nobody has waited for."""
        ...

    def keys(self) -> tuple[str, ...]:
        """The Autograd keys of the backends on which `pooled` does something."""
        ...

    def pooled(self, x: Tensor, arguments: Arguments, with_indices: bool) -> Any:
        """What the operator returns, adaptive ones too, with a derivative that the tied entries of a window share: the
        values, and the indices if they are wanted. The device is not waited for."""
        ...

    def ahead(
        self, x: Tensor, tangent: Tensor, values: Tensor, indices: Tensor, arguments: Arguments, last: bool
    ) -> tuple[Tensor, Tensor, Tensor] | None:
        """Of a window's largest entries the one whose tangent is largest, of several the first or the last: its index;
        and whether any window is tied, and in its tangents too."""
        ...


_for_windows: list[ForWindows] = []


def offer_for_windows(shortcut: ForWindows) -> None:
    _for_windows.append(shortcut)


def for_windows() -> ForWindows | None:
    return _for_windows[0] if _for_windows else None


def keys_for_windows() -> tuple[str, ...]:
    return _for_windows[0].keys() if _for_windows else ()


class Front(Protocol):
    """Lies over a kernel in Python, and answers calls like those it was told of before any Python runs."""

    def cover(self) -> None:
        """From now on, over the kernel that has been registered."""
        ...

    def note_torchs_own(self) -> None:
        """Calls like the one under way are torch's own."""
        ...

    def note(self, plan: Plan, arguments: Arguments, shortcut: Shortcut | None) -> bool:
        """Calls like the one under way are done as planned: if true, by the front, so that it is to be called again."""
        ...


# The fronts of some operators' forms at one key, made before any kernel is registered.
Fronts = Callable[[str, tuple[Operator, ...]], Mapping[str, Front]]
_fronts: list[Fronts] = []


def offer_fronts(fronts: Fronts) -> None:
    _fronts.append(fronts)


def fronts(key: str, operators: tuple[Operator, ...]) -> Mapping[str, Front]:
    return _fronts[0](key, operators) if _fronts else {}


class Memory:
    """The plans of calls met before: by convention, dtypes, numbers, and which tensors require grad."""

    def __init__(self, op: Operator):
        self._op = op
        self._has_one_tensor = op.tensor_names == ("self",)
        self._native: tuple[Convention | None, torch.dtype | None, tuple[Any, ...], Plan | None] = None, None, (), None
        self._plans: dict[Convention, dict[tuple[Any, ...], Plan]] = {}
        self._last: tuple[Convention | None, dict[tuple[Any, ...], Plan]] = None, {}  # to hash a convention takes time

    def native(self, args: Sequence[Any]) -> Plan | None:
        """The plan of the last call that torch's own kernel did as planned, if this is one like it: asked first."""
        convention, dtype, numbers, plan = self._native
        x = args[0]
        return (
            plan if around() is convention and type(x) in PLAIN and x.dtype is dtype and args[1:] == numbers else None
        )

    def note_native(self, convention: Convention, args: Sequence[Any], plan: Plan) -> None:
        # With one tensor, what holds where it is differentiated holds everywhere, in forward mode too.
        if self._has_one_tensor and plan.meetings and type(args[0]) in PLAIN:
            self._native = convention, args[0].dtype, tuple(args[1:]), plan

    def recall(self, convention: Convention, args: Sequence[Any]) -> Plan | None:
        """None for what was not met before, without gradients, and in forward mode."""
        if not torch.is_grad_enabled() or forward_ad._current_level >= 0:
            return None
        last, plans = self._last
        if last is not convention:
            plans = self._plans.get(convention)
            if plans is None:
                return None
            self._last = convention, plans
        try:
            return plans.get(self._key(args))
        except TypeError:  # symbolic numbers, while compiling, are not hashable
            return None

    def remember(self, convention: Convention, args: Sequence[Any], plan: Plan) -> Plan:
        """Keep a plan, and return it."""
        if not self._op.slopes_are_numbers or not torch.is_grad_enabled() or forward_ad._current_level >= 0:
            return plan
        plans = self._plans.setdefault(convention, {})
        if len(plans) >= 1024:  # bounds that change with every call
            plans.clear()
        with suppress(TypeError):
            plans[self._key(args)] = plan
        return plan

    def _key(self, args: Sequence[Any]) -> tuple[Any, ...]:
        """0.0 and -0.0, which are equal and not the same, are told apart by their names."""
        if self._has_one_tensor:
            x, numbers = args[0], args[1:]
            hash(numbers)  # before a symbol is compared
            return x.dtype, x.requires_grad, numbers, repr(numbers) if 0 in numbers else ""
        key: list[Any] = []
        for each in args:
            if isinstance(each, Tensor):
                key += (each.dtype, each.requires_grad)
            else:
                key.append(each if each else str(each))
        return tuple(key)
