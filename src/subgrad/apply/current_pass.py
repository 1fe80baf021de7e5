"""Which pass over a whole program is in force in this thread, if any, and the dispatch key that is on while one is.

The kernels of passes are registered at a key before all others that no tensor has. It is switched on in one thread,
for the time of a pass: where none is running no call of torch can reach them, and nothing of torch is changed.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any, Protocol

from subgrad.torch_internals.dispatcher import dispatch_key_parse, set_key_included

NAME = "TESTING_ONLY_GenericMode"  # of the keys that torch's dispatcher has, the one that torch itself leaves alone
KEY = dispatch_key_parse(NAME)


class Pass(Protocol):
    """A run of a program in which some operators, those it has rules for, are run by these rules."""

    @property
    def rules(self) -> Mapping[str, Any]: ...

    def run(self, rule: Any, call: Any) -> Any: ...

    def fork(self) -> Pass | None:
        """The pass from here on once more, for what a checkpoint recomputes in backward."""


class _Here(threading.local):
    """The pass of this thread. To set it is to switch the key, unless that is held on.

    Attributes:
        in_force: what ``current`` returns, with a call less for those who ask for every operator.
        is_held: whether the key stays on where no pass is in force.
    """

    in_force: Pass | None = None
    is_held = False

    @property
    def current(self) -> Pass | None:
        return self.in_force

    @current.setter
    def current(self, current: Pass | None) -> None:
        self.in_force = current
        set_key_included(KEY, current is not None or self.is_held)

    def hold(self, is_held: bool) -> None:
        """Whether the key stays on where no pass is in force."""
        self.is_held = is_held
        self.put_key_back()

    def put_key_back(self) -> None:
        """After a backward: it ends with the key as it was when it began, whoever set a pass while it ran."""
        set_key_included(KEY, self.in_force is not None or self.is_held)


here = _Here()


class running:
    """Put a pass in force in this thread; None suspends the one that is."""

    def __init__(self, current: Pass | None):
        self.current = current

    def __enter__(self) -> None:
        self.before, here.current = here.in_force, self.current

    def __exit__(self, *exception: object) -> None:
        here.current = self.before


def fork() -> Pass | None:
    return None if here.current is None else here.current.fork()
