"""Random programs of every operator that has a rule: never wrong, and every refusal has its line.

Fewer of the same programs than `scripts/nearby.py` runs; see docs/clarke-evidence.md for all.
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from dataclasses import replace

import pytest
import torch

import subgrad
from clarke.mixed import judge
from clarke.mixed.coverage import counted, wanted
from clarke.mixed.judge import Outcome, examine, jumping
from clarke.mixed.programs import OPERATIONS, Program, Step, numbered

PROGRAMS = range(150)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("number", PROGRAMS)
def test_a_random_program_moves_as_the_library_says(number: int) -> None:
    program, direction = numbered(0, number)
    verdict = examine(program, number, direction)
    assert not verdict.outcome.is_miss, f"{verdict.outcome.value}: {verdict.said}\n{program}\ndirection {direction}"


GIVEN = {"a": 0.5, "k": 2, "p": 2.0, "q": -1.0, "c": 0.25, "low": -0.5, "high": 0.5, "t": [1.0, 2.0, 4.0]}


def spellings(name: str) -> list[Program]:
    """An operation alone, in each way to write it."""
    operation = OPERATIONS[name]
    width = min(max(operation.narrowest, 2), operation.widest)
    point = (0.5, -0.75, 1.25, 0.25)[:width]
    given = {**GIVEN, "W": [[1.0, 2.0, -1.0, 0.5][:width]] * width, "b": [0.5] * width, "fraction": 0.25}
    kept = tuple((each, given[each]) for each in operation.parameters)
    steps = [Step(name, way, (0,) * operation.arity, kept) for way in range(len(operation.ways))]
    size = len(steps[0].exact([list(point)]))
    return [Program(point, (step,), ((1, tuple(float(at + 1) for at in range(size))),)) for step in steps]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", OPERATIONS)
def test_every_spelling_of_an_operation_computes_what_the_table_says(name: str) -> None:
    for program in spellings(name):
        exact = float(program.exact(program.point))
        assert program.value(program.point) == pytest.approx(exact, rel=1e-6, abs=1e-7), program.code


@pytest.mark.filterwarnings("ignore")
def test_every_rule_that_a_cpu_can_run_is_run_by_some_operation() -> None:
    run: Counter[str] = Counter()
    with counted(run, Counter()):
        for program in (program for name in OPERATIONS for program in spellings(name)):
            with suppress(Exception), judge.limited(5):  # which other tests are about
                subgrad.element(program.function)(program.tensor())
    assert [op for op in wanted() if not run[op]] == []


def a_program(name: str, way: int, *point: float, **given: float) -> Program:
    step = Step(name, way, (0,), tuple(given.items()))
    size = len(step.exact([list(point)]))
    return Program(point, (step,), ((1, (1.0, 2.0, -1.0)[:size]),))


def test_wrong_elements_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    program = a_program("abs", 0, 0.0, 1.0)
    assert examine(program, 0, (1, -1)).outcome is Outcome.RIGHT
    right = subgrad.element

    def wrong(function, seed):
        def found(x):
            element = right(function, seed=seed)(x)
            return replace(element, gradient=-element.gradient)

        return found

    monkeypatch.setattr(judge.subgrad, "element", wrong)
    assert examine(program, 0, (1, -1)).outcome is Outcome.WRONG


def test_wrong_one_sided_derivatives_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    program = a_program("abs", 0, 0.0, 1.0)
    right = subgrad.jvp
    monkeypatch.setattr(judge.subgrad, "jvp", lambda *given: (right(*given)[0], 1.001 * right(*given)[1]))
    assert examine(program, 0, (1, -1)).outcome is Outcome.WRONG


@pytest.mark.parametrize(
    ("program", "jumps"),
    [
        (a_program("step", 0, 0.0, 1.0), True),
        (a_program("step", 0, 0.5, 1.0), False),
        (a_program("whole_part", 0, 2.0), True),
        (a_program("itself", 0, 2.0, 0.0), False),
        (a_program("wave", 0, 2.0, 0.0), False),
        (a_program("length", 6, 0.0, 0.0), False),
    ],
    ids=lambda each: str(each).partition("\n    return")[0].rpartition("= ")[2],
)
def test_jumps_are_told_from_kinks_by_values(program: Program, jumps: bool) -> None:
    assert jumping(program) == jumps


def test_programs_are_drawn_again_by_their_numbers() -> None:
    torch.manual_seed(1)
    one = str(numbered(3, 14)[0])
    torch.manual_seed(2)
    assert str(numbered(3, 14)[0]) == one != str(numbered(3, 15)[0])
