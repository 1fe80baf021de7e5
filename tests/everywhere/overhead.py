"""What a convention costs operators that have no kink: plain torch, and the same with a convention in force."""

from __future__ import annotations

import subprocess
import sys
from statistics import median
from timeit import Timer

import torch

import subgrad

REPEATS, CALLS = 15, 20_000
OPERATORS = {
    "x + y": lambda x, y: x + y,
    "x * y": lambda x, y: x * y,
    "x.exp()": lambda x, y: x.exp(),
    "x @ y": lambda x, y: x @ y,
    "x.sum()": lambda x, y: x.sum(),
}


def seconds(name: str) -> float:
    x, y = (torch.ones(16, requires_grad=True) for _ in range(2))
    return Timer(lambda: OPERATORS[name](x, y)).timeit(CALLS) / CALLS


def measure() -> dict[str, tuple[float, float, float]]:
    """Microseconds a call: in plain torch, in `with use(...)`, and with a process default; by turns in one process.

    Kernels stay registered once a convention was in force, so that plain torch is timed first, before the others.
    """
    plain = {name: [seconds(name) for _ in range(REPEATS)] for name in OPERATORS}
    found = {}
    for name in OPERATORS:
        scoped, default = [], []
        for _ in range(REPEATS):
            with subgrad.use("min-norm"):
                scoped.append(seconds(name))
            subgrad.set_default("min-norm")
            default.append(seconds(name))
            subgrad.set_default("torch")
        found[name] = tuple(1e6 * median(times) for times in (plain[name], scoped, default))
    return found


def table() -> str:
    """Measured in a process of its own, where no convention was ever in force before."""
    run = [sys.executable, "-W", "ignore", "-m", "everywhere.overhead"]
    return subprocess.run(run, capture_output=True, text=True, check=True, env=_environment()).stdout.strip()


def _environment() -> dict[str, str]:
    import os

    return {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}


if __name__ == "__main__":
    torch.set_num_threads(1)
    print("| 16 entries, forward, us a call | plain torch | `with use(...)` | `set_default(...)` | ratios |")
    print("|---|---|---|---|---|")
    for name, (plain, scoped, default) in measure().items():
        print(
            f"| `{name}` | {plain:.2f} | {scoped:.2f} | {default:.2f} | {scoped / plain:.2f}, {default / plain:.2f} |"
        )
