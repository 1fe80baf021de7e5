"""Findings of the survey as a page of the documentation."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch

from subgrad.apply.tie_sharing import LEFT_TO_TORCH
from subgrad.kinks import KINKS
from subgrad.kinks.composites import THROUGH
from subgrad.kinks.conditions import WORDS
from subgrad.report.elements import both_modes, call, verdict
from subgrad.report.repro import NOTES
from subgrad.survey.finding import Finding

PAGE = """# Every kink of the table

Made by `make docs` from the table in `src/subgrad/kinks`, and measured with torch {version}: {places} places, of which
torch keeps its documented rule at {kept} and breaks it at {broken}; {jumps} are jumps and {poles} infinite slopes,
where there is no rule.

One line is one kink and one call on it: the set of generalised derivatives in the arguments that are differentiated;
the element that torch returns, in forward mode too where that is another, and nan too where it does not grow with the
cotangent; and what PyTorch's
[documented rule]({notes}),
the element of least norm, says to it: `kept`, or `broken` and what it asks for. To the letter it asks for it where the
function is convex or concave nearby: `subgrad survey --repro OPERATOR` looks, and reports it with code in plain torch.

The table is there in Python too:

```python
import subgrad

for kink in subgrad.kinks["relu6"]:
    print(kink.place, kink.set)
```

```text
self == 0 [0, 1]
self == 6 [0, 1]
```

## Entry by entry

Corners of a function of one number, and ties between tensors. Every convention acts here.

{entrywise}

## Many entries at once

Ties inside a tensor, norms at zero, repeated singular values. A vector has no left and right: `min-norm`, `documented`
and, where that is the middle of the set too, `mean` take the least element; all other conventions leave them to torch.

{joint}

At some of them torch's own element stays, whatever the convention:

{left}

## Jumps

Discontinuous: there is no set to choose from, and no convention interferes.

{jumping}

## Infinite slopes

A slope of order s grows like the distance to the place, to the power of -s, and one of order 0 like a logarithm, on the
side where the function has values. From order 1 on the value is infinite too, or has no limit. Torch returns infinity,
and nan where it multiplies infinity with a cotangent of 0.

{steep}

## Covered through what they call

These have no lines of their own. Their kinks are those of the operators they call, and conventions reach them there.

{through}
"""
COLUMNS = ("operator", "at", "differentiated", "generalised derivatives", "torch", "documented rule")


def kinks_page(findings: Sequence[Finding]) -> str:
    """The page about every kink, in markdown."""
    nowhere = [finding for finding in findings if finding.set.startswith("none")]
    poles = [finding for finding in nowhere if finding.set.startswith("none (infinite slope")]
    jumps = [finding for finding in nowhere if finding not in poles]
    kinks = [finding for finding in findings if finding not in nowhere]
    verdicts = [finding.keeps_rule for finding in kinks]
    return PAGE.format(
        notes=NOTES,
        version=torch.__version__.partition("+")[0],
        places=len(findings),
        kept=verdicts.count(True),
        broken=verdicts.count(False),
        jumps=len(jumps),
        poles=len(poles),
        entrywise=_findings(finding for finding in kinks if _is_entrywise(finding)),
        joint=_findings(finding for finding in kinks if not _is_entrywise(finding)),
        left=_table(("operator", "because"), ((_code(op), why) for op, why in LEFT_TO_TORCH.items())),
        jumping=_findings(jumps),
        steep=_findings(poles),
        through=_table(
            ("function", "calls"), ((_code(name), ", ".join(map(_code, called))) for name, called in THROUGH.items())
        ),
    )


def _is_entrywise(finding: Finding) -> bool:
    return finding.overload.removeprefix("aten::") in KINKS.entrywise


def _findings(findings: Iterable[Finding]) -> str:
    return _table(COLUMNS, (_row(finding) for finding in findings))


def _row(finding: Finding) -> tuple[str, ...]:
    return (
        _code(call(finding)),
        finding.place if finding.place in WORDS.values() else _code(finding.place),
        ", ".join(map(_code, finding.differentiated)),
        finding.set,
        both_modes(finding.reverse, finding.forward),
        verdict(finding),
    )


def _code(text: str) -> str:
    return f"`{text}`"


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)
