"""A line of the program that calls an operator with a kink."""

from __future__ import annotations

import linecache
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

INSTALLED = ("site-packages", "dist-packages")  # folders of packages, which are not the user's to edit


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
        return cls.at(frame.f_code, frame.f_lineno, frame.f_globals)

    @classmethod
    def at(cls, code: CodeType, line: int, variables: dict[str, Any] | None = None) -> Site:
        """A line of some code; what is written there may be had from the variables of its module alone."""
        source = linecache.getline(code.co_filename, line, variables).strip()
        return cls(code.co_filename, line, code.co_name, source)

    @property
    def is_installed(self) -> bool:
        """Whether the line belongs to an installed package."""
        return any(folder in Path(self.file).parts for folder in INSTALLED)

    def __str__(self) -> str:
        return f"{Path(self.file).name}:{self.line}" if self.file else "no line of Python"
