"""Every kink that the scan finds is in the table, or listed with a reason; and the scan can fail."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from torch.utils._pytree import tree_flatten

from scan.classify import classify
from scan.programs import Program, entries
from scan.reasons import REASONS, UNPROBED
from scan.scanning import QUICK, Scan, scan, scan_programs
from subgrad.kinks import KINKS, Table

CHUNKS = 48  # so that two workers share the database evenly

Function = Callable[..., torch.Tensor]


@pytest.fixture(autouse=True)
def one_thread_and_the_same_randomness_after() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # tensors are small, and the workers share the machine
    with torch.random.fork_rng(devices=()):
        yield
    torch.set_num_threads(threads)


@pytest.mark.parametrize("chunk", range(CHUNKS))
@pytest.mark.filterwarnings("ignore")
def test_every_kink_of_the_database_is_in_the_table_or_has_a_reason(chunk: int) -> None:
    complaints = [line for name in list(entries())[chunk::CHUNKS] for line in scan(name).complaints()]
    assert not complaints, "\n".join(complaints)


def test_the_whole_database_is_scanned() -> None:
    assert len(entries()) > 500
    assert {name for chunk in range(CHUNKS) for name in list(entries())[chunk::CHUNKS]} == set(entries())


def test_no_entry_has_two_kinds_of_reason() -> None:
    assert not REASONS.keys() & UNPROBED.keys()


def planted(function: Function, *inputs: torch.Tensor, table: Table = KINKS) -> Scan:
    """The scan of a function of our own, as if it were in the database."""
    entry = SimpleNamespace(full_name="planted", op=function, gradcheck_wrapper=lambda op, *args: op(*args))
    sample = SimpleNamespace(output_process_fn_grad=lambda outputs: outputs)
    leaves, structure = tree_flatten((inputs[0], inputs[1:], {}))
    program = Program(entry, sample, tuple(leaves), structure, tuple(range(len(leaves))))
    return scan_programs("planted", [program], QUICK, table)


VECTOR = torch.tensor([0.3, -1.2, 0.7, 2.1], dtype=torch.float64)
OTHER = torch.tensor([1.3, 0.4, -0.6, 1.1], dtype=torch.float64)


def test_a_planted_kink_that_the_table_does_not_know_is_reported() -> None:
    complaints = planted(lambda x: x * (x > 0), VECTOR).complaints({})  # relu, written so that no operator has a kink
    assert complaints
    assert "a kink at" in complaints[0]
    assert "not in the table" in complaints[0]


def test_a_row_taken_from_the_table_is_missed() -> None:
    without = Table(tuple(kink for kink in KINKS if kink.op != "abs"))
    assert not planted(torch.abs, VECTOR).complaints({})
    assert planted(torch.abs, VECTOR, table=without).complaints({})


def test_a_row_hit_beside_the_kink_too_is_no_evidence() -> None:
    # relu of a constant 0 is on its kink wherever x is: it does not explain the kink of the other term.
    without = Table(tuple(kink for kink in KINKS if kink.op == "relu"))
    scanned = planted(lambda x: torch.abs(x) + torch.relu(torch.zeros_like(x)), VECTOR, table=without)
    assert scanned.uncovered


def test_a_kink_does_not_answer_for_a_jump() -> None:
    without = Table(tuple(kink for kink in KINKS if kink.op == "relu"))
    scanned = planted(lambda x: torch.relu(x) + torch.sign(x), VECTOR, table=without)
    assert {finding.verdict.kind for finding in scanned.uncovered} == {"jump"}


def test_a_reason_that_is_no_longer_needed_is_reported() -> None:
    assert planted(torch.abs, VECTOR).complaints({"planted": "because"}) == [
        "planted: all its kinks are covered; its reason is no longer needed"
    ]


def test_an_entry_probed_nowhere_is_reported() -> None:
    def refuses(x: torch.Tensor) -> torch.Tensor:
        raise ValueError("never")

    assert planted(refuses, VECTOR).complaints() == ["planted: probed nowhere, without a reason: ValueError: never"]


def test_a_row_that_cannot_be_evaluated_is_no_quiet_gap() -> None:
    broken = Table((replace(KINKS.of_overload("abs")[0], at="nonsense"),))
    with pytest.raises(NameError, match="nonsense"):
        planted(torch.abs, VECTOR, table=broken)


def at(*numbers: float) -> tuple[torch.Tensor, ...]:
    return (torch.tensor(numbers, dtype=torch.float64),)


@pytest.mark.parametrize(
    ("kind", "function", "point"),
    [
        ("smooth", lambda x: x[0].sin() * 1000, at(0.0)),
        ("smooth", lambda x: x[0].abs() ** 1.5, at(0.0)),
        ("smooth", lambda x: 1e4 * x[0] ** 2 + 1e6 * x[0], at(1.0, 2.0)),
        ("smooth", lambda x: torch.nn.functional.normalize(x[0], dim=0), at(0.0, 0.0, 0.0)),  # linear within its eps
        ("smooth", lambda x: (x[0].square().sum() + 1e-12).sqrt(), at(0.0, 0.0)),
        ("smooth", lambda x: x[0].float(), at(0.1, 0.0)),  # rounds, which is no jump
        ("kink", lambda x: x[0].abs(), at(0.0)),
        ("kink", lambda x: 1e-3 * x[0].abs() + x[0].sin(), at(0.0)),
        ("kink", lambda x: x[0].norm(), at(0.0, 0.0)),
        ("kink", lambda x: x[0].median(), at(1.0, 1.0, 1.0)),  # left and right quotients agree in every direction
        ("kink", lambda x: 1e3 + x[0].amax(), at(2.0, 2.0)),
        ("jump", lambda x: x[0].floor(), at(3.0)),
        ("jump", lambda x: x[0].sign(), at(0.0)),  # odd, so that both sides have the same quotient
        ("jump", lambda x: x[0].abs().sqrt(), at(0.0)),
        ("jump", lambda x: torch.xlogy(x[0].abs(), x[0].abs()), at(0.0)),  # grows as slowly as a logarithm
        ("pole", lambda x: x[0].sqrt(), at(0.0)),
        ("pole", lambda x: x[0].reciprocal(), at(0.0)),
        ("pole", lambda x: torch.special.entr(x[0]), at(0.0)),  # steep like a logarithm
        ("edge", lambda x: x[0] ** 1.5, at(0.0)),  # ends, and is flat there
        ("edge", lambda x: (1 + x[0]).log() + 0 * x[0].sqrt() ** 3, at(0.0)),
    ],
)
def test_functions_are_told_apart(kind: str, function: Function, point: tuple[torch.Tensor, ...]) -> None:
    eps = torch.finfo(function(point).dtype).eps
    verdict = classify(lambda x: function(x).double().flatten(), point, eps=eps)
    assert verdict.kind == kind


def test_the_quotients_of_a_verdict_are_the_slopes() -> None:
    verdict = classify(lambda x: torch.nn.functional.leaky_relu(x[0], 0.25), at(0.0))
    assert math.isclose(min(verdict.left / verdict.right, verdict.right / verdict.left), 0.25, rel_tol=1e-6)
