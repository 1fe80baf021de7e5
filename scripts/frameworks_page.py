"""Write docs/frameworks.md from what is recorded of the frameworks, from the table and from what torch makes of it."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from recorded_frameworks import all_answers, answers  # noqa: E402
from test_frameworks import all_gaps  # noqa: E402

from subgrad.kinks import KINKS  # noqa: E402
from subgrad.kinks.frameworks import FRAMEWORKS, LEFT_TO_TORCH, SPELLINGS  # noqa: E402
from subgrad.kinks.sets import Jump  # noqa: E402
from subgrad.report.frameworks_text import STAR, Row, in_rows  # noqa: E402
from subgrad.survey.frameworks import PACKAGES, cases  # noqa: E402

PAGE = ROOT / "docs" / "frameworks.md"

HEAD = """# What other frameworks return at kinks

Seven frameworks give up to four answers to one question. Each was asked in its own spellings, in an environment and a
process of its own, at the points of the [conformance pack](conformance.md) and some more; forward mode too, where there
is one. To ask them again, or others of their versions:

```sh
subgrad survey --frameworks torch,jax,tensorflow,mlx,paddle,tinygrad,autograd
subgrad survey clamp maximum --frameworks torch,jax==0.10.2
```

An environment is made once, by uv or pip, and kept in the cache folder of the user. A framework that cannot be
installed or that fails is a line that says so. `--json` has every value and gradient.

This page is written by `python scripts/record_frameworks.py` (`--page` for the page alone), from what it has recorded
in `tests/recorded/frameworks`: """

CONVENTIONS = """## The conventions `jax`, `tensorflow`, `mlx` and `paddle`

`subgrad.use("jax")` gives torch code the gradients that JAX returns for the same mathematical operation, in every mode,
on any version of torch. Values stay torch's own. What is no element of the set is returned all the same, as the
framework does: nan for a norm at 0 under `jax`, 2 for `celu` at 0 under `tensorflow`. No `surrogate=True` is asked for,
since it is the framework's name that was asked for; a *number* outside the set, given by hand, still is refused.

```python
import torch, subgrad

x = torch.tensor([-1.0, 0.0, 1.0], requires_grad=True)
for convention in ("torch-2.14", "jax", "tensorflow", "mlx", "paddle", subgrad.Convention("jax", clamp="min-norm")):
    with subgrad.use(convention):
        y = x.clamp(-1, 1) + 10 * x.abs() + 100 * torch.maximum(x, -x)
    print(convention, torch.autograd.grad(y.sum(), x)[0].tolist())
```

```text
torch-2.14 [-110.0, 1.0, 110.0]
jax [-109.5, 11.0, 110.5]
tensorflow [-109.0, 101.0, 111.0]
mlx [-110.0, -99.0, 110.0]
paddle [-109.0, 1.0, 111.0]
Convention('jax', clamp='min-norm') [-110.0, 11.0, 110.0]
```

Where a framework's spellings differ among themselves, the convention follows one, and an override gives the other:

"""

SURROGATES = """## What is no element

Marked with a star above: what no choice of an element explains, since nearby gradients have no such mean.

"""

LEFT = """## What the conventions leave to torch

For operations that a framework has not, the installed torch decides. At these it has one, and the convention does not
give what it returns:

"""

BEYOND = """### At nan and infinity

No convention speaks of entries that are nan or infinite: torch's own gradient stays there. Where the frameworks return
another one:

"""

KINK_TABLE = """## Measured before

