"""`straight-through`: clamps hand on the gradient at and beyond their bounds, and everything else is torch's own."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import subgrad
from subgrad import Convention, functional
from subgrad.conventions import CHOICES, SURROGATES

X = torch.tensor([-3.0, -1.0, 0.5, 2.0, 5.0, torch.nan, torch.inf, -torch.inf])
GIVEN = torch.tensor([2.0, -3.0, 5.0, 0.5, -7.0, 4.0, -1.5, 6.0])
LOW, HIGH = torch.tensor(-1.0), torch.tensor(2.0)
CLAMPS: dict[str, Callable[[Tensor], Tensor]] = {
    "clamp": lambda x: x.clamp(-1, 2),
    "clamp(min)": lambda x: torch.clamp(x, min=-1),
    "clip(max)": lambda x: torch.clip(x, max=2),
    "clamp_min": lambda x: torch.clamp_min(x, -1),
    "clamp_max": lambda x: torch.clamp_max(x, 2),
    "closed": lambda x: x.clamp(2, 2),
    "wrong order": lambda x: x.clamp(2, -1),
    "tensors": lambda x: x.clamp(LOW, HIGH),
    "tensor(min)": lambda x: x.clamp(min=LOW),
    "clamp_min.Tensor": lambda x: torch.clamp_min(x, LOW),
    "clamp_max.Tensor": lambda x: torch.clamp_max(x, HIGH.expand(8)),
    "in place": lambda x: (x * 1).clamp_(-1, 2),
    "in place, tensors": lambda x: (x * 1).clamp_(LOW, HIGH),
    "list": lambda x: torch._foreach_clamp_min([x], -1.0)[0],
    "hinge": lambda x: F.margin_ranking_loss(-x, torch.zeros(8), torch.ones(8), reduction="none"),
}


@pytest.mark.parametrize("name", CLAMPS)
def test_values_are_torchs_and_gradients_pass_everywhere(name: str) -> None:
    x, call = X.clone().requires_grad_(), CLAMPS[name]
    wanted = call(X.clone())
    with subgrad.use("straight-through"):
        out = call(x)
    assert torch.equal(out.detach().view(torch.int32), wanted.view(torch.int32))
    assert torch.equal(torch.autograd.grad(out, x, GIVEN)[0], GIVEN)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("name", ["clamp", "clamp_min", "in place"])
def test_in_other_types(name: str, dtype: torch.dtype) -> None:
    x = X.to(dtype).requires_grad_()
    with subgrad.use("straight-through"):
        out = CLAMPS[name](x)
    assert torch.equal(torch.autograd.grad(out, x, GIVEN.to(dtype))[0], GIVEN.to(dtype))


def test_a_convention_of_ones_own_may_say_so_of_clamps_alone() -> None:
    x = torch.tensor([-2.0, 0.0, 2.0], requires_grad=True)
    with subgrad.use(Convention("mean", clamp="straight-through")):
        out = x.clamp(-1, 1), torch.relu(x), torch.clamp_min(x, 0)
    given = torch.tensor([2.0, -3.0, 5.0])
    found = [torch.autograd.grad(each, x, given)[0].tolist() for each in out]
    assert found == [[2, -3, 5], [0, -1.5, 5], [0, -1.5, 5]]


@pytest.mark.parametrize("call", [F.relu, F.hardtanh, F.relu6, torch.abs, lambda x: torch.maximum(x, torch.zeros(5))])
def test_all_but_clamps_is_the_installed_torch(call: Callable[[Tensor], Tensor]) -> None:
    x, given = torch.tensor([-2.0, -1.0, 0.0, 1.0, 6.0], requires_grad=True), torch.arange(1.0, 6.0)
    (wanted,) = torch.autograd.grad(call(x), x, given)
    with subgrad.use("straight-through"):
        assert torch.equal(torch.autograd.grad(call(x), x, given)[0], wanted)


# Where each is the value of minimum(maximum(x, low), high), the bounds by columns; nobody has a tie but the earlier.
BOUNDS = {"x": [-2.0, -1.0, 0.0, 1.0, 2.0, 0.0, 2.0, 0.0, 1.0], "low": [-1.0] * 5 + [1.0, 1.0, 3.0, 1.0],
          "high": [1.0] * 5 + [1.0, 1.0, 1.0, 1.0]}  # fmt: skip
OF_LOW, OF_HIGH = [1, 0, 0, 0, 0, 1, 0, 0, 0], [0, 0, 0, 0, 1, 0, 1, 1, 0]


@pytest.mark.parametrize("differentiated", ["x, low, high", "low, high", "high"])
def test_bounds_keep_the_derivative_that_they_have_where_they_decide(differentiated: str) -> None:
    """Where two bounds tie, or x lies on one, the earlier of minimum(maximum(x, low), high) has it: on every torch."""
    tensors = {name: torch.tensor(each).requires_grad_(name in differentiated) for name, each in BOUNDS.items()}
    x, low, high = tensors.values()
    given = torch.arange(1.0, 10.0)
    with subgrad.use("straight-through"):
        out = torch.clamp(x, low, high)
    leaves = [each for each in (x, low, high) if each.requires_grad]
    wanted = [given, given * torch.tensor(OF_LOW), given * torch.tensor(OF_HIGH)][-len(leaves) :]
    for found, expected in zip(torch.autograd.grad(out, leaves, given), wanted, strict=True):
        assert torch.equal(found, expected)


def test_a_bound_of_another_shape_and_type_gets_its_sum() -> None:
    x = torch.tensor([[-2.0, 0.0], [3.0, -4.0]], requires_grad=True)
    low = torch.tensor([-1.0, -1.0], dtype=torch.float64, requires_grad=True)
    with subgrad.use("straight-through"):
        out = x.clamp(min=low)
    given = torch.tensor([[2.0, -3.0], [5.0, 7.0]], dtype=torch.float64)
    of_x, of_low = torch.autograd.grad(out, (x, low), given)
    assert of_x.tolist() == given.tolist()
    assert of_low.tolist() == [2, 7]


def test_every_mode_of_differentiation_passes() -> None:
    def function(x: Tensor) -> Tensor:
        return x.clamp(-1, 2) ** 3

    x, v = X[:5], GIVEN[:5]
    slopes = 3 * x.clamp(-1, 2) ** 2
    with subgrad.use("straight-through"):
        assert torch.equal(torch.func.jvp(function, (x,), (v,))[1], slopes * v)
        assert torch.equal(torch.func.vmap(torch.func.grad(function))(x), slopes)
        assert torch.equal(torch.func.hessian(lambda x: function(x).sum())(x).diagonal(), 6 * x.clamp(-1, 2))
        leaf = x.clone().requires_grad_()
        (first,) = torch.autograd.grad(function(leaf), leaf, v, create_graph=True)
        assert torch.equal(torch.autograd.grad(first.sum(), leaf)[0], 6 * x.clamp(-1, 2) * v)


@pytest.mark.compiled
def test_compiled_code_passes_and_is_not_served_to_another_convention() -> None:
    compiled = torch.compile(lambda x: x.clamp(-1, 2) * 1.0, fullgraph=True, backend="aot_eager")
    x, given = X[:5].clone().requires_grad_(), GIVEN[:5]
    found = {}
    for convention in ("straight-through", "pass-through", "straight-through"):
        with subgrad.use(convention):
            found[convention] = torch.autograd.grad(compiled(x), x, given)[0].tolist()
    assert found == {"straight-through": [2, -3, 5, 0.5, -7], "pass-through": [0, -3, 5, 0.5, 0]}


def test_nothing_is_kept_for_backward() -> None:
    packed: list[Tensor] = []
    x = torch.randn(100, requires_grad=True)
    with subgrad.use("straight-through"), torch.autograd.graph.saved_tensors_hooks(packed.append, lambda each: each):
        torch.clamp(x, -1, 1)
    assert packed == []


def test_whole_programs_keep_their_own_gradient() -> None:
    x = torch.tensor([-3.0, -1.0, 0.5])
    with subgrad.use("straight-through"):
        assert subgrad.grad(lambda x: (x.clamp(-2, 2) * GIVEN[:3]).sum())(x).tolist() == [0, -3, 5]


class TestName:
    def test_it_says_that_it_is_a_surrogate(self) -> None:
        assert repr(Convention("straight-through")) == "Convention('straight-through', surrogate=True)"
        assert repr(Convention("mean", clip="straight-through")) == (
            "Convention('mean', clamp='straight-through', surrogate=True)"
        )
        assert str(Convention("straight-through")) == "straight-through"
        assert eval(repr(Convention("straight-through"))) == Convention("straight-through")

    def test_numbers_outside_a_set_must_still_be_asked_for(self) -> None:
        with pytest.raises(ValueError, match="pass surrogate=True"):
            Convention("straight-through", relu=2.0)
        assert Convention("straight-through", relu=2.0, surrogate=True).overrides == (("relu", 2.0),)

    def test_it_is_no_choice_of_elements(self) -> None:
        assert SURROGATES == ("straight-through",)
        assert "straight-through" not in CHOICES
        port = subgrad.compare(lambda: (W.clamp(-1, 1) * W).sum(), {"w": W}, reference={"w": [-2.0, 0.0, 2.0]})
        assert port.convention != "straight-through"


W = torch.tensor([-2.0, 0.0, 2.0], requires_grad=True)


@pytest.mark.parametrize("run", ["torch", "straight-through"])
def test_an_audit_compares_it_beyond_the_bounds_too(run: str) -> None:
    """No entry lies on a bound, and the gradients differ: the line is named."""
    x = torch.tensor([-3.0, 0.5, 5.0], requires_grad=True)
    with subgrad.use(run):
        effect = subgrad.compare(
            lambda: (torch.relu(x).clamp(-1, 2) * GIVEN[:3]).sum(), {"x": x}, ["torch-2.13", "straight-through"]
        )
    (change,) = effect.changes
    assert change.differ == 1
    assert [cause.operator for cause in effect.causes] == ["clamp"]
    assert change.relative == pytest.approx(5 / 3)  # of (0, -3, 0) and (0, -3, 5)


def test_spelled_out() -> None:
    x = X[:5].clone().requires_grad_()
    out = functional.clamp(x, -1, 2, convention="straight-through")
    assert torch.equal(torch.autograd.grad(out, x, GIVEN[:5])[0], GIVEN[:5])
