"""The Python frames of the package that a piece of code enters: what it costs the host, whatever the machine."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import subgrad

PACKAGE = str(Path(subgrad.__file__).parent)


@contextmanager
def frames() -> Iterator[list[str]]:
    found: list[str] = []

    def trace(frame: Any, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(PACKAGE):
            found.append(f"{code.co_filename.removeprefix(PACKAGE)}:{code.co_name}")

    before = sys.getprofile()
    sys.setprofile(trace)
    try:
        yield found
    finally:
        sys.setprofile(before)
