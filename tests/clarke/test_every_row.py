"""Every row of the table takes part: at each of its samples the element is the gradient a little further on.

Torch's own gradients there are right, since nothing ties any more: at the point plus a small multiple of the direction.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from added_rows import taken_out_again
from torch import Tensor

import subgrad
from subgrad.clarke import Refused
from subgrad.kinks import KINKS
from subgrad.kinks.overloads import overload, tensor_names
from subgrad.kinks.samples import samples
from subgrad.kinks.sets import Jump

FURTHER = 1e-5
CLOSE = 1e-3

Call = dict[str, Any]
CALLS = [
    (op, number)
    for op in KINKS.overloads
    for number, call in enumerate(samples(op))
    if not call.get("training")  # random
]


def call_of(op: str, number: int) -> Call:
    return list(samples(op))[number]


def operands(op: str, call: Call) -> dict[str, Tensor]:
    """The tensors that the kinks of the operator lie in; all that are real where it only jumps."""
    given = [name for kink in KINKS.of_overload(op) for name in kink.set.candidates] or list(call)
    tensors = {name: call[name] for name in dict.fromkeys(given) if isinstance(call.get(name), Tensor)}
    return {name: tensor for name, tensor in tensors.items() if tensor.is_floating_point()}


def program(op: str, call: Call) -> Callable[[dict[str, Tensor]], Tensor]:
    """All real results, weighed: cotangents are not constant."""

    def run(tensors: dict[str, Tensor]) -> Tensor:
        if op == "_linalg_eigh":  # reads one half, and has derivatives in both: of symmetric matrices only
            tensors = {"A": (tensors["A"] + tensors["A"].mT) / 2}
        found = overload(op)(**{**call, **tensors})
        results = [
            each for each in (found if isinstance(found, tuple | list) else (found,)) if isinstance(each, Tensor)
        ]
        # Of a spectrum only the values have a derivative at repeated ones.
        kept = results[1:2] if op == "_linalg_svd" else results[:1] if op == "_linalg_eigh" else results
        real = [each.real if each.is_complex() else each for each in kept]
        real = [each for each in real if each.is_floating_point()]
        return sum(
            ((each * (1 + torch.arange(each.numel()).view(each.shape) % 3)).sum() for each in real), 0.0 * real[0].sum()
        )

    return run


def jumps(op: str, call: Call) -> bool:
    rows = [kink for kink in KINKS.of_overload(op) if isinstance(kink.set, Jump) and kink.applies(call)]
    return any(bool(torch.as_tensor(kink.hits(call)).any()) for kink in rows)


@pytest.mark.parametrize(("op", "number"), CALLS, ids=[f"{op}-{number}" for op, number in CALLS])
def test_the_element_is_the_gradient_a_little_further_on(op: str, number: int) -> None:
    call = call_of(op, number)
    tensors = operands(op, call)
    run = program(op, call)
    assert tensors
    assert set(tensors) <= set(tensor_names(op))
    try:
        found = subgrad.element(run)(tensors)
    except Refused:
        assert jumps(op, call)
        return
    is_finite = bool(run(tensors).isfinite())
    further = {name: tensor + FURTHER * found.direction[name] for name, tensor in tensors.items()}
    assert not is_finite or (run(further) - run(tensors)).abs() < CLOSE  # what jumps is refused
    try:
        # A value that is not finite shows the place itself: there torch's own gradient is passed on.
        wanted = torch.func.grad(run)(further if is_finite else tensors)
    except RuntimeError as error:
        pytest.skip(f"torch {torch.__version__} cannot tell: {error}")
    for name in tensors:
        torch.testing.assert_close(found.gradient[name], wanted[name], rtol=CLOSE, atol=CLOSE, equal_nan=not is_finite)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_slopes_are_as_exact_as_the_program(dtype: torch.dtype) -> None:
    x = torch.tensor([0.0, -1.0, 1.0], dtype=dtype)
    found = subgrad.grad(lambda x: torch.nn.functional.leaky_relu(x, 0.01).sum())(x)
    assert found[1:].tolist() == torch.tensor([0.01, 1.0], dtype=dtype).tolist()


def test_rows_that_are_added_for_two_operands_lead_to_the_slope_of_both() -> None:
    """With a tolerance, so that nothing but the rule answers; the operator has reverse mode alone."""

    @torch.library.custom_op("rows::larger_of_two", mutates_args=())
    def larger(x: Tensor, y: Tensor) -> Tensor:
        return torch.where(x >= y, x, y) + 0

    larger.register_autograd(
        lambda ctx, grad: (grad * ctx.is_first, grad * ~ctx.is_first),
        setup_context=lambda ctx, inputs, output: setattr(ctx, "is_first", inputs[0] >= inputs[1]),
    )
    x, weights = torch.tensor([0.0, 1.0, -1.0], dtype=torch.float64), torch.tensor([1.0, -2.0, 0.5])
    program = lambda x: (larger(x, x.flip(0)) * weights).sum()  # noqa: E731
    with taken_out_again():
        subgrad.add_operator(subgrad.Kink("rows::larger_of_two", "self == y", subgrad.Ties.largest("self", "y")))
        found = subgrad.element(program, tol=1e-9)(x * 0)
    assert "larger_of_two" not in subgrad.kinks.names
    further = float(program(found.direction))  # it is as long as its argument
    assert found.slope == pytest.approx(further)
    assert found.product == pytest.approx(further)


def test_the_sign_that_a_constant_is_given_is_decided_not_extrapolated() -> None:
    sizes = torch.tensor([0.5, -2.0, 3.0], dtype=torch.float64)
    found = subgrad.element(lambda x: (torch.copysign(sizes, x) * x).sum())(torch.zeros(3, dtype=torch.float64))
    assert torch.equal(found.gradient, sizes.abs() * found.direction.sign())
    assert not found.extrapolated
