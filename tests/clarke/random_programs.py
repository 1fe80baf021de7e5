"""Random piecewise polynomial programs, as torch code and as germs, at points where they have real ties.

Weights and points are small integers, slopes dyadic: float64 computes values and gradients without rounding. Constants
are chosen by what the program has reached, so that quantities land on kinks at every depth.
"""

from __future__ import annotations

import linecache
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import count
from math import inf
from typing import Any

import torch
import torch.nn.functional as F
from hypothesis import strategies as st
from torch import Tensor

from clarke.germs import Cell, Germ, Number
from clarke.operations import OPERATIONS, Parameters, Vector

DEEPEST = 12
WIDEST = 4
LARGE = 50  # what is multiplied no more, lest float64 rounds
_files = count()


@dataclass(frozen=True)
class Step:
    operation: str
    way: int  # which of its spellings
    arguments: tuple[int, ...]  # of the vectors so far, the point being the first
    given: tuple[tuple[str, Any], ...] = ()

    @property
    def row(self) -> str:
        return OPERATIONS[self.operation].ways[self.way][0]

    def exact(self, cell: Cell, vectors: list[Vector]) -> Vector:
        return OPERATIONS[self.operation].exact(cell, dict(self.given), *(vectors[each] for each in self.arguments))

    def code(self, result: str) -> str:
        names = dict(zip("xzu", (f"v{each}" for each in self.arguments), strict=False))
        written = {name: _written(value) for name, value in self.given}
        return OPERATIONS[self.operation].ways[self.way][1].format(y=result, **names, **written)


def _written(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_written, value))}]"
    text = repr(value if isinstance(value, int) else float(value))
    return f"({text})" if value < 0 else text


@dataclass(frozen=True)
class Program:
    """Steps, a point, and the weights of what is summed at the end: nothing that was bent on the way is lost."""

    point: tuple[int, ...]
    steps: tuple[Step, ...]
    weights: tuple[tuple[int, tuple[int, ...]], ...]  # of some vectors, the last one among them

    def __call__(self, cell: Cell, point: Vector) -> Germ:
        """The program on germs."""
        vectors = [point]
        for step in self.steps:
            vectors.append(step.exact(cell, vectors))
        weighed = [(w, each) for at, weights in self.weights for w, each in zip(weights, vectors[at], strict=True)]
        return sum((w * each for w, each in weighed), 0 * point[0])

    @property
    def code(self) -> str:
        """The program in torch."""
        lines = [line for at, step in enumerate(self.steps, 1) for line in step.code(f"v{at}").split("\n")]
        terms = [f"(v0.new_tensor({list(weights)}) * v{at}).sum()" for at, weights in self.weights]
        body = "\n".join(f"    {line}" for line in [*lines, f"return {' + '.join(terms)}"])
        return f"def program(v0):\n{body}\n"

    def compiled(self) -> Callable[[Tensor], Tensor]:
        """The code as a function; errors can show its lines."""
        name = f"<program {next(_files)}>"
        linecache.cache[name] = (len(self.code), None, self.code.splitlines(keepends=True), name)
        scope: dict[str, Any] = {"torch": torch, "F": F, "inf": inf}
        exec(compile(self.code, name, "exec"), scope)
        return scope["program"]

    def tensor(self, dtype: torch.dtype = torch.float64) -> Tensor:
        return torch.tensor(self.point, dtype=dtype)

    def __str__(self) -> str:
        return f"{self.code}\nat {list(self.point)}"


Choose = Callable[[Sequence[Any]], Any]

SMALL = range(-2, 3)
SLOPES = (Fraction(1, 2), Fraction(1, 4), Fraction(-1, 2), 2)
WEIGHTS = (1, -1, 2, -2)
PLACES = (0, 0, 0, 1, -1, 2)
WIDTHS = (1, 2, 2, 3, 3, 4)


@st.composite
def programs(draw: st.DrawFn, deepest: int = DEEPEST, curved: bool = True) -> Program:
    """Programs as hypothesis draws them: it shrinks what fails. Piecewise affine if not curved."""
    return random_program(lambda options: draw(st.sampled_from(options)), deepest, curved)


def random_program(choose: Choose, deepest: int = DEEPEST, curved: bool = True) -> Program:
    """A program of up to so many steps, each of which reads what the last one made; ``random.choice`` may choose."""
    point = tuple(choose(PLACES) for _ in range(choose(WIDTHS)))
    vectors = [[Germ(each, ()) for each in point]]  # values alone
    steps: list[Step] = []
    for _ in range(choose(range(1, deepest + 1))):
        steps.append(_step(choose, vectors, curved))
        vectors.append(steps[-1].exact(Cell(), vectors))
    summed = [at for at in range(len(steps)) if choose(range(4)) == 0] + [len(steps)]
    weights = tuple((at, tuple(choose(WEIGHTS) for _ in vectors[at])) for at in summed)
    return Program(point, tuple(steps), weights)


def _step(choose: Choose, vectors: list[Vector], curved: bool) -> Step:
    last = len(vectors) - 1
    width = len(vectors[last])
    curved = curved and all(abs(germ.value) < LARGE for germ in vectors[last])
    fitting = [name for name, each in OPERATIONS.items() if each.narrowest <= width and (curved or not each.curved)]
    # Selections leave one entry: maps in between widen again.
    name = choose(["affine"] * (len(fitting) if width == 1 else len(fitting) // 3) + fitting)
    operation = OPERATIONS[name]
    partners = [at for at, vector in enumerate(vectors) if len(vector) == width]
    rest = [choose(partners) for _ in range(operation.arity - 1)]
    given: Parameters = {}
    for each in operation.parameters:
        given[each] = _parameter(choose, each, given, [germ.value for germ in vectors[last]], name)
    return Step(name, choose(range(len(operation.ways))), (last, *rest), tuple(given.items()))


def _parameter(choose: Choose, name: str, given: Parameters, values: list[Number], operation: str) -> Any:
    if name == "W":
        height = len(values) if operation == "iterated" else choose(range(1, WIDEST + 1))
        return [[choose(SMALL) for _ in values] for _ in range(height)]
    if name == "b":
        return [_centre(choose, line, values) for line in given["W"]]
    if name == "c":
        return abs(choose(values)) if operation == "softshrink" else choose(values)
    if name == "low":
        return choose([*values, 0])
    if name == "high":
        return given["low"] + choose((1, 2, 3))
    if name == "t":
        return [choose(SMALL) for _ in range(3)]
    return choose({"a": SLOPES, "k": (1, 2, 3), "p": SMALL, "q": SMALL}[name])


def _centre(choose: Choose, line: list[int], values: list[Number]) -> Number:
    """A bias, more often than not the one with which the entry lands on 0."""
    reached = sum(w * value for w, value in zip(line, values, strict=True))
    target = choose((0, 0, 0, 1, -1, None))
    return choose(SMALL) if target is None else target - reached
