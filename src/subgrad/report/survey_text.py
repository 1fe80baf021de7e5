"""Findings of the survey as a table for the terminal."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import torch
from rich.table import Table
from rich.text import Text

from subgrad.survey.measure import Finding, Measured

SHOWN = 4


def survey_table(findings: Sequence[Finding]) -> Table:
    """One line per kink and call: the set, what torch returns, whether that keeps its rule, what a convention does."""
    table = Table(title=f"torch {torch.__version__} at its kinks", title_justify="left", header_style="bold")
    table.add_column("operator")
    table.add_column("at")
    table.add_column("differentiated")
    table.add_column("generalised derivatives")
    table.add_column("reverse", justify="right")
    table.add_column("forward", justify="right")
    table.add_column("documented rule", justify="right")
    table.add_column(findings[0].convention, justify="right")
    for finding, following in zip(findings, [*findings[1:], None], strict=True):
        table.add_row(
            Text(call(finding)),
            Text(finding.place),
            Text(", ".join(finding.differentiated)),
            Text(finding.set),
            Text(element(finding.reverse)),
            Text(element(finding.forward)),
            verdict(finding),
            chosen(finding),
            end_section=following is not None and following.overload != finding.overload,
        )
    return table


def summary(findings: Sequence[Finding]) -> str:
    """The count of places where torch keeps its documented rule and where not."""
    kept = sum(finding.keeps_rule is True for finding in findings)
    broken = sum(finding.keeps_rule is False for finding in findings)
    jumps = sum(finding.keeps_rule is None for finding in findings)
    changed = sum(chosen(finding).style == "bold" for finding in findings)
    return (
        f"{len(findings)} places: torch {torch.__version__} keeps its documented rule at {kept} "
        f"and breaks it at {broken}; {jumps} are jumps or infinite slopes, where there is no rule. "
        f"{findings[0].convention} changes what torch returns at {changed}."
    )


def call(finding: Finding) -> str:
    """The operator with the arguments that matter: ``clamp(min=0, max=6)``, ``clamp.Tensor``."""
    _, _, form = finding.overload.partition(".")
    name = f"{finding.operator}.{form}" if form else finding.operator
    given = ", ".join(f"{name}={value}" for name, value in finding.arguments.items())
    return f"{name}({given})" if given else name


def element(weights: Measured | None) -> str:
    """Weights as people write them: ``1/2, 1/2``, and entries of one argument in brackets: ``[1/2, 0, 1/2]``."""
    if weights is None:
        return "none"
    return ", ".join(entries(each) if isinstance(each, tuple) else number(each) for each in weights.values())


def entries(numbers: tuple[float, ...]) -> str:
    """The entries of an argument; of many only those that are not 0."""
    if len(numbers) <= SHOWN:
        return f"[{', '.join(number(each) for each in numbers)}]"
    shown = [number(each) for each in numbers if each != 0]
    return f"[{', '.join(shown)} and {len(numbers) - len(shown)} zeros]" if len(shown) <= SHOWN else "[...]"


def number(weight: float) -> str:
    """A number, as a fraction where it is a simple one."""
    if math.isfinite(weight):
        fraction = Fraction(weight).limit_denominator(4)
        if abs(float(fraction) - weight) < 1e-9:
            return str(fraction)
    return f"{weight:.5g}"


def chosen(finding: Finding) -> Text:
    """What the convention returns, bold where that is not torch's own, both modes where they differ."""
    reverse, forward = element(finding.chosen), element(finding.chosen_forward)
    changed = (reverse, forward) != (element(finding.reverse), element(finding.forward))
    text = reverse if reverse == forward else f"{reverse} (forward {forward})"
    return Text(text, style="bold" if changed else "")


def verdict(finding: Finding) -> Text:
    if finding.documented is None:
        return Text("none", style="dim")
    if finding.keeps_rule:
        return Text("kept", style="green")
    return Text(f"broken: {element(finding.documented)}", style="red")
