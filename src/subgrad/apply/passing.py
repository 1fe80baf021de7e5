"""Which pass over a whole program is in force in this thread, if any."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol


class Pass(Protocol):
    """A run of a program that takes the calls of some operators into its own hands: those it has rules for."""

    @property
    def rules(self) -> Mapping[str, Any]: ...

    def run(self, rule: Any, call: Any) -> Any: ...

    def fork(self) -> Pass | None:
        """The pass from here on once more, for what a checkpoint recomputes in backward."""


class _Here(threading.local):
    current: Pass | None = None


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
