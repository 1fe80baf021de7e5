"""What tests add to the table is taken out again, so that others find the table as it is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from subgrad.kinks import KINKS
from subgrad.kinks.kink import USER_NAMES
from subgrad.kinks.samples import CALLS, DEVICES


@contextmanager
def taken_out_again() -> Iterator[None]:
    tables: tuple[dict[str, Any], ...] = (USER_NAMES, CALLS, DEVICES)
    kinks, kept = KINKS._kinks, [(each, dict(each)) for each in tables]
    by_name = {name: [*each] for name, each in KINKS._by_name.items()}
    try:
        yield
    finally:
        KINKS._kinks, KINKS._by_name = kinks, by_name
        for each, before in kept:
            each.clear()
            each.update(before)