`tests/survey/kink_table_frameworks.json` holds 53 gradients of JAX 0.10.2 and 29 of TensorFlow 2.21.0 that were
measured before this survey existed. The survey finds all 82 (`tests/survey/test_kink_table_frameworks.py`). What was
expected and is not so: `max` over a dimension does not take the first tied entry in JAX, it shares, as everywhere but
in torch; and a norm at 0 is not nan in TensorFlow where its cotangent is 0, whose square root takes 0 * inf for 0.
"""


def table(rows: list[Row]) -> Iterator[str]:
    """One line a place: what each framework returns, and in which spelling where they differ."""
    yield f"| operation | at | set | {' | '.join(PACKAGES)} |"
    yield f"|---|---|---|{'---|' * len(PACKAGES)}"
    for row in rows:
        place = row.place
        cells = [_cell(row, name) for name in PACKAGES]
        numbers = {name: each for name, each in place.numbers.items() if name != "dim"}
        given = ", ".join(f"{name}={each}" for name, each in numbers.items())
        where = f"`{place.place}`" + (f", {given}" if given else "")
        cells = [f"`{place.case['operator']}`", where, place.set, *cells]
        yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _cell(row: Row, framework: str) -> str:
    """What a framework returns: by spelling, if they differ."""
    found = {text: names for text, by in row.by_framework.items() if (names := by.get(framework))}
    if len(found) == 1:
        return _short(next(iter(found)))
    return "; ".join(f"{_short(text)} {', '.join(f'`{name}`' for name in names)}" for text, names in found.items())


def _short(text: str) -> str:
    return text.replace(f" {STAR}", "\\*")


def starred(rows: list[Row]) -> Iterator[str]:
    for row in rows:
        for text, by in row.by_framework.items():
            if text.endswith(STAR) and not text.startswith("nan"):
                names = ", ".join(f"{name} `{each}`" for name, spellings in by.items() for each in spellings)
                where = f"`{row.place.case['operator']}` at `{row.place.place}`"
                yield f"- {where}, {row.place.set}: {_short(text)} in {names}"


def followed() -> Iterator[str]:
    yield "| convention | operator | follows | another spelling |"
    yield "|---|---|---|---|"
    for framework, by_operator in SPELLINGS.items():
        for operator, (spelling, other) in by_operator.items():
            if other:
                yield f"| `{framework}` | `{operator}` | {spelling} | {other} |"


def left() -> Iterator[str]:
    yield "| convention | operator | because |"
    yield "|---|---|---|"
    for framework, by_operator in LEFT_TO_TORCH.items():
        for operator, why in by_operator.items():
            yield f"| `{framework}` | `{operator}` | {why.replace('|', chr(92) + '|')} |"


def lacking() -> Iterator[str]:
    names = dict.fromkeys(kink.name for kink in KINKS if not isinstance(kink.set, Jump))
    for framework in FRAMEWORKS:
        had = {case["operator"] for case, found in zip(cases(), answers(framework).cases, strict=True) if found}
        others = ", ".join(f"`{each}`" for each in names if each not in had)
        yield f"- `{framework}` has none, or was not asked for it: {others}"


def beyond() -> Iterator[str]:
    for framework in FRAMEWORKS:
        wrong = [gap.operator for gap in all_gaps(framework) if gap.point is not None and not math.isfinite(gap.point)]
        yield f"- `{framework}`: {', '.join(f'`{each}`' for each in dict.fromkeys(wrong))}"


def write_page() -> None:
    measured = all_answers()
    rows = in_rows(measured, cases())
    versions = ", ".join(f"{each.framework} {each.version}" for each in measured)
    differing = [row for row in rows if row.disagrees]
    counts = f"They disagree at {len(differing)} of {len(rows)} places. A star marks what is no element of the set."
    parts = [
        f"{HEAD}{versions}.\n\n{counts}\n\n" + "\n".join(table(differing)),
        CONVENTIONS + "\n".join(followed()),
        LEFT + "\n".join([*left(), "", *lacking()]),
        BEYOND + "\n".join(beyond()),
        SURROGATES + "\n".join(starred(rows)),
        KINK_TABLE,
    ]
    PAGE.write_text("\n\n".join(part.strip() for part in parts) + "\n")
    print(f"{PAGE.relative_to(ROOT)}: written")
