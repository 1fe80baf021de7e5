"""Saying no, by name and with the line of the program."""

from __future__ import annotations

import inspect
from functools import partial
from typing import Any

import torch

from subgrad.apply.source_line import here, where_raised

__all__ = ["Refused", "defined_at", "here", "where_raised"]


class Refused(RuntimeError):  # noqa: N818
    """The program has no generalised gradient here, or none that can be found."""


class Jumps(Refused):
    """The program jumps at the point: it has no generalised gradient."""


class Denied(Refused):
    """What rules say is not what values do."""


class Contradicted(Denied):
    """What a rule says is not what its operator does."""


def defined_at(function: Any) -> str:
    """The line at which a program begins; for what has none, the line that is running."""
    while isinstance(function, partial):
        function = function.func
    function = inspect.unwrap(function)
    if isinstance(function, torch.nn.Module):
        function = type(function).forward
    code = getattr(function, "__code__", None)
    return here() if code is None else f"{code.co_filename}:{code.co_firstlineno}"
