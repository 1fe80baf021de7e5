"""Why a gradient became infinite or NaN: the guilty line of twenty planted programs, and of what is like them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

import subgrad
from audit.nan_programs import PROGRAMS, Program
from subgrad.audit import Audit, Line, Nonfinite


def explained(program: Program) -> Audit:
    w = program.weight.clone().requires_grad_()
    return subgrad.explain_nan(lambda: program.loss(w, program.bad), {"w": w})


def armed(program: Program) -> Audit:
    """In an unchanged loop, whose third batch is the bad one."""
    w = program.weight.clone().requires_grad_()
    optimizer = torch.optim.SGD([w], lr=0.0)
    batches = [program.bad] if program.good is None else [program.good, program.good, program.bad]
    with subgrad.audit(nonfinite=True) as audit:
        for batch in batches:
            optimizer.zero_grad()
            program.loss(w, batch).backward()
            optimizer.step()
    assert not audit.unseen
    return audit.result


def line_of(line: Line | None) -> int | None:
    return None if line is None else line.site.line


def marked(found: Nonfinite) -> dict[str, int | None]:
    lines = {
        "guilty": found.guilty,
        "mask": found.mask,
        "zero": found.zero,
        "nan": found.nan_line,
        "value": found.value,
    }
    return {name: line_of(line) for name, line in lines.items()}


@pytest.mark.parametrize("way", [explained, armed])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_the_guilty_line_is_named_and_what_lies_around_it(program: Program, way: Callable[[Program], Audit]) -> None:
    if program.good is not None:
        w = program.weight.clone().requires_grad_()
        assert torch.autograd.grad(program.loss(w, program.good), w)[0].isfinite().all()
    (found, *others) = way(program).nonfinite
    assert all(each.step > found.step for each in others)  # of steps with weights that are NaN by then
    found_lines, expected = marked(found), program.lines()
    assert {name: found_lines[name] for name in expected} == expected
    assert found.guilty is not None
    assert found.guilty.operator == program.operator
    assert found.is_whole
    assert (found.mask is None) == ("mask" not in expected)
    assert (found.kind == "value") == ("value" in expected)
    assert found.step == (2 if way is armed and program.good is not None else 0)
    if "nan" not in expected and found.became == "NaN" and found.kind == "slope":  # in the line itself, or the next
        assert found_lines["nan"] in (found_lines["guilty"], line_of(found.line))


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_every_program_gets_advice(program: Program) -> None:
    found = explained(program).nonfinite[0]
    assert found.advice
    for each in found.advice:
        compile(each.code, "advice", "exec")


def test_entry_values_cotangent_and_gradient_are_those_of_the_run() -> None:
    x = torch.tensor([[4.0, 9.0], [16.0, 0.0]], requires_grad=True)
    factors = torch.tensor([[1.0, 2.0], [3.0, 5.0]])
    (found,) = subgrad.explain_nan(lambda: (x.sqrt() * factors).sum(), {"x": x}).nonfinite
    assert found.line is not None
    assert (found.line.entry, found.line.inputs) == ((1, 1), (("self", "0"),))
    assert (found.cotangent, found.gradient, found.became) == ("5", "inf", "infinite")
    assert [(each.parameter, each.entries, each.nan, each.infinite) for each in found.reached] == [("x", 4, 0, 1)]


def test_broadcast_operands_and_reductions_keep_their_entries() -> None:
    x = torch.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    n = torch.tensor([[2.0], [0.0]], requires_grad=True)
    (found,) = subgrad.explain_nan(lambda: torch.where(n > 0, x / n, 0.0).sum(), {"n": n}).nonfinite
    assert found.line is not None
    assert found.line.entry == (1, 0)
    assert dict(found.line.inputs)["other"] == "0"
    assert found.cotangent == "0"


# Kinds that are told apart.


def leaf(*numbers: float, **kwargs: Any) -> Tensor:
    return torch.tensor(numbers, requires_grad=True, **kwargs)


def one(loss: Callable[[], Any], x: Tensor) -> Nonfinite:
    (found,) = subgrad.explain_nan(loss, {"x": x}).nonfinite
    return found


def test_an_overflow_of_finite_numbers_is_no_infinite_slope() -> None:
    x = leaf(1e-30, 2.0)
    found = one(lambda: ((x * 1e30) * torch.tensor([1e20, 1.0])).sum(), x)
    assert (found.kind, found.became, found.cotangent, found.gradient) == ("overflow", "infinite", "1e+20", "inf")
    assert found.line is not None
    assert (found.line.operator, found.line.entry) == ("mul", (0,))
    assert not found.advice


def test_a_loss_that_is_not_finite_is_told_from_a_gradient_that_became_so() -> None:
    x = leaf(0.0, 2.0)
    found = one(lambda: (torch.log(x) * torch.tensor([1.0, 3.0])).sum(), x)
    assert found.kind == "value"
    assert found.value is not None
    assert found.value.operator == "log"
    assert dict(found.value.inputs) == {"self": "0", "result": "-inf"}


def test_batches_that_hold_nan_are_named_as_what_a_line_was_given() -> None:
    model, batch = torch.nn.Linear(2, 2), torch.tensor([[float("nan"), 1.0]])
    (found,) = subgrad.explain_nan(lambda: F.cross_entropy(model(batch), torch.tensor([0])), model).nonfinite
    assert found.kind == "value"
    assert found.value is not None
    assert found.value.operator == "addmm"
    assert found.value.module == "Linear"
    assert [each.parameter for each in found.reached] == ["weight", "bias"]


def test_a_gradient_that_backward_was_given_is_not_blamed_on_a_line() -> None:
    x = leaf(1.0, 2.0)
    found = one(lambda: (x * 2).backward(torch.tensor([float("nan"), 1.0])), x)
    assert (found.kind, found.line, found.became) == ("cotangent", None, "NaN")


def test_infinite_gradients_of_both_signs_from_several_uses() -> None:
    x = leaf(0.0, 4.0)
    found = one(lambda: (x.sqrt() - (1 * x).sqrt()).sum(), x)
    assert (found.kind, found.became, found.nan_line) == ("slope", "NaN", None)
    assert "both signs were added up" in str(found)


class Broken(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:  # type: ignore[override]
        return gradient / 0.0


def test_a_function_with_a_backward_of_its_own_is_named_by_that() -> None:
    x = leaf(1.0, 2.0)
    found = one(lambda: (3 * Broken.apply(x)).sum(), x)
    assert found.line is not None
    assert (found.line.operator, found.became) == ("Broken", "infinite")
    first = Broken.backward.__code__.co_firstlineno
    assert first <= found.line.site.line <= first + 1


MASKED: dict[str, Callable[[Tensor], Tensor]] = {
    "where": lambda x: torch.where(x > 0, x.sqrt(), 0.0),
    "masked_fill": lambda x: x.sqrt().masked_fill(x == 0, 0.0),
    "index": lambda x: x.sqrt()[x > 0],
    "slice": lambda x: x.sqrt()[1:],
    "mul": lambda x: x.sqrt() * torch.tensor([0.0, 1.0, 1.0]),
    "clamp": lambda x: x.log().clamp(min=-10.0),
    "nan_to_num": lambda x: x.log().nan_to_num(neginf=0.0),
    "maximum": lambda x: torch.maximum(x.log(), torch.tensor(-5.0)),
    "max": lambda x: x.sqrt().max(),
    "nansum": lambda x: torch.nansum(x / x),
    "relu": lambda x: torch.relu(x.log()),
    "topk": lambda x: x.sqrt().topk(1).values,
    "gather": lambda x: x.sqrt().gather(0, torch.tensor([1, 2])),
}


@pytest.mark.parametrize("mask", MASKED)
def test_masks_are_named_whatever_they_are_made_of(mask: str) -> None:
    x = leaf(0.0, 4.0, 9.0)
    found = one(lambda: (MASKED[mask](x) * 2).sum(), x)
    assert found.mask is not None
    assert found.mask.operator == mask
    assert found.guilty is not None
    assert found.guilty.operator in ("sqrt", "log", "div")


def test_a_factor_that_is_0_is_no_mask() -> None:
    x = leaf(0.0, 4.0)
    found = one(lambda: (x * x.sqrt()).sum(), x)
    assert found.mask is None
    assert found.zero is not None
    assert found.zero.operator == "mul"
    assert not found.advice[-1].is_gradient  # a surrogate, and said so


def test_an_entry_outside_the_mask_is_not_blamed_on_it() -> None:
    x = leaf(0.0, 4.0)
    found = one(lambda: torch.where(x < 1, x * x.sqrt(), 0.0).sum(), x)
    assert found.mask is None
    assert found.zero is not None


def test_a_pole_that_no_gradient_passes_is_not_blamed() -> None:
    x, y = leaf(0.0, 4.0), leaf(0.0, 1.0)
    found = subgrad.explain_nan(lambda: (x.sqrt().detach() + (y * 2).sqrt()).sum(), {"x": x, "y": y}).nonfinite
    assert [each.reached[0].parameter for each in found] == ["y"]


def test_two_guilty_lines_are_two_findings() -> None:
    x, y = leaf(0.0, 4.0), leaf(1.0, 0.5)
    found = subgrad.explain_nan(lambda: (x.sqrt() * 2 + y.asin() * 3).sum(), {"x": x, "y": y}).nonfinite
    assert {each.guilty.operator for each in found if each.guilty} == {"sqrt", "asin"}


def test_what_a_checkpoint_recomputes_is_named_by_its_line() -> None:
    x = leaf(0.0, 4.0)

    def inside(x: Tensor) -> Tensor:
        square = x * x
        return square.sqrt()

    found = one(lambda: checkpoint(inside, x, use_reentrant=False).sum(), x)
    start = inside.__code__.co_firstlineno
    assert (line_of(found.guilty), line_of(found.nan_line)) == (start + 2, start + 1)


def test_inner_gradients_with_which_a_program_goes_on_are_explained_too() -> None:
    x = leaf(0.0, 4.0)

    def penalty() -> Tensor:
        (gradient,) = torch.autograd.grad(x.sqrt().sum(), x, create_graph=True)
        return (gradient * torch.tensor([2.0, 3.0])).sum()

    found = subgrad.explain_nan(penalty, {"x": x}).nonfinite
    assert found[0].guilty is not None
    assert (found[0].kind, found[0].guilty.operator) == ("slope", "sqrt")


def test_what_a_transform_differentiates_inside_is_explained_where_the_program_goes_on_with_it() -> None:
    x = torch.tensor([0.0, 2.0], requires_grad=True)

    def slopes(x: Tensor) -> Tensor:
        return torch.func.jacrev(lambda each: torch.where(each > 0, each.log(), each))(x).diagonal()

    (found,) = subgrad.explain_nan(lambda: slopes(x)[1], {"x": x}).nonfinite
    assert found.guilty is not None
    assert "each.log()" in found.guilty.site.source
    assert found.mask is not None


def test_a_number_over_a_tensor_is_a_reciprocal_and_no_product() -> None:
    x = torch.tensor([0.0, 2.0], requires_grad=True)
    (found,) = subgrad.explain_nan(lambda: torch.where(x > 0, 1 / x, 0.0).sum(), {"x": x}).nonfinite
    assert found.guilty is not None
    assert found.guilty.operator == "reciprocal"
    assert found.guilty.inputs == (("self", "0"), ("result", "inf"))
    assert "torch.reciprocal" in found.advice[0].code


def test_finite_gradients_are_said_to_be() -> None:
    x = leaf(1.0, 4.0)
    found = subgrad.explain_nan(lambda: x.sqrt().sum(), {"x": x})
    assert not found.nonfinite
    assert found.is_watched
    assert str(found) == "No gradient became infinite or NaN in 1 step."


def test_gradients_generators_and_statistics_are_as_before() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Dropout(0.5))
    x = torch.randn(5, 3)
    model(x).sum().backward()
    before = [each.grad.clone() for each in model.parameters() if each.grad is not None]
    grads, state = [each.grad for each in model.parameters()], torch.get_rng_state()
    buffers = [each.clone() for each in model.buffers()]
    assert subgrad.explain_nan(lambda: (model(x) * 0).sum().sqrt(), model).nonfinite
    assert all(each.grad is kept for each, kept in zip(model.parameters(), grads, strict=True))
    assert all(torch.equal(a, b) for a, b in zip(before, [g for g in grads if g is not None], strict=True))
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(a, b) for a, b in zip(buffers, model.buffers(), strict=True))


@pytest.mark.parametrize("closure", [lambda: torch.zeros(()), lambda: 3.0, lambda: torch.zeros(2, requires_grad=True)])
def test_a_closure_that_returns_no_loss_is_refused(closure: Callable[[], Any]) -> None:
    with pytest.raises(ValueError, match="must return a loss"):
        subgrad.explain_nan(closure, [leaf(1.0)])
