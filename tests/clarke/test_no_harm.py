"""Once the rules of whole programs are registered, torch does what it did: other code notices nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from fresh import run_fresh
from torch import Tensor
from torch.utils._pytree import tree_leaves

import subgrad

X = torch.tensor([-1.5, 0.0, 2.0])
ORDERED = X.sort().values
COUNTS = torch.arange(-1, 2)

# Every way in which numbers, integers, conditions and results to write into reach the operators that have rules.
CALLS: dict[str, Callable[[], Any]] = {
    "div by int": lambda: torch.div(X, 2, rounding_mode="floor"),
    "div by float": lambda: torch.div(X, 2.0, rounding_mode="trunc"),
    "div of int": lambda: torch.div(2, X + 5, rounding_mode="floor"),
    "div of integers": lambda: torch.div(COUNTS, 2, rounding_mode="floor"),
    "div in place": lambda: X.clone().div_(2, rounding_mode="floor"),
    "floor_divide": lambda: (X // 2, COUNTS // 2),
    "remainder": lambda: (X % 2, X % torch.tensor(2.0), 2 % (X + 5), COUNTS % 2, X.clone().remainder_(2)),
    "fmod": lambda: (torch.fmod(X, 2), torch.fmod(X, torch.tensor(2))),
    "gt": lambda: (X > 0, X > torch.tensor(0), 0 > X, COUNTS > 0, (X > 0) > 0, X.clone().gt_(0)),  # noqa: SIM300
    "eq": lambda: (X == 0, X != 0.0, X == COUNTS, (X > 0) == (X < 0), torch.complex(X, X) == 0),
    "gt to": lambda: torch.gt(X, 0, out=torch.empty(3, dtype=torch.bool)),
    "where": lambda: (torch.where(X > 0, 1, 2), torch.where(X > 0, X, 0)),
    "maximum": lambda: (torch.maximum(X, torch.tensor(0.0)), torch.maximum(X, X, out=torch.empty(3)), COUNTS.max()),
    "clamp": lambda: (X.clamp(0, torch.inf), X.clamp(0), COUNTS.clamp(0, 1), X.clamp(X, X)),
    "steps": lambda: (X.floor(), X.ceil(), X.round(decimals=1), X.frac(), X.trunc(), COUNTS.sign(), X.sgn()),
    "heaviside": lambda: torch.heaviside(X, torch.tensor(1.0)),
    "copysign": lambda: (torch.copysign(X, -1), torch.copysign(torch.tensor(1.0), X)),
    "complex": lambda: (torch.complex(X, X).sgn(), torch.complex(X, X).abs()),
    "powers": lambda: (X.abs() ** 0.5, 2**X, X.abs() ** X.abs(), X.abs().sqrt()),
    "norms": lambda: (torch.hypot(X, torch.tensor(1.0)), X.norm(), X.norm(p=1), torch.cdist(X[:, None], X[:, None])),
    "order": lambda: (X.sort(), X.topk(2), X.argsort(), COUNTS.flip(0).argsort(), X.kthvalue(2), X.median()),
    "extremes": lambda: (X.argmax(), X.max(0), COUNTS.amax(), X.aminmax(), X.cummax(0), X.quantile(0.3)),
    "buckets": lambda: (torch.bucketize(X, ORDERED), torch.bucketize(0.5, ORDERED), torch.searchsorted(ORDERED, 0.5)),
    "conditions": lambda: (torch.signbit(X), torch.logical_and(X, COUNTS), torch.logical_not(COUNTS), X.bool()),
    "places": lambda: (X.nonzero(), X.nonzero(as_tuple=True), torch.isin(X, torch.tensor([0.0])), X.unique()),
    "casts": lambda: (X.long(), COUNTS.float(), X.half() > 0, X.bfloat16() % 2),
    "numbers": lambda: (X[0].item(), float(X[1]), bool(X[1]), X.tolist(), torch.equal(X, X), torch.allclose(X, X)),
    "empty": lambda: (torch.zeros(0) > 0, torch.zeros(0).sort()),
    "meta": lambda: (torch.empty(2, device="meta") > 0).shape,
    "sparse": lambda: torch.eye(2).to_sparse().abs().to_dense(),
}


def outcome(call: Callable[[], Any]) -> list[Any]:
    return [each.tolist() if isinstance(each, Tensor) and not each.is_meta else each for each in tree_leaves(call())]


def test_plain_calls_are_as_before() -> None:
    # A fresh process: here the rules have been registered long ago.
    found = run_fresh(FRESH)
    assert (found.stdout, found.returncode) == ("", 0), found.stdout + found.stderr[-2000:]


FRESH = """
import torch, subgrad
from clarke.test_no_harm import CALLS, outcome
before = {name: outcome(call) for name, call in CALLS.items()}
subgrad.grad(lambda x: torch.relu(x).sum())(torch.zeros(2))
for name, call in CALLS.items():
    try:
        if outcome(call) != before[name]:
            print(name)
    except Exception as error:
        print(name, error)
"""


def test_so_are_calls_inside_a_program_that_meets_kinks() -> None:
    found = {}

    def program(x: Tensor) -> Tensor:
        if x.dtype is torch.float32:  # some runs are in double precision
            for name, call in CALLS.items():
                found.setdefault(name, []).append(outcome(call))
        return torch.relu(x).sum()

    subgrad.grad(program)(torch.zeros(2))
    for name, outcomes in found.items():
        assert all(each == outcome(CALLS[name]) for each in outcomes), name
