"""Faster ways to the same gradient, which `kernels` offers, and a memory of what was planned for calls like this."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.autograd import forward_ad

from subgrad.apply.operators import Operator
from subgrad.apply.plan import Plan
from subgrad.apply.rule import Arguments
from subgrad.conventions import Convention

# Torch's own kernel of any overload of the table, called with positional arguments.
Originals = Callable[[str, Sequence[Any]], Tensor]


class Shortcut(Protocol):
    """A faster way for one operator on one backend."""

    @property
    def smallest(self) -> int:
        """From this size on it is faster than torch's own operator, where that gives the wanted gradient too."""
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


# From input, values and arguments of `max_pool2d`: whether a window is tied, as a flag on the device; None if not seen.
WindowLook = Callable[[Tensor, Tensor, Arguments], Tensor | None]
_window_looks: list[WindowLook] = []


def offer_for_windows(look: WindowLook) -> None:
    _window_looks.append(look)


def ties_in_windows(x: Tensor, values: Tensor, arguments: Arguments) -> Tensor | None:
    """A flag that nobody has waited for."""
    return next((flag for look in _window_looks if (flag := look(x, values, arguments)) is not None), None)


def are_untied(x: Tensor, values: Tensor, arguments: Arguments) -> bool:
    """Whether it can be seen that no window is tied."""
    flag = ties_in_windows(x, values, arguments)
    return flag is not None and not flag.item()


class Memory:
    """The plans of calls met before: by convention, dtypes, numbers, and which tensors require grad."""

    def __init__(self, op: Operator, shortcut: Shortcut | None):
        self._op = op
        self._shortcut = shortcut
        self._plans: dict[tuple[Any, ...], Plan] = {}
        self._natives: set[tuple[Any, ...]] = set()

    def has_native(self, convention: Convention, args: Sequence[Any]) -> bool:
        """Whether torch's own kernel is known to do all that is planned, and nothing does it faster."""
        try:
            if (convention, args[0].dtype, args[1:]) not in self._natives:
                return False
        except TypeError:  # symbolic numbers, while compiling, are not hashable
            return False
        if self._shortcut is None:
            return True
        size = args[0].numel()
        return isinstance(size, int) and size < self._shortcut.smallest

    def recall(self, convention: Convention, args: Sequence[Any]) -> Plan | None:
        """None for what was not met before, and in forward mode."""
        if not torch.is_grad_enabled() or forward_ad._current_level >= 0:
            return None
        try:
            return self._plans.get(_key(convention, args))
        except TypeError:
            return None

    def remember(self, convention: Convention, args: Sequence[Any], plan: Plan) -> Plan:
        """Keep a plan, and return it."""
        if not self._op.slopes_are_numbers or not torch.is_grad_enabled() or forward_ad._current_level >= 0:
            return plan
        if len(self._plans) >= 1024:  # bounds that change with every call
            self._plans.clear()
            self._natives.clear()
        try:
            self._plans[_key(convention, args)] = plan
        except TypeError:
            return plan
        # With one tensor, what holds where it is differentiated holds everywhere, in forward mode too.
        if self._op.tensor_names == ("self",) and plan.meetings and not plan.choices:
            self._natives.add((convention, args[0].dtype, args[1:]))
        return plan


def _key(convention: Convention, args: Sequence[Any]) -> tuple[Any, ...]:
    key: list[Any] = [convention]
    for each in args:
        if isinstance(each, Tensor):
            key += (each.dtype, each.requires_grad)
        else:
            key.append(each if each else str(each))  # 0.0 and -0.0 are equal, and not the same
    return tuple(key)
