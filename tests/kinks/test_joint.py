"""Kinks of many entries at once, against gradients and differences near them."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from kinks.steepness import check as check_pole
from torch import Tensor

import subgrad
from subgrad.apply.tie_sharing import LEFT_TO_TORCH, REPAIRS
from subgrad.kinks import KINKS
from subgrad.kinks.sets import Joint, Jump, Pole
from subgrad.survey.joint import JointCall, joint_calls
from subgrad.survey.sampled_gradients import distance, gradient, gradients_nearby, least

ROWS = list(joint_calls())
KINKED = [row for row in ROWS if isinstance(row.kink.set, Joint)]
JUMPING = [row for row in ROWS if isinstance(row.kink.set, Jump)]
CLOSE = 1e-4  # smooth parts bend a little between the points


def one_sided(row: JointCall, step: float) -> Tensor:
    """Difference quotients to both sides along a few directions: one row for each side."""
    generator = torch.Generator().manual_seed(1)
    here, quotients = row.function(*row.inputs), []
    for _ in range(6):
        moves = [torch.randn(each.shape, generator=generator, dtype=each.dtype) for each in row.inputs]
        sides = [
            row.function(*(each + sign * step * move for each, move in zip(row.inputs, moves, strict=True)))
            for sign in (1, -1)
        ]
        quotients.append(torch.stack([(sides[0] - here) / step, (here - sides[1]) / step]))
    return torch.stack(quotients, dim=1)


def skip_if_torch_refuses(row: JointCall) -> None:
    if row.reverse(1.0) is None and not isinstance(row.kink.set, Jump):
        pytest.skip("torch itself has no derivative: aminmax up to 2.12")


def check(row: JointCall) -> None:
    """Fail unless the row is what the forward function and the gradients near it show."""
    if isinstance(row.kink.set, Pole):
        check_pole(row)
        return
    if isinstance(row.kink.set, Jump):
        # A jump: quotients that grow as the step shrinks, or no value at all on one side.
        fine, coarse = one_sided(row, 2.0**-26), one_sided(row, 2.0**-20)
        assert (~fine.isfinite()).any() or (fine.abs().amax() > 4 * coarse.abs().amax())
        return
    right, left = one_sided(row, 2.0**-26)
    assert (right - left).abs().max() > 1e-2, "no kink"
    points = gradients_nearby(row.function, row.inputs)
    # For both signs of the cotangent: torch's own may not even be linear in it.
    elements = [
        gradient(lambda *inputs, sign=sign: row.function(*inputs) * sign, row.inputs) * sign for sign in (1, -1)
    ]
    round_set = row.kink.set.hull.startswith("hull")  # its vertices are infinitely many, and the points a few of them
    inside = all(distance(element, points) < (0.25 if round_set else CLOSE) for element in elements)
    is_least = all(bool((element - least(points)).norm() < CLOSE) for element in elements)
    assert row.kink.torch == ("least" if is_least else "one" if inside else None), f"{elements}, {least(points)}"


@pytest.mark.parametrize("row", [row for row in ROWS if row.kink.op != "where.self"], ids=str)
def test_the_row_is_what_values_and_gradients_nearby_show(row: JointCall) -> None:
    skip_if_torch_refuses(row)
    check(row)


def test_where_jumps_in_what_its_condition_compares() -> None:
    (row,) = [row for row in ROWS if row.kink.op == "where.self"]
    flipped = replace(row, call={**row.call, "condition": ~row.call["condition"]})
    assert row.function(*row.inputs) != flipped.function(*row.inputs)


def test_every_row_has_a_sample_that_hits_it() -> None:
    rows = {kink for kink in KINKS if not kink.is_entrywise and kink.op not in KINKS.entrywise}
    assert {row.kink for row in ROWS} == rows


def test_every_kink_is_torchs_least_or_repaired_or_said_to_be_left_to_torch() -> None:
    assert {row.kink.op for row in KINKED if row.kink.torch != "least"} == {*REPAIRS, *LEFT_TO_TORCH}


@pytest.mark.parametrize("convention", ["min-norm", "documented", "mean"])
@pytest.mark.parametrize("row", KINKED, ids=str)
def test_conventions_take_the_least_element_in_reverse_mode(row: JointCall, convention: str) -> None:
    if row.kink.op in LEFT_TO_TORCH or (convention == "mean" and not row.kink.set.middle):
        pytest.skip("left to torch, as docs/kinks.md says")
    skip_if_torch_refuses(row)
    leaves = [each.clone().requires_grad_() for each in row.inputs]
    with subgrad.use(convention):
        found = torch.autograd.grad(row.function(*leaves) * -2.5, leaves, materialize_grads=True)
    wanted = least(gradients_nearby(row.function, row.inputs))
    torch.testing.assert_close(torch.cat([each.flatten() for each in found]), -2.5 * wanted, atol=CLOSE, rtol=0)


@pytest.mark.parametrize(
    ("op", "changes"),
    [
        ("amax", {"torch": "one"}),
        ("max.dim", {"torch": "least"}),
        ("amax", {"set": Jump()}),
        ("floor", {"set": Joint("")}),
        ("sqrt", {"set": Pole(order=1.0, side="above")}),
        ("log", {"set": Pole(order=1.0, side="both")}),
        ("acos", {"set": Pole(order=0.5, side="below")}),
        ("reciprocal", {"set": Pole(order=2.0, side="above")}),
        ("floor", {"set": Pole(order=0.5, side="above")}),
    ],
    ids=[
        "least for one",
        "one for least",
        "no jump",
        "no kink",
        "too steep",
        "two sides for one",
        "the other side",
        "one side for two",
        "no pole",
    ],
)
def test_a_planted_wrong_row_is_caught(op: str, changes: dict[str, object]) -> None:
    row = next(row for row in ROWS if row.kink.op == op)
    with pytest.raises(AssertionError):
        check(replace(row, kink=replace(row.kink, **changes)))
