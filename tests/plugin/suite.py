"""A small suite as users have them, and pytest run over it in a process of its own."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from fresh import run_module


@dataclass(frozen=True)
class Run:
    """How pytest ended, and what it printed."""

    code: int
    out: str
    err: str

    @property
    def outcomes(self) -> dict[str, int]:
        """``{"passed": 2}`` of the last line."""
        last = self.out.strip().splitlines()[-1]
        return {what: int(number) for number, what in re.findall(r"(\d+) (passed|failed|skipped|errors?)", last)}

    def section(self, title: str) -> list[str]:
        """The lines under a headline."""
        lines = self.out.splitlines()
        begin = next(place for place, line in enumerate(lines) if re.fullmatch(f"=+ {re.escape(title)} =+", line))
        end = next(place for place in range(begin + 1, len(lines)) if re.match("=+ .* =+$|=+$", lines[place]))
        return lines[begin + 1 : end]


def run(folder: Path, *options: str, imported: tuple[str, ...] = ("torch",)) -> Run:
    """In a process where nothing but these modules is imported, and of nothing in which this one runs is known."""
    around = {name: None for name in os.environ if name.startswith(("PYTEST", "COV_"))}
    options = ("-p", "no:cacheprovider", "-W", "ignore", "--rootdir", ".", *options)
    done = run_module("pytest", *options, cwd=folder, imported=imported, **around, OMP_NUM_THREADS="1")
    return Run(done.returncode, done.stdout, done.stderr)


# Gradients of 3 max(x, 0) - x at 0: -1 + 3 times the element.
KINKED = '''
import threading

import pytest
import torch

COTANGENT = torch.tensor([1.0, -2.0, 4.0])


def kinked(x):
    y = x.clamp(min=0)
    return 3 * y - x


def element(f=kinked):
    """The element that autograd returned for the clamp at 0."""
    x = torch.zeros(3, requires_grad=True)
    (f(x) * COTANGENT).sum().backward()
    (found,) = set(((x.grad / COTANGENT + 1) / 3).tolist())
    return found
'''
