"""What both gradchecks say of the same, as a table: `docs/testing.md` holds it, and a test holds the page."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from subgrad.testing import GradcheckError, gradcheck
from testing.classic import CASES, Case


def side_by_side() -> str:
    rows = []
    for case in CASES:
        theirs = verdict(case, torch.autograd.gradcheck, case.options)
        it_is = "right" if case.is_right else "**wrong**"
        rows.append(f"| {case.name} | {it_is} | {theirs} | {verdict(case, gradcheck, {})} |")
    head = ["| | it is | `torch.autograd.gradcheck` | `subgrad.testing.gradcheck` |", "|---|---|---|---|"]
    return "\n".join([*head, *rows])


def verdict(case: Case, check: Callable[..., bool], options: dict[str, Any]) -> str:
    """The first line of what is raised, or that nothing is."""
    try:
        check(case.function, case.given, **options)
    except GradcheckError as error:
        return str(error).partition("\n")[0].rstrip(",.").removesuffix(" with respect to input 0")
    return "passes"
