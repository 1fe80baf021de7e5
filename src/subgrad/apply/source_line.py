"""The line of the program that is running: the innermost frame outside torch and subgrad."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from pathlib import Path
from types import CodeType, FrameType, TracebackType

import torch

# With the separator: torchvision is the user's.
_NOT_THE_USER = tuple(f"{Path(file).parent}{os.sep}" for file in (torch.__file__, Path(__file__).parent))
# The last one calls functions that are searched for kinks, some of them from code that it makes as it runs.
_PACKAGES = ("torch", "subgrad", "hypothesis")
_MADE = os.path.join("hypothesis", "core.py")
# What wraps functions of torch.
_WRAPPERS = (contextlib.__file__, functools.__file__)
_known: dict[CodeType, bool] = {}
_packages: dict[CodeType, str] = {}


def user_frame() -> FrameType | None:
    """The innermost frame of the user's."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        known = _known.get(frame.f_code)  # asked here, since this is done for every operator
        if known if known is not None else is_the_users(frame):
            break
        frame = frame.f_back
    return frame


def is_called_by_subgrad(frame: FrameType | None) -> bool:
    """Whether a function of torch, in its frame, was called by subgrad and not by a program."""
    package = _package(frame)
    while frame is not None and package == "torch":
        frame = frame.f_back
        package = _package(frame)
    return package == "subgrad"


def _package(frame: FrameType | None) -> str:
    if frame is None:
        return ""
    found = _packages.get(frame.f_code)
    if found is None:
        found = _packages[frame.f_code] = str(frame.f_globals.get("__name__")).partition(".")[0]
    return found


def here() -> str:
    """The line, as ``file:line``."""
    frame = user_frame()
    return "the program" if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}"


def where_raised(error: BaseException) -> str:
    """The line of the program in which an error was raised."""
    found, trace = "the program", error.__traceback__
    while isinstance(trace, TracebackType):
        if is_the_users(trace.tb_frame):
            found = f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}"
        trace = trace.tb_next
    return found


def is_the_users(frame: FrameType) -> bool:
    code = frame.f_code
    known = _known.get(code)
    if known is None:
        package = _package(frame)  # code that is made as it runs has no file
        known = _known[code] = package not in _PACKAGES and is_a_users_file(code.co_filename)
    return known


def is_a_users_file(file: str) -> bool:
    return not (file.startswith(_NOT_THE_USER) or file.endswith(_MADE) or file in _WRAPPERS)
