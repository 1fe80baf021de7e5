"""What a convention costs operators without a kink: none in force, a scoped use and a process default, side by side."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from timeit import Timer

import torch

import subgrad

ROUNDS, CALLS = 400, 200
OPERATORS = {
    "x + y": lambda x, y: x + y,
    "x * y": lambda x, y: x * y,
    "x.exp()": lambda x, y: x.exp(),
    "x @ y": lambda x, y: x @ y,
    "x.sum()": lambda x, y: x.sum(),
}


def under_none(timer: Timer) -> float:
    return timer.timeit(CALLS)


def under_use(timer: Timer) -> float:
    with subgrad.use("min-norm"):
        return timer.timeit(CALLS)


def under_default(timer: Timer) -> float:
    subgrad.set_default("min-norm")
    try:
        return timer.timeit(CALLS)
    finally:
        subgrad.set_default("torch")


WAYS: dict[str, Callable[[Timer], float]] = {
    "no convention": under_none,
    "`with use(...)`": under_use,
    "`set_default(...)`": under_default,
}


def table() -> str:
    """Forward, 16 differentiated entries: the ways by turns, a few hundred calls each, medians over many rounds."""
    torch.set_num_threads(1)
    x, y = (torch.ones(16, requires_grad=True) for _ in range(2))
    lines = [f"| forward, 16 entries | {' | '.join(WAYS)} |", f"|---{'|---' * len(WAYS)}|"]
    for name, operator in OPERATORS.items():
        timer = Timer(lambda operator=operator: operator(x, y))
        rounds = [[measure(timer) for measure in WAYS.values()] for _ in range(ROUNDS)]
        plain, *others = (median(times) for times in zip(*rounds, strict=True))
        ratios = [f"{other / plain:.3f} times" for other in others]
        lines.append(f"| `{name}` | {1e6 * plain / CALLS:.2f} us | {' | '.join(ratios)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(table())
