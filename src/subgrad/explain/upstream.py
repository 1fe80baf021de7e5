"""What torch changed at kinks, why, and where that can be read."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Change:
    """A change of what torch returns at kinks.

    Attributes:
        since: the first version that has it.
        operators: whose kinks it is about.
        what: happened.
        why: it was done, and what became of it.
        keep: the convention that keeps what was before.
        references: threads of torch and of those who met it, with what each is about.
    """

    since: str
    operators: tuple[str, ...]
    what: str
    why: str
    keep: str
    references: tuple[tuple[str, str], ...]


CHANGES = (
    Change(
        since="2.14",
        operators=("clamp", "clamp_min", "clamp_max", "fmax", "fmin"),
        what="Numbers as bounds passed the gradient at the bound, 1, and block it since, 0. Tensors as bounds, fmax "
        "and fmin gave it to the first argument, and share it since. Values are the same, to the bit.",
        why="Torch documents the element of least norm, which relu and hardtanh returned already; the bounds had been "
        "closed in 2018. Fake quantisation, which clamps rounded numbers, lost its gradient there.",
        keep="torch-2.13",
        references=(
            ("pytorch/pytorch#191142", "the change"),
            ("pytorch/pytorch#184572", "max(x, 0) in four spellings"),
            ("pytorch/pytorch#184574", "clamp against hardtanh"),
            ("pytorch/pytorch#7049", "closed bounds, 2018"),
            ("pytorch/pytorch#195931", "met as a regression"),
            ("pytorch/ao#4806", "fake quantisation"),
        ),
    ),
)


def change_of(operator: str) -> Change | None:
    """The change that an operator took part in."""
    return next((change for change in CHANGES if operator in change.operators), None)


def address(reference: str) -> str:
    """``https://github.com/pytorch/pytorch/issues/7002``, which leads to pull requests as well."""
    repository, _, number = reference.partition("#")
    return f"https://github.com/{repository}/issues/{number}"
