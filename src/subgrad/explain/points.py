"""Where an expression is looked at: ``x=0``, ``w=[[3,2,1],[1,0,2]]``."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from math import inf, isinf, nan
from typing import Any

import torch
from torch import Tensor

from subgrad.explain.expression import DEEPEST
from subgrad.explain.parsing import Mistake, mistake, parsed

LONGEST = 100_000  # characters
TAKEN = ("torch", "F")


def point(given: Iterable[str], dtype: torch.dtype = torch.float64) -> dict[str, Tensor]:
    """The inputs by name.

    >>> from subgrad.explain.points import point
    >>> point(["x=0", "w=[1, 2]"])
    {'x': tensor(0., dtype=torch.float64), 'w': tensor([1., 2.], dtype=torch.float64)}

    Raises:
        Mistake: for what is no name with a number, or with rows of numbers of equal length.
    """
    found: dict[str, Tensor] = {}
    for text in given:
        name, equals, value = text.partition("=")
        name = name.strip()
        if not equals or not _is_name(name):
            raise Mistake(text, 0, len(text), "Write a point as NAME=VALUE: x=0, or w=[[3,2,1],[1,0,2]].")
        if name in found:
            raise Mistake(text, 0, len(name), f"{name} is given twice.")
        found[name] = _tensor(text, len(text) - len(value), dtype)
    return found


def _is_name(name: str) -> bool:
    return name.isascii() and name.isidentifier() and not name.startswith("_") and name not in TAKEN


def _tensor(text: str, start: int, dtype: torch.dtype) -> Tensor:
    value = text[start:]
    blanks = len(value) - len(value.lstrip())
    try:
        tree = parsed(value.strip(), LONGEST)
        numbers = _numbers(value.strip(), tree, 0)
    except Mistake as error:
        raise Mistake(text, error.start + start + blanks, error.end + start + blanks, error.why) from None
    made = torch.tensor(numbers, dtype=dtype)
    if bool((made.isinf() & ~torch.tensor(numbers, dtype=torch.float64).isinf()).any()):
        raise Mistake(text, start, len(text), f"{dtype} does not hold numbers as large as these.")
    return made


def _numbers(text: str, node: ast.expr, depth: int) -> Any:
    if depth > DEEPEST:
        raise mistake(text, node, f"More than {DEEPEST} parts inside of each other.")
    if isinstance(node, ast.List | ast.Tuple):
        rows = [_numbers(text, each, depth + 1) for each in node.elts]
        if len({_shape(row) for row in rows}) > 1:
            raise mistake(text, node, "These rows are not of one length.")
        return rows
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
        number = _numbers(text, node.operand, depth + 1)
        if isinstance(number, list):
            raise mistake(text, node, "A sign is for a number, not for a list.")
        return -number if isinstance(node.op, ast.USub) else number
    if isinstance(node, ast.Name) and node.id in ("inf", "nan"):
        return inf if node.id == "inf" else nan
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float) and not isinstance(node.value, bool):
        return _float(text, node, node.value)
    raise mistake(text, node, "A point holds numbers, inf and nan, and lists of them.")


def _float(text: str, node: ast.expr, number: int | float) -> float:
    try:
        found = float(number)
    except OverflowError:
        found = inf
    if isinf(found):
        raise mistake(text, node, "This number is too large: write inf if you mean it.")
    return found


def _shape(rows: object) -> tuple[int, ...]:
    if not isinstance(rows, list):
        return ()
    return (len(rows), *(_shape(rows[0]) if rows else ()))
