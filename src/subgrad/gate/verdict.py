"""The verdict on an audit: what fails it, and why, in one line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from subgrad.audit.effects import first_of, plural
from subgrad.audit.result import Audit
from subgrad.gate import not_finite
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
        compares: gradients are compared, whether they may differ or not.
        change: they do not depend on the convention.
        nonfinite: those that optimizers are given are finite.
        tolerance: by how much they may change, as a norm over that of the gradients.
        baseline: the lines on which they may depend.
    """

    compares: bool = False
    change: bool = False
    nonfinite: bool = False
    tolerance: float = 0.0
    baseline: Baseline | None = None

    def judge(self, audit: Audit, steps: int, ended_well: bool) -> Verdict:
        """The verdict on what was compared, and on so many steps of optimizers, of a script that ended well or not."""
        broken = not_finite.findings(audit) if self.nonfinite else ()
        findings = (*broken, *self._dependences(audit))
        why = _why([each for each in findings if each.fails])
        if not why and ended_well:  # a script that has failed says itself why nothing was looked at
            why = self._looked_at_nothing(audit, steps)
        return Verdict(findings, why, "" if why else self._passed(audit, steps, findings))

    def _dependences(self, audit: Audit) -> list[Finding]:
        lines = [line_of(each) for each in dependences(audit.effects)]
        known = set() if self.baseline is None else self.baseline.known(lines)
        return dependences(audit.effects, known, self.tolerance if self.change else inf)

    def _looked_at_nothing(self, audit: Audit, steps: int) -> str:
        """A check that has checked nothing must not pass."""
        if self.nonfinite and not steps:
            return "no optimizer has taken a step, so no gradient was looked at"
        if self.compares and not audit.effects:
            return audit.verdicts[0].rstrip(".") if audit.verdicts else "these audits have compared no gradients"
        return ""

    def _passed(self, audit: Audit, steps: int, findings: Sequence[Finding]) -> str:
        said = [f"gradients are finite in {plural(steps, 'step')}"] if self.nonfinite else []
        if self.change and audit.effects:
            compared = len({effect.step for effect in audit.effects})
            number = f"in {compared:,} compared of {plural(audit.steps, 'step')}"
            unseen = f"; not seen: {first_of(audit.unseen)}" if audit.unseen else ""
            said.append(f"gradients depend on no {_apart(findings)}, {number}{unseen}")
        return "; ".join(said)


def _apart(findings: Sequence[Finding]) -> str:
    """No line at all, or none but for those that may."""
    known = sum(each.is_known for each in findings)
    small = len(findings) - known
    may = [f"{known:,} known"] * bool(known) + [f"{small:,} within the tolerance"] * bool(small)
    return f"new line ({', '.join(may)})" if may else "line"


def _why(failing: Sequence[Finding]) -> str:
    if not failing:
        return ""
    first = max(failing, key=lambda each: inf if each.relative is None else each.relative)
    more = f" (and {plural(len(failing) - 1, 'more line')})" if failing[1:] else ""
    return f"{first.site}: {first.message.rstrip('.')}{more}"
