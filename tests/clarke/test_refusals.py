"""What has no such gradient is refused, by name and with the line of the program; never a wrong element."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

import subgrad
from subgrad.clarke import Refused

Function = Callable[[Tensor], Tensor]


class Doubled(torch.autograd.Function):
    """A custom function without forward mode."""

    @staticmethod
    def forward(ctx, x: Tensor) -> Tensor:
        return 2 * x

    @staticmethod
    def backward(ctx, grad: Tensor) -> Tensor:
        return 2 * grad


class ThroughRounding(torch.autograd.Function):
    """A straight-through estimator."""

    @staticmethod
    def forward(ctx, x: Tensor) -> Tensor:
        return x.round()

    @staticmethod
    def backward(ctx, grad: Tensor) -> Tensor:
        return grad


# Each on one line, at 0 unless another point is given: the line that the message must name.
JUMPS: dict[str, tuple[str, Function]] = {
    "where": ("gt", lambda x: torch.where(x > 0, x + 1, x).sum()),
    "mask": ("ge", lambda x: ((x >= 0) * 2.0).sum() + x.sum()),
    "branch": ("gt", lambda x: x.sum() if x[0] > 0 else x.sum() + 1),
    "sign": ("sign", lambda x: x.sign().sum() + x.sum()),
    "floor": ("floor", lambda x: x.floor().sum() + x.sum()),
    "hardshrink": ("hardshrink", lambda x: F.hardshrink(x + 0.5, 0.5).sum()),
    "equal": ("eq", lambda x: torch.where(x == 0, 1.0, x).sum()),
}
STEEP: dict[str, tuple[str, Function]] = {
    "sqrt": ("sqrt", lambda x: x.sqrt().sum()),
    "power": ("pow", lambda x: x.abs().pow(0.5).sum()),
}
SURROGATES: dict[str, tuple[str, Function]] = {
    "detached rounding": ("detach", lambda x: (x + (x.round() - x).detach()).sum()),
    "straight-through function": ("forward mode", lambda x: ThroughRounding.apply(x).sum() + F.relu(x).sum()),
    "detached relu": ("detach", lambda x: (F.relu(x).detach() * 2 + x).sum()),
    "data of a relu": ("data", lambda x: (F.relu(x).data * 2 + x).sum()),
    "hard samples": ("gumbel_softmax(hard=True)", lambda x: F.gumbel_softmax(x, hard=True)[0]),
    "relu without grad": ("relu under no_grad", lambda x: (torch.no_grad()(F.relu)(x) * 2 + x.abs()).sum()),
}


def refusal(function: Function, point: Tensor | None = None) -> str:
    with pytest.raises(Refused) as raised:
        subgrad.grad(function)(torch.zeros(2, dtype=torch.float64) if point is None else point)
    return str(raised.value)


def line_of(function: Function) -> str:
    return f"{Path(__file__).name}:{inspect.getsourcelines(function)[1]}"


@pytest.mark.parametrize("kind", [*JUMPS, *STEEP, *SURROGATES])
def test_the_message_names_the_operator_and_the_line(kind: str) -> None:
    name, function = {**JUMPS, **STEEP, **SURROGATES}[kind]
    message = refusal(function)
    assert name in message
    assert line_of(function) in message


def test_where_rounding_decides_an_element_of_the_values_comes_out_or_a_refusal() -> None:
    # Without rounding this is -x. As it is computed it may be x as well where x < 0, otherwise at every step.
    def function(x: Tensor) -> Tensor:
        return torch.where((x + 0.7) - 0.7 - x > 0, x, -x).sum()

    refusals = []
    for seed in range(8):
        try:
            gradient = subgrad.grad(function, seed=seed)(torch.zeros(2, dtype=torch.float64))
        except Refused as error:
            refusals.append(str(error))
        else:
            assert (gradient.abs() <= 1).all()
    assert refusals
    line = f"{Path(__file__).name}:{inspect.getsourcelines(function)[1] + 1}"
    assert all("gt" in message and line in message for message in refusals)


READ: dict[str, Function] = {
    "as a number": lambda x: x.sum() if x[0].item() > 0 else 0 * x.sum(),
    "by float": lambda x: x.sum() if float(x[0]) > 0 else 0 * x.sum(),
    "by numpy": lambda x: x.sum() if x.detach().numpy()[0] > 0 else 0 * x.sum(),
    "to be shown": lambda x: x.sum() if x[0] > 0 or str(x[0].item()) == "" else 0 * x.sum(),
}


@pytest.mark.filterwarnings("ignore:Converting a tensor with requires_grad=True")
@pytest.mark.parametrize("kind", READ)
def test_where_numbers_are_read_values_nearby_tell_what_follows(kind: str) -> None:
    program: Function = lambda x: READ[kind](x) * x[0]  # noqa: E731
    x = torch.tensor([0.0, 3.0], dtype=torch.float64)
    found = subgrad.element(program)(x)
    wanted = torch.tensor([3.0, 0.0], dtype=torch.float64) if found.direction[0] > 0 else torch.zeros_like(x)
    torch.testing.assert_close(found.gradient, wanted, rtol=0, atol=1e-9)


def test_custom_functions_without_forward_mode_are_held_against_their_values() -> None:
    x = torch.zeros(2, dtype=torch.float64)
    found = subgrad.element(lambda x: F.relu(Doubled.apply(x)).sum())(x)
    assert torch.equal(found.gradient, torch.where(found.direction > 0, 2.0, 0.0))
    assert subgrad.grad(lambda x: Doubled.apply(x).sum())(x).tolist() == [2.0, 2.0]


class Wrong(torch.autograd.Function):
    """A custom function whose two derivatives are not those of one function."""

    generate_vmap_rule = False

    @staticmethod
    def forward(ctx, x: Tensor) -> Tensor:
        return 2 * x

    @staticmethod
    def backward(ctx, grad: Tensor) -> Tensor:
        return 3 * grad

    @staticmethod
    def jvp(ctx, moved: Tensor) -> Tensor:
        return 2 * moved


def test_a_failed_certificate_names_the_custom_function_and_its_line() -> None:
    message = refusal(lambda x: Wrong.apply(x).sum() + F.relu(x).sum())
    assert f"Wrong at {__file__}:{inspect.getsourcelines(Wrong.forward)[1]}" in message


class OwnRelu(torch.autograd.Function):
    """Both derivatives agree with each other, at 0 too, where neither is that of a difference of two of them."""

    generate_vmap_rule = False

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return x.clamp(min=0)

    @staticmethod
    def setup_context(ctx, inputs, output) -> None:
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx, grad: Tensor) -> Tensor:
        return grad * (ctx.saved_tensors[0] > 0)

    @staticmethod
    def jvp(ctx, moved: Tensor) -> Tensor:
        return moved * (ctx.saved_tensors[0] > 0)


def test_what_is_wrong_in_both_modes_at_a_kink_is_taken_from_values_nearby() -> None:
    found = subgrad.grad(lambda x: (OwnRelu.apply(x) - OwnRelu.apply(-x)).sum())(torch.zeros(2, dtype=torch.float64))
    assert found.tolist() == [1.0, 1.0]


@pytest.mark.parametrize("offset", [0.0, 1000.0])
@pytest.mark.parametrize("factor", [1.0, 1e-4])
def test_neither_an_offset_nor_a_factor_hides_a_jump_or_a_surrogate(offset: float, factor: float) -> None:
    for dtype in (torch.float64, torch.float32):
        point = torch.zeros(1, dtype=dtype)
        refusal(lambda x: offset + factor * torch.where(x > 0, 0.3 + x, 0.0).sum(), point)
        refusal(lambda x: offset + factor * (x + (x.round() - x).detach()).sum(), point + 0.3)


def nested(x: Tensor) -> Tensor:
    return subgrad.grad(lambda y: F.relu(y).sum())(x).sum() + F.relu(x).sum()


def test_refusals_of_a_call_name_its_line() -> None:
    assert "test_refusals.py:" in refusal(nested)
    assert "test_refusals.py:" in refusal(lambda x: x.sum(), torch.zeros(2, dtype=torch.complex64))
    with pytest.raises(Refused, match=r"test_refusals.py:\d+.* torch.func"):
        torch.func.vmap(subgrad.grad(lambda x: F.relu(x).sum()))(torch.zeros(2, 3))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: (x * x.sign()).sum(),
        lambda x: (x * (x == 0) + x * (x != 0)).sum(),
        lambda x: torch.where(x > 0, x, -x).sum(),
        lambda x: (x - x.floor()).abs().sum() + x.floor().sum() - x.sum() + x.abs().sum(),
    ],
)
def test_what_is_continuous_all_the_same_is_not(function: Function) -> None:
    nearby = torch.tensor([[a, b] for a in (-1e-6, 1e-6) for b in (-1e-6, 1e-6)], dtype=torch.float64)
    true = {tuple(torch.func.grad(function)(x).tolist()) for x in nearby}
    found = {
        tuple(subgrad.grad(function, seed=seed)(torch.zeros(2, dtype=torch.float64)).tolist()) for seed in range(20)
    }
    assert found == true


@pytest.mark.parametrize("kind", [*JUMPS, *STEEP])
def test_away_from_there_nothing_is_refused(kind: str) -> None:
    function = {**JUMPS, **STEEP}[kind][1]
    x = torch.tensor([0.3, 0.7], dtype=torch.float64)
    torch.testing.assert_close(subgrad.grad(function)(x), torch.func.grad(function)(x))


BY_RULE: dict[str, Function] = {
    "threshold": lambda x: F.threshold(x, 0.0, 1.0).sum(),
    "a norm below one": lambda x: torch.linalg.vector_norm(x, 0.5),
    "a count": lambda x: torch.linalg.vector_norm(x, 0),
    "bins without a number of them": lambda x: x.sum() * torch.histc(x + 0.5, min=0, max=1)[50],
}


@pytest.mark.parametrize("kind", BY_RULE)
def test_rules_refuse_by_themselves_where_no_values_are_asked(kind: str) -> None:
    """As with a tolerance."""
    function = BY_RULE[kind]
    with pytest.raises(Refused, match=line_of(function)):
        subgrad.grad(function, tol=1e-9)(torch.zeros(2, dtype=torch.float64))


def test_what_is_between_kinks_is_not_refused_by_rules() -> None:
    x = torch.tensor([0.0, 1.0], dtype=torch.float64)
    counted = subgrad.grad(lambda x: x.sum() * torch.histc(x, min=0, max=1).sum(), tol=1e-9)(x[:1] + 50 / 101)
    assert counted.tolist() == [1.0]
    for seed in range(3):
        found = subgrad.element(lambda x: torch.complex(x, x + 1).norm() + x.abs().sum(), seed=seed, tol=1e-9)(x)
        smooth = (2 * x + 1) / (x**2 + (x + 1) ** 2).sum().sqrt()
        sign = torch.tensor([1.0 if found.direction[0] > 0 else -1.0, 1.0])
        torch.testing.assert_close(found.gradient, smooth + sign)


def test_programs_that_do_not_repeat_themselves_are_refused() -> None:
    calls = []

    def changing(x: Tensor) -> Tensor:
        calls.append(None)
        return F.relu(x).sum() if len(calls) % 2 else x.abs().sum()

    assert line_of(changing) in refusal(changing)


def test_so_are_those_that_return_something_else_each_time() -> None:
    calls = []

    def changing(x: Tensor) -> Tensor:
        calls.append(None)
        return F.relu(x).sum() + len(calls)

    assert line_of(changing) in refusal(changing)


def test_refusals_leave_nothing_behind() -> None:
    for _, function in (*JUMPS.values(), *SURROGATES.values()):
        refusal(function)
    assert torch.func.grad(lambda x: F.relu(x).sum())(torch.zeros(2)).tolist() == [0.0, 0.0]
    assert (torch.zeros(2) > 0).tolist() == [False, False]
    assert subgrad.grad(lambda x: (F.relu(x) - F.relu(-x)).sum())(torch.zeros(2)).tolist() == [1.0, 1.0]


@pytest.mark.parametrize("element", ["clarke", "min-norm", "mean"])
def test_reentrant_checkpoints_are_refused_with_or_without_kinks(element: str) -> None:
    def program(x: Tensor) -> Tensor:
        return checkpoint(lambda y: y * y.relu(), x, use_reentrant=True).sum()

    for point in (torch.ones(2), torch.zeros(2)):
        for each in (subgrad.grad(program, element=element), subgrad.grad(program, element=element, trust_custom=True)):
            for _ in range(2):
                with pytest.raises(Refused, match=r"test_refusals\.py"):
                    each(point)
    parameter = torch.nn.Parameter(torch.ones(2))
    with pytest.raises(Refused, match="use_reentrant=False"):
        subgrad.backward(lambda: program(parameter), [parameter])
