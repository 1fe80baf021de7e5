"""Random programs over all operations of the tables, at points of small numbers, as torch code and in many digits."""

from __future__ import annotations

import linecache
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import count
from math import inf, isfinite
from random import Random
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from clarke.mixed.jumping import JUMPING
from clarke.mixed.smooth import SMOOTH
from clarke.mixed.table import PIECEWISE, Given, Operation, Vector, mp
from clarke.mixed.transforms import TRANSFORMS
from clarke.mixed.wide import WIDE

OPERATIONS: dict[str, Operation] = {**PIECEWISE, **SMOOTH, **JUMPING, **WIDE, **TRANSFORMS}
SHALLOWEST, DEEPEST, WIDEST = 2, 6, 4
PLACES = (0.0, 0.0, 0.0, 1.0, -1.0, 2.0, 0.5, -0.5)
WIDTHS = (1, 2, 2, 3, 3, 4, 4)
SMALL = (-2.0, -1.0, 0.0, 1.0, 2.0)
SLOPES = (0.5, 0.25, -0.5, 2.0)
WEIGHTS = (1.0, -1.0, 2.0, -0.5)
EXACTLY = 1e-30  # numbers closer than this are the same in truth
_files = count()


@dataclass(frozen=True)
class Step:
    name: str
    way: int
    arguments: tuple[int, ...]
    given: tuple[tuple[str, Any], ...]

    @property
    def operation(self) -> Operation:
        return OPERATIONS[self.name]

    def exact(self, vectors: Sequence[Vector]) -> Vector:
        return self.operation.exact(dict(self.given), *(vectors[each] for each in self.arguments))

    def code(self, result: str) -> str:
        names = dict(zip("xzu", (f"v{each}" for each in self.arguments), strict=False))
        return self.operation.ways[self.way].format(y=result, **names, **{k: written(v) for k, v in self.given})


def written(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(written, value))}]"
    return f"({value!r})" if value < 0 else repr(value)


@dataclass(frozen=True)
class Program:
    """Steps, a point, and the weights of what is summed at the end."""

    point: tuple[float, ...]
    steps: tuple[Step, ...]
    weights: tuple[tuple[int, tuple[float, ...]], ...]

    def exact_vectors(self, point: Sequence[Any]) -> list[Vector]:
        vectors = [[mp.mpf(each) for each in point]]
        for step in self.steps:
            vectors.append(step.exact(vectors))
        return vectors

    def exact(self, point: Sequence[Any]) -> Any:
        """The value, in many digits."""
        vectors = self.exact_vectors(point)
        return sum(w * each for at, weights in self.weights for w, each in zip(weights, vectors[at], strict=True))

    @cached_property
    def code(self) -> str:
        lines = [line for at, step in enumerate(self.steps, 1) for line in step.code(f"v{at}").split("\n")]
        terms = [f"(v0.new_tensor({list(weights)}) * v{at}).sum()" for at, weights in self.weights]
        body = "\n".join(f"    {line}" for line in [*lines, f"return {' + '.join(terms)}"])
        return f"def program(v0):\n{body}\n"

    @cached_property
    def function(self) -> Callable[[Tensor], Tensor]:
        return function_of(self.code)

    def value(self, point: Sequence[float]) -> float:
        """In float64, by torch; inner derivatives want an argument that requires grad."""
        x = torch.tensor(point, dtype=torch.float64)
        if "autograd" in self.code:
            return float(self.function(x.requires_grad_()))
        with torch.no_grad():
            return float(self.function(x))

    def tensor(self) -> Tensor:
        return torch.tensor(self.point, dtype=torch.float64)

    def __str__(self) -> str:
        return f"{self.code}at {list(self.point)}"


def function_of(code: str) -> Callable[..., Any]:
    name = f"<program {next(_files)}>"
    linecache.cache[name] = (len(code), None, code.splitlines(keepends=True), name)
    scope: dict[str, Any] = {"torch": torch, "F": F, "inf": inf}
    exec(compile(code, name, "exec"), scope)
    return scope["program"]


Choose = Callable[[Sequence[Any]], Any]


def numbered(seed: int, number: int) -> tuple[Program, tuple[int, ...]]:
    """The program of a number, and a direction of small integers for its one-sided derivative."""
    generator = Random(f"{seed}/{number}")
    program = random_program(generator.choice)
    return program, tuple(generator.randint(-2, 2) for _ in program.point)


def random_program(choose: Choose) -> Program:
    """Steps are drawn one after the other; those that would overflow, or tie by rounding alone, are drawn again."""
    point = tuple(choose(PLACES) for _ in range(choose(WIDTHS)))
    program = Program(point, (), ((0, tuple(choose(WEIGHTS) for _ in point)),))
    depth = choose(range(SHALLOWEST, DEEPEST + 1))
    while len(program.steps) < depth:
        vectors = program.exact_vectors(point)
        step = _step(choose, vectors)
        if step is not None and is_sound(longer := Program(point, (*program.steps, step), program.weights)):
            program = longer
    sizes = [len(each) for each in program.exact_vectors(point)]
    summed = [at for at in range(depth) if choose(range(4)) == 0] + [depth]
    weights = tuple((at, tuple(choose(WEIGHTS) for _ in range(sizes[at]))) for at in summed)
    program = Program(point, program.steps, weights)
    require_torch(program)
    return program


