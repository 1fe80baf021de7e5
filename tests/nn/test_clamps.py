"""`Clamp` with bounds that are fixed, kept or learned: values of `torch.clamp`, the least element at ties."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import Parameter

import subgrad
from subgrad.nn import Clamp, Hardtanh

X = torch.tensor([-1.0, 0.0, 3.0, 6.0, 7.0])
COTANGENT = torch.tensor([1.0, -2.0, -0.5, 5.0, 6.0])


def gradients(module: Clamp, *others: Tensor) -> list[list[float] | float]:
    x = X.clone().requires_grad_()
    return [each.tolist() for each in torch.autograd.grad(module(x), (x, *others), COTANGENT)]


@pytest.mark.parametrize(
    ("bounds", "wanted"),
    [
        ((0.0, 6.0), [0.0, 0.0, -0.5, 0.0, 0.0]),
        ((None, 6), [1.0, -2.0, -0.5, 0.0, 0.0]),
        ((0, None), [0.0, 0.0, -0.5, 5.0, 6.0]),
        ((torch.tensor(0.0), 6.0), [0.0, 0.0, -0.5, 0.0, 0.0]),
        ((torch.zeros(5), torch.full((5,), 6.0)), [0.0, 0.0, -0.5, 0.0, 0.0]),
    ],
    ids=str,
)
def test_a_bound_that_is_fixed_takes_no_part(bounds: tuple[object, object], wanted: list[float]) -> None:
    module = Clamp(*bounds)  # type: ignore[arg-type]
    assert torch.equal(
        module(X), X.clamp(*(0.0 if bounds[0] is not None else None, 6.0 if bounds[1] is not None else None))
    )
    assert gradients(module) == [wanted]


def test_at_a_learned_bound_both_get_half() -> None:
    module = Clamp(Parameter(torch.tensor(0.0)), Parameter(torch.tensor(6.0)))
    # Of the cotangents at the bound half, and beyond it the whole.
    assert gradients(module, module.min, module.max) == [[0.0, -1.0, -0.5, 2.5, 0.0], 1.0 - 1.0, 2.5 + 6.0]


def test_beside_a_number_a_learned_bound_gets_half_too() -> None:
    module = Clamp(0, Parameter(torch.tensor(6.0)))
    assert gradients(module, module.max) == [[0.0, 0.0, -0.5, 2.5, 0.0], 2.5 + 6.0]
    assert list(module.state_dict()) == ["max"]


def test_the_element_of_learned_bounds_is_the_least_of_all_convex_combinations() -> None:
    """Held against values: the gradients to both sides of a tie, and the point nearest 0 between them."""
    module = Clamp(None, Parameter(torch.tensor(6.0)))
    sides = []
    for step in (-1e-3, 1e-3):
        x, bound = torch.tensor(6.0 + step, requires_grad=True), module.max
        sides.append(torch.stack(torch.autograd.grad(torch.clamp(x, max=bound), (x, bound))))
    weights = torch.linspace(0.0, 1.0, 101)[:, None]
    mixtures = weights * sides[0] + (1 - weights) * sides[1]
    x = torch.tensor(6.0, requires_grad=True)
    found = torch.stack(torch.autograd.grad(module(x), (x, module.max)))
    assert torch.allclose(found, mixtures[mixtures.norm(dim=1).argmin()])


def test_channels_have_bounds_of_their_own() -> None:
    module = Clamp(max=Parameter(torch.tensor([1.0, 2.0])[:, None]))
    x = torch.tensor([[0.0, 1.0, 3.0], [0.0, 2.0, 3.0]], requires_grad=True)
    cotangent = torch.tensor([[1.0, 2.0, 4.0], [8.0, 16.0, 32.0]])
    found = torch.autograd.grad(module(x), (x, module.max), cotangent)
    assert found[0].tolist() == [[1.0, 1.0, 0.0], [8.0, 8.0, 0.0]]
    assert found[1].tolist() == [[5.0], [40.0]]


def test_a_convention_decides_at_learned_bounds() -> None:
    module = Clamp(None, Parameter(torch.tensor(6.0)), convention="torch-2.13")
    assert gradients(module, module.max) == [[1.0, -2.0, -0.5, 5.0, 0.0], 6.0]


@pytest.mark.parametrize("dtype", [torch.float16, torch.float64])
def test_a_number_beside_a_tensor_changes_no_dtype(dtype: torch.dtype) -> None:
    module = Clamp(0.1, torch.tensor(0.7, dtype=dtype)).to(dtype)
    for x in (torch.tensor([0.0, 0.5, 1.0], dtype=dtype), torch.tensor(0.0, dtype=dtype)):
        assert torch.equal(module(x), torch.clamp(x, 0.1, 0.7))
        assert module(x).dtype is dtype


def test_bounds_that_cross_do_what_torch_does() -> None:
    for module in (Clamp(2.0, 1.0), Clamp(torch.tensor(2.0), Parameter(torch.tensor(1.0)))):
        assert module(X).tolist() == torch.clamp(X, 2.0, 1.0).tolist()


def test_a_buffer_is_state_and_moves_with_the_module() -> None:
    module = Clamp(torch.tensor(0.0), torch.tensor(6.0)).double()
    assert list(module.state_dict()) == ["min", "max"]
    assert module.max.dtype is torch.float64


def test_it_says_its_bounds() -> None:
    module = Clamp(torch.zeros(2), Parameter(torch.tensor(6.0)))
    assert repr(module) == "Clamp(min=of shape (2,), max=learned 6, convention=min-norm)"
    assert repr(Clamp(0, 6)) == "Clamp(min=0, max=6, convention=min-norm)"
    assert repr(Clamp(0, torch.tensor(6.0))) == "Clamp(min=0, max=6, convention=min-norm)"


def test_no_bound_is_refused() -> None:
    with pytest.raises(ValueError, match=r"Clamp\(\) has no bound: give min, max or both"):
        Clamp()


@pytest.mark.parametrize("bound", [True, "6", [6.0]])
def test_what_is_no_bound_is_refused(bound: object) -> None:
    with pytest.raises(TypeError, match="give a number, a tensor or a"):
        Clamp(0, bound)  # type: ignore[arg-type]


@pytest.mark.parametrize("bounds", [(1.0, -1.0), (2.0, 2.0), (0.0, float("nan"))])
def test_hardtanh_refuses_where_torch_does_and_says_what_to_write(bounds: tuple[float, float]) -> None:
    with pytest.raises(ValueError, match=r"needs min_val < max_val. Write Hardtanh\("):
        Hardtanh(*bounds)


def test_clamp_takes_its_own_convention_whatever_is_in_force() -> None:
    with subgrad.use("right"):
        assert gradients(Clamp(0, 6, convention="pass-through")) == [[0.0, -2.0, -0.5, 5.0, 0.0]]
