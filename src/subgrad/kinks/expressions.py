"""Expressions of an operator's own arguments, as the table writes them: ``"min < max"``, ``"alpha * scale"``.

Besides the arguments they may name the functions of `conditions`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from types import CodeType
from typing import Any

from subgrad.kinks import conditions

Expression = str
_CONDITIONS = {name: getattr(conditions, name) for name in conditions.__all__}


def evaluate(expression: Expression, arguments: Mapping[str, Any]) -> Any:
    """The value of an expression of the table for the arguments of one call."""
    return eval(_compiled(expression), dict(_CONDITIONS), arguments)


def number(slope: float | Expression, arguments: Mapping[str, Any]) -> Any:
    """A slope of the table: a number as it is, an expression evaluated."""
    return evaluate(slope, arguments) if isinstance(slope, str) else slope


@cache
def _compiled(expression: Expression) -> CodeType:
    return compile(expression, f"<kink table: {expression}>", "eval")


def names(slope: float | Expression) -> set[str]:
    """The arguments that a slope of the table depends on."""
    return set(_compiled(slope).co_names) - set(_CONDITIONS) if isinstance(slope, str) else set()
