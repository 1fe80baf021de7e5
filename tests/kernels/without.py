"""Calls as they are run without some executors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from subgrad.apply import executors


@contextmanager
def without(*kinds: type) -> Iterator[None]:
    before = list(executors.EXECUTORS)
    executors.EXECUTORS[:] = [each for each in before if not isinstance(each, kinds)]
    executors.forget()
    try:
        yield
    finally:
        executors.EXECUTORS[:] = before
        executors.forget()
