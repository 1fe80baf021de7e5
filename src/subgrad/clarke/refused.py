"""Saying no, by name and with the line of the program."""

from __future__ import annotations

import inspect
import sys
from functools import partial
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

import torch

_NOT_THE_USER = (str(Path(torch.__file__).parent), str(Path(__file__).parent.parent))


class Refused(RuntimeError):  # noqa: N818
    """The program has no generalised gradient here, or none that can be found."""


def here() -> str:
    """The line of the program that is running: the innermost frame outside torch and subgrad."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if is_the_users(frame):
            return f"{frame.f_code.co_filename}:{frame.f_lineno}"
        frame = frame.f_back
    return "the program"


def defined_at(function: Any) -> str:
    """The line at which a program begins; for what has none, the line that is running."""
    while isinstance(function, partial):
        function = function.func
    function = inspect.unwrap(function)
    if isinstance(function, torch.nn.Module):
        function = type(function).forward
    code = getattr(function, "__code__", None)
    return here() if code is None else f"{code.co_filename}:{code.co_firstlineno}"


def where_raised(error: BaseException) -> str:
    """The line of the program in which an error was raised."""
    found, trace = "the program", error.__traceback__
    while isinstance(trace, TracebackType):
        if is_the_users(trace.tb_frame):
            found = f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}"
        trace = trace.tb_next
    return found


def is_the_users(frame: FrameType) -> bool:
    package = str(frame.f_globals.get("__name__")).partition(".")[0]  # code that is made as it runs has no file
    return package not in ("torch", "subgrad") and not frame.f_code.co_filename.startswith(_NOT_THE_USER)
