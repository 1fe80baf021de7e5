"""Which convention is in force here: one default for the process, and scoped uses per thread or task."""

from __future__ import annotations

from contextvars import ContextVar

from subgrad.conventions import Convention


class Scope:
    """One entered and not yet left use of a convention.

    A fixed one belongs to the call itself, as in `subgrad.functional.clamp(..., convention=...)`: what is compiled from
    that call depends on no convention outside of it.
    """

    def __init__(self, convention: Convention, *, fixed: bool = False):
        self.convention = convention
        self.fixed = fixed

    def __enter__(self) -> Convention:
        _entered.set((*_entered.get(), self))
        return self.convention

    def __exit__(self, *exception: object) -> None:
        # Wherever it stands: generators and exit stacks may leave in another order than they entered.
        entered = _entered.get()
        for position in reversed(range(len(entered))):
            if entered[position] is self:
                _entered.set(entered[:position] + entered[position + 1 :])
                return


# Innermost last. New threads start with none, tasks with those of their creator.
_entered: ContextVar[tuple[Scope, ...]] = ContextVar("subgrad_scopes", default=())
_default = Convention("torch")


def active() -> Convention:
    """The convention in force here: the innermost ``use`` of this thread or task, else the process default.

    >>> import subgrad
    >>> with subgrad.use("min-norm"):
    ...     subgrad.active()
    Convention('min-norm')
    """
    entered = _entered.get()
    return entered[-1].convention if entered else _default


def is_fixed() -> bool:
    """Whether the convention in force belongs to the call itself."""
    entered = _entered.get()
    return bool(entered) and entered[-1].fixed


def set_process_default(convention: Convention) -> None:
    global _default
    _default = convention
