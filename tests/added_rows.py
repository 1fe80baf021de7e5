"""What tests add to the table is taken out again, so that others find the table as it is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from subgrad.kinks import KINKS
from subgrad.kinks.kink import USER_NAMES
from subgrad.kinks.samples import CALLS, DEVICES


@contextmanager
def taken_out_again() -> Iterator[None]:
    kinks, kept = KINKS._kinks, [(each, dict(each)) for each in (USER_NAMES, CALLS, DEVICES)]
    try:
        yield
    finally:
        KINKS._kinks = kinks
        for each, before in kept:
            each.clear()
            each.update(before)
