"""The verdict on an audit: what fails it, and why, in one line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from subgrad.audit.effects import first_of
from subgrad.audit.result import Audit
from subgrad.gate.baseline import Baseline
from subgrad.gate.findings import Finding, dependences, line_of


@dataclass(frozen=True)
class Verdict:
    """What was found, and why it fails, if it does.

    Attributes:
        why: in one line; empty if nothing fails.
        passed: what was looked at, in one line.
    """

    findings: tuple[Finding, ...]
    why: str = ""
    passed: str = ""


@dataclass(frozen=True)
class Gate:
    """What a run has to keep to.

    Attributes:
        change: gradients do not depend on the convention.
        tolerance: by how much they may, as a norm over that of the gradients.
        baseline: the lines on which they may.
    """

    change: bool = False
    tolerance: float = 0.0
    baseline: Baseline | None = None

    def judge(self, audit: Audit) -> Verdict:
        lines = {line_of(each) for each in dependences(audit.effects)}
        known = set() if self.baseline is None else self.baseline.known(lines)
        findings = tuple(dependences(audit.effects, known, self.tolerance))
        if not self.change:
            return Verdict(findings)
        failing = [each for each in findings if each.fails]
        if failing:
            return Verdict(findings, _why(failing))
        return Verdict(findings, passed=self._passed(audit, findings) if audit.effects else "")

    def _passed(self, audit: Audit, findings: Sequence[Finding]) -> str:
        compared = len({effect.step for effect in audit.effects})
        known = sum(each.is_known for each in findings)
        small = len(findings) - known
        said = "gradients depend on no line" if not findings else "gradients depend on no new line"
        parts = [f"{known:,} known"] * bool(known) + [f"{small:,} within the tolerance"] * bool(small)
        apart = f" ({', '.join(parts)})" if parts else ""
        unseen = f"; not seen: {first_of(audit.unseen)}" if audit.unseen else ""
        return f"{said}{apart}, in {compared:,} compared of {audit.steps:,} steps{unseen}"


def nothing_compared(audit: Audit) -> str:
    """Why a check that has checked nothing does not pass."""
    return audit.verdicts[0].rstrip(".") if audit.verdicts else "No gradients were compared: no conventions were named"


def _why(failing: Sequence[Finding]) -> str:
    first = max(failing, key=lambda each: float("inf") if each.relative is None else each.relative)
    more = len(failing) - 1
    others = f" (and {more:,} more {'line' if more == 1 else 'lines'})" if more else ""
    return f"{first.site}: {first.message.rstrip('.')}{others}"
