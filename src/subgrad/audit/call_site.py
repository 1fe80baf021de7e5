"""A line of the program that calls an operator with a kink."""

from __future__ import annotations

import linecache
from dataclasses import dataclass
from pathlib import Path
from types import FrameType


@dataclass(frozen=True)
class Site:
    """Where in the program: file, line, function, and what is written there."""

    file: str
    line: int
    function: str
    source: str = ""

    @classmethod
    def of(cls, frame: FrameType | None) -> Site:
        if frame is None:  # called by no Python of the user's
            return cls("", 0, "")
        code, line = frame.f_code, frame.f_lineno
        return cls(
            code.co_filename, line, code.co_name, linecache.getline(code.co_filename, line, frame.f_globals).strip()
        )

    def __str__(self) -> str:
        return f"{Path(self.file).name}:{self.line}" if self.file else "no line of Python"
