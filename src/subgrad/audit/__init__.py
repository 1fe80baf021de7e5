"""When: which lines of a run land on kinks, and what that does to its gradients."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from types import ModuleType

from torch import nn

from subgrad.audit.closures import compare
from subgrad.audit.data import Audit, Count, Row
from subgrad.audit.effects import Cause, Change, Effect
from subgrad.audit.session import EVERY, Listener, Session
from subgrad.audit.site import Site
from subgrad.conventions import Convention

__all__ = ["Audit", "Cause", "Change", "Count", "Effect", "Row", "Session", "Site", "audit", "compare"]


def audit(
    model: nn.Module | None = None,
    *,
    compare: Sequence[str | Convention] = (),
    every: int = EVERY,
    compare_every: int | None = None,
    ulps: int = 0,
    listeners: Iterable[Listener] = (),
) -> Session:
    """Watch unchanged eager training code: which of its lines land on kinks, and how often.

    >>> import torch, subgrad
    >>> x = torch.tensor([0.0, 1.0, 6.0], requires_grad=True)
    >>> with subgrad.audit() as audit:
    ...     loss = x.clamp(0, 6).sum()
    >>> [(row.operator, row.kink, row.total.hits, row.total.entries) for row in audit.rows]
    [('clamp', 'self == max', 1, 3), ('clamp', 'self == min', 1, 3)]

    Losses, gradients and weights are those of the run without it, to the bit.

    Args:
        model: for the names of its modules and parameters; others are named after their classes.
        compare: two conventions or more, whose gradients are held against each other whenever ``backward`` is called in
            a compared step. The run goes on with the one in force.
        every: record one step of so many, the first one included. A step ends with ``optimizer.step()``, or where
            ``audit.step()`` is called.
        compare_every: compare in one step of so many; ten times ``every`` if not given.
        ulps: count also what is within so many units in the last place of a kink.
        listeners: called after every step with its number and what it met, if it was recorded; see `subgrad.loggers`.

    Returns:
        A context manager. What was recorded, also when something is raised inside, is read from it as from an `Audit`.
    """
    return Session(model, compare=compare, every=every, compare_every=compare_every, ulps=ulps, listeners=listeners)


class _Callable(ModuleType):
    """`subgrad.audit` is this package, and what users call."""

    __call__ = staticmethod(audit)


sys.modules[__name__].__class__ = _Callable