def require_torch(program: Program) -> None:
    """Plain torch differentiates the program as well, unless it has no derivative of an operator: no table is wrong."""
    value = program.function(program.tensor().requires_grad_())
    try:
        if value.requires_grad:
            value.backward()
    except RuntimeError as error:
        if "is not implemented" not in str(error):
            raise


def is_sound(program: Program) -> bool:
    """Whether float64 follows the exact numbers: where these tie, it ties too, to the bit.

    Raises:
        AssertionError: torch computes something else than the table says.
    """
    try:
        true = program.exact_vectors(program.point)
    except (ZeroDivisionError, ValueError):
        return False
    if not all(isfinite(float(each)) and abs(each) < 1e4 for vector in true for each in vector):
        return False
    lines = program.code.splitlines()[:-1]
    everything = function_of("\n".join([*lines, f"    return [{', '.join(f'v{at}' for at in range(len(true)))}]"]))
    try:
        found = [each.tolist() for each in everything(program.tensor().requires_grad_())]
    except RuntimeError:  # as of `complex`, which takes no two dtypes
        return False
    if any(0 < abs(mp.nint(4 * each) / 4 - each) < EXACTLY for vector in true for each in vector):
        return False  # even 50 digits round, and a comparison may then answer otherwise
    for one, other in zip(found[-1], true[-1], strict=True):
        assert abs(one - other) <= 1e-6 * (1 + abs(other)), f"{program}\nsays {one}, the table {other}"
    return not _ties_by_rounding(found, true)


def _ties_by_rounding(found: list[list[float]], true: list[Vector]) -> bool:
    """Whether a new entry is in truth another one, its negative or a small number, and not so in float64."""
    earlier = [pair for one, other in zip(found, true, strict=True) for pair in zip(one, other, strict=True)]
    for said, exact in zip(found[-1], true[-1], strict=True):
        nearest = mp.nint(4 * exact) / 4
        if abs(nearest - exact) < EXACTLY and said != float(nearest):
            return True
        for one, other in earlier:
            for sign in (1, -1):
                if abs(exact - sign * other) < EXACTLY and said != sign * one:
                    return True
                if abs(exact - sign * other) >= EXACTLY and said == sign * one:
                    return True
    return False


def _step(choose: Choose, vectors: list[Vector]) -> Step | None:
    last = len(vectors) - 1
    width, size = len(vectors[last]), max(abs(each) for each in vectors[last])
    fitting = [
        name
        for name, each in OPERATIONS.items()
        if each.narrowest <= width <= each.widest and size <= each.largest
        for _ in range(each.share)
    ]
    name = choose(["affine"] * (len(fitting) // (2 if width == 1 else 6)) + fitting or ["relu6"])
    operation = OPERATIONS[name]
    partners = [
        at
        for at, each in enumerate(vectors)
        if at == last or (len(each) == width and max(map(abs, each)) <= operation.largest)
    ]
    rest = [choose(partners) for _ in range(operation.arity - 1)]
    given: Given = {}
    for each in operation.parameters:
        given[each] = _parameter(choose, each, given, vectors[last], name)
    step = Step(name, choose(range(len(operation.ways))), (last, *rest), tuple(given.items()))
    return step if operation.suits(given, *(vectors[at] for at in step.arguments)) else None


def _parameter(choose: Choose, name: str, given: Given, values: Vector, operation: str) -> Any:
    reached = [float(each) for each in values if is_short(each)] or [0.0]
    if name == "W":
        height = len(values) if operation == "iterated" else choose((1, 2, 3, 3, 4))
        return [[choose(SMALL) for _ in values] for _ in range(height)]
    if name == "b":
        return [_centre(choose, line, values) for line in given["W"]]
    if name == "c":
        return abs(choose(reached)) if operation == "softshrink" else choose([*reached, 0.0])
    if name == "low":
        return choose([*reached, 0.0])
    if name == "high":
        return given["low"] + choose((1.0, 2.0, 3.0))
    if name == "t":
        return [choose(SMALL) for _ in range(3)]
    return choose({"a": SLOPES, "k": (1, 2, 3), "p": SMALL, "q": SMALL, "fraction": (0.25, 0.5, 0.75, 0.125)}[name])


def _centre(choose: Choose, line: list[float], values: Vector) -> float:
    """A bias, more often than not the one with which the entry lands on 0 or on a small integer."""
    reached = sum(w * value for w, value in zip(line, values, strict=True))
    target = choose((0.0, 0.0, 0.0, 1.0, -1.0, None))
    return choose(SMALL) if target is None or not is_short(reached) else target - float(reached)


def is_short(number: Any) -> bool:
    """Whether float64 holds it with bits to spare, so that it can be a constant that is met exactly."""
    return bool(number * 1024 == mp.nint(number * 1024))
