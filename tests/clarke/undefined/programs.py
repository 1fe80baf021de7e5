"""Random programs of singular parts, made harmless or not, beside ordinary ones, as torch code and in many digits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from random import Random
from typing import Any

import torch
from torch import Tensor

from clarke.mixed.programs import function_of, is_short, written
from clarke.mixed.table import Operation, Vector
from clarke.undefined.guards import GUARDS, Guard
from clarke.undefined.numbers import mp
from clarke.undefined.removable import ORDINARY, REMOVABLE
from clarke.undefined.rows import WIDE
from clarke.undefined.singular import SINGULAR, Singular

PLACES = (0.0, 0.0, 1.0, -1.0, 2.0, 0.5)
COEFFICIENTS = (-2.0, -1.0, 0.0, 1.0, 1.0, 2.0)
WEIGHTS = (1.0, -1.0, 2.0, -0.5)
CONSTANTS = (0.5, 3.0, -3.0, 1.25, 0.25)
PARTS = (1, 1, 2, 2, 3)
ZERO = (0.0,)
PLAIN = (1.0, 2.0, 0.5)
Choose = Callable[[Sequence[Any]], Any]


@dataclass(frozen=True)
class Step:
    """One operation; ``names`` are what the table of what is drawn calls it."""

    names: tuple[str, ...]
    code: str
    exact: Callable[..., Vector]
    arguments: tuple[int, ...]
    given: tuple[tuple[str, Any], ...] = ()

    def run(self, vectors: Sequence[Vector]) -> Vector:
        return self.exact(dict(self.given), *(vectors[each] for each in self.arguments))

    def line(self, result: str) -> str:
        names = dict(zip("xz", (f"v{each}" for each in self.arguments), strict=False))
        return self.code.format(y=result, **names, **{k: written(v) for k, v in self.given})


@dataclass(frozen=True)
class Program:
    """Steps, a point, and the weights of what is summed at the end; or squared before."""

    point: tuple[float, ...]
    steps: tuple[Step, ...]
    weights: tuple[tuple[int, tuple[float, ...]], ...]

    def exact(self, point: Sequence[Any]) -> Any:
        """The value, in many digits; nan where the program is not defined."""
        vectors = self.vectors(point)
        terms = [w * each for at, weights in self.weights for w, each in zip(weights, vectors[at], strict=True)]
        value = sum(terms, mp.mpf(0))
        return mp.nan if isinstance(value, mp.mpc) else value

    def vectors(self, point: Sequence[Any]) -> list[Vector]:
        found = [[mp.mpf(each) for each in point]]
        for step in self.steps:
            found.append(step.run(found))
        return found

    @cached_property
    def code(self) -> str:
        lines = [line for at, step in enumerate(self.steps, 1) for line in step.line(f"v{at}").split("\n")]
        terms = [f"(v0.new_tensor({list(weights)}) * v{at}).sum()" for at, weights in self.weights]
        body = "\n".join(f"    {line}" for line in [*lines, f"return {' + '.join(terms)}"])
        return f"def program(v0):\n{body}\n"

    @cached_property
    def function(self) -> Callable[[Tensor], Tensor]:
        return function_of(self.code)

    def tensor(self) -> Tensor:
        return torch.tensor(self.point, dtype=torch.float64)

    def __str__(self) -> str:
        return f"{self.code}at {list(self.point)}"


def numbered(seed: int, number: int) -> Program:
    generator = Random(f"{seed}/{number}")
    while True:
        program = _drawn(generator.choice)
        if program is not None and _is_sound(program):
            return program


def _is_sound(program: Program) -> bool:
    """Torch computes what the tables say, and it is finite.

    Raises:
        AssertionError: torch computes something else.
    """
    try:
        exact = program.exact(program.point)
    except (ZeroDivisionError, ValueError, OverflowError):
        return False
    with torch.no_grad():
        value = float(program.function(program.tensor()))
    if not mp.isfinite(exact) or abs(exact) > 1e4 or not abs(value) < 1e4:
        return False
    assert abs(value - float(exact)) <= 1e-6 * (1 + abs(value)), f"{program}\nis {value}, the tables say {exact}"
    return True


def _drawn(choose: Choose) -> Program | None:
    """Parts that begin with a map onto what is singular, each followed by ordinary ones or by none."""
    point = tuple(choose(PLACES) for _ in range(choose((1, 2, 2, 3, 4))))
    program = Program(point, (), ((0, tuple(choose(WEIGHTS) for _ in point)),))
    ends = [0] if choose((True, False)) else []
    for _ in range(choose(PARTS)):
        longer = _with_a_part(choose, program)
        if longer is None:
            return None
        program = longer
        ends.append(len(program.steps))
        if choose((True, False, False)):
            program = _after(program, _ordinary(choose, program))
            ends[-1] = len(program.steps)
    if len(ends) > 2 and choose((True, False)):
        joined = Step(("joined",), "{y} = {x}.sum()[None] * {z}", _scaled, (ends[-1], ends[-2]))
        program, ends = _after(program, joined), [*ends[:-2], len(program.steps) + 1]
    sizes = [len(each) for each in program.vectors(point)]
    weights = tuple((at, tuple(choose(WEIGHTS) for _ in range(sizes[at]))) for at in dict.fromkeys(ends) if sizes[at])
    return Program(point, program.steps, weights)


def _scaled(given: dict[str, Any], x: Vector, z: Vector) -> Vector:
    return [sum(x) * each for each in z]


def _after(program: Program, step: Step | None) -> Program:
    return program if step is None else Program(program.point, (*program.steps, step), program.weights)


def _with_a_part(choose: Choose, program: Program) -> Program | None:
    kind = choose(("guarded", "guarded", "guarded", "removable", "removable", "rows"))
    if kind == "guarded":
        name, singular = choose(list(SINGULAR.items()))
        program, at = _landed(choose, program, (*singular.bad, *singular.good))
        step = _guarded(choose, name, singular, program, at)
    else:
        name, operation = choose(list((REMOVABLE if kind == "removable" else WIDE).items()))
        is_even = choose((True, False))
        program, at = _landed(choose, program, ZERO if is_even else (*ZERO, *ZERO, *PLAIN))
        others = [at]
        if operation.arity == 2:
            width = len(program.vectors(program.point)[at])
            program, other = _landed(choose, program, (*ZERO, *PLAIN), width)
            others.append(other)
        step = _whole(choose, name, operation, program, others)
    return None if step is None else _after(program, step)


def _landed(choose: Choose, program: Program, targets: Sequence[float], width: int = 0) -> tuple[Program, int]:
    """A linear map of the point, or its square, onto targets: each entry is met to the bit."""
    start = program.vectors(program.point)[0]
    width = width or choose((1, 2, 2, 3))
    rows = [[choose(COEFFICIENTS) for _ in start] for _ in range(width)]
    rows = [row if any(row) else [1.0, *row[1:]] for row in rows]
    shift = [choose(targets) - float(sum(w * each for w, each in zip(row, start, strict=True))) for row in rows]
    code = "{y} = {x}.new_tensor({W}) @ {x} + {x}.new_tensor({b})"
    step = Step(("landed",), code, _affine, (0,), (("W", rows), ("b", shift)))
    program = _after(program, step)
    if choose((True, False, False, False)) and not any(each < 0 for each in program.vectors(program.point)[-1]):
        names, code, exact = choose(FOLDED)
        program = _after(program, Step(names, code, exact, (len(program.steps),)))
    return program, len(program.steps)


def _affine(given: dict[str, Any], x: Vector) -> Vector:
    rows = zip(given["W"], given["b"], strict=True)
    return [sum((w * each for w, each in zip(row, x, strict=True)), mp.mpf(b)) for row, b in rows]


FOLDED: tuple[tuple[tuple[str, ...], str, Callable[..., Vector]], ...] = (
    (("squared",), "{y} = {x} * {x}", lambda given, x: [each * each for each in x]),
    (("its size times itself",), "{y} = {x} * {x}.abs()", lambda given, x: [each * abs(each) for each in x]),
)


def _mask(choose: Choose, x: Vector, bad: Sequence[float]) -> list[bool]:
    """What is singular is left out, but for one time in twenty."""
    is_careful = choose(range(20)) > 0
    return [bool(choose((True, True, False)) and not (is_careful and float(each) in bad)) for each in x]


def _guarded(choose: Choose, name: str, singular: Singular, program: Program, at: int) -> Step | None:
    x = program.vectors(program.point)[at]
    how = choose(list(GUARDS))
    guard: Guard = GUARDS[how]
    given: dict[str, Any] = {"c": choose(CONSTANTS)}
    if guard.is_masking:
        mask = _mask(choose, x, singular.bad)
        given = {"m": mask, "k": [place for place, m in enumerate(mask) if m]}
        if not any(mask):
            return None
    elif how in ("above", "below"):
        sides = [[float(each) for each in x if (float(each) in singular.bad) is is_bad] for is_bad in (True, False)]
        given["c"] = _between(choose, *(sides if how == "above" else sides[::-1]))
        if given["c"] is None:
            return None
    code = choose(guard.ways).replace("{s}", f"({singular.code})")
    if isinstance(given.get("m"), list) and "new_tensor({m})" in code:
        given["m"] = [float(each) for each in given["m"]]
    return Step((name, how), code, lambda given, x: guard.exact(given, singular.exact, x), (at,), tuple(given.items()))


def _between(choose: Choose, low: list[float], high: list[float]) -> float | None:
    """A number above the first and below the others; one time in ten as large as the largest of the first."""
    if not low:
        return min(high) - 0.5
    if not high:
        return max(low) + 0.5
    if max(low) >= min(high):
        return None
    return max(low) if choose(range(10)) == 0 else (max(low) + min(high)) / 2


def _whole(choose: Choose, name: str, operation: Operation, program: Program, arguments: list[int]) -> Step | None:
    vectors = [program.vectors(program.point)[each] for each in arguments]
    way = choose(range(len(operation.ways)))
    given: dict[str, Any] = {}
    if "m" in operation.parameters:
        rows = list(zip(*vectors, strict=True))
        mask = [bool(choose((True, True, False))) for _ in rows]
        if ", " in name:  # those with a 0, or of equal entries, are left out nearly always
            is_careful = choose(range(10)) > 0
            mask = [
                bool(m and not (is_careful and (not row[0] or row[0] == row[-1])))
                for m, row in zip(mask, rows, strict=True)
            ]
        given["m"] = mask
    if not operation.suits(given, *vectors) or len(vectors[0]) < operation.narrowest:
        return None
    step = Step(tuple(name.split(", ")), operation.ways[way], operation.exact, tuple(arguments), tuple(given.items()))
    return step if _has_entries(step, program) else None


def _has_entries(step: Step, program: Program) -> bool:
    try:
        return bool(step.run(program.vectors(program.point)))
    except (ZeroDivisionError, ValueError):
        return False


def _ordinary(choose: Choose, program: Program) -> Step | None:
    values = program.vectors(program.point)[-1]
    if not all(mp.isfinite(each) and abs(each) < 20 for each in values):
        return None
    # Kinks are met to the bit or not at all.
    smooth = [name for name in ORDINARY if name not in ("relu", "abs", "largest") or all(map(is_short, values))]
    name = choose(smooth)
    operation = ORDINARY[name]
    return Step((name,), choose(operation.ways), operation.exact, (len(program.steps),))
