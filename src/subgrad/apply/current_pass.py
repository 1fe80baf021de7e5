"""Which pass over a whole program is in force in this thread, if any, and the dispatch key that is on while one is.

The kernels of passes are registered at a key before all others that no tensor has. It is switched on in one thread,
for the time of a pass: where none is running no call of torch can reach them, and nothing of torch is changed.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
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
    """The pass of this thread. To set it is to switch the key, unless that is held on."""

    _current: Pass | None = None
    _is_held = False

    @property
    def current(self) -> Pass | None:
        return self._current

    @current.setter
    def current(self, current: Pass | None) -> None:
        self._current = current
        set_key_included(KEY, current is not None or self._is_held)

    def hold(self, is_held: bool) -> None:
        """Whether the key stays on where no pass is in force."""
        self._is_held = is_held
        self.put_key_back()

    def put_key_back(self) -> None:
        """After a backward: it ends with the key as it was when it began, whoever set a pass while it ran."""
        set_key_included(KEY, self._current is not None or self._is_held)


here = _Here()


@contextmanager
def running(current: Pass | None) -> Iterator[None]:
    """Put a pass in force in this thread; None suspends the one that is."""
    before, here.current = here.current, current
    try:
        yield
    finally:
        here.current = before


def fork() -> Pass | None:
    return None if here.current is None else here.current.fork()
