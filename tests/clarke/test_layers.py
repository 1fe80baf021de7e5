"""Layers that torch fuses: the value is f(x) to the bit, the element is the gradient a little further on."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import subgrad
from clarke.layers import (
    DROPOUT,
    LAYERS,
    Layer,
    assert_gradient_is_that_a_little_further_on,
    assert_values_are_those_of_the_program,
)
from subgrad.clarke import Refused
from subgrad.clarke.rules import fused_ops
from subgrad.clarke.rules.grid_sample import Cells

ON_THE_CPU = {**LAYERS, **DROPOUT}
layers = pytest.mark.parametrize("layer", ON_THE_CPU.values(), ids=ON_THE_CPU)


@layers
def test_values_are_those_of_the_program_to_the_bit(layer: Layer) -> None:
    """In single precision, for which most is fused."""
    assert_values_are_those_of_the_program(*layer.program("cpu", torch.float32))


@layers
def test_the_element_is_the_gradient_a_little_further_on(layer: Layer) -> None:
    assert_gradient_is_that_a_little_further_on(*layer.program("cpu"))


def test_dropout_inside_a_fused_kernel_is_refused_where_kinks_are_met(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fused_ops, "_is_fused", lambda arguments: True)  # as on CUDA

    def program(x: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(x, x, x, dropout_p=0.5).sum() + x.abs().sum()

    with pytest.raises(Refused, match=rf"scaled_dot_product_attention at .*{__name__.split('.')[-1]}.py:\d+ draws"):
        subgrad.grad(program)(torch.zeros(1, 1, 2, 3))
    x = torch.ones(1, 1, 2, 3)
    assert_values_are_those_of_the_program(program, x)


def test_so_is_dropout_that_is_switched_on_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """When kinks are expected, and would not be looked for."""
    monkeypatch.setattr(fused_ops, "_is_fused", lambda arguments: True)
    dropout = 0.0

    def program(x: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(x, x + 1, x, dropout_p=dropout).sum() + x.abs().sum()

    gradient, x = subgrad.grad(program), torch.zeros(1, 1, 2, 3)
    gradient(x)
    dropout = 0.5
    with pytest.raises(Refused, match="draws the random numbers"):
        gradient(x)


def test_a_window_of_many_ties_is_one() -> None:
    """256 of them: more than a byte counts."""
    x = torch.zeros(1, 1, 16, 16)
    assert subgrad.element(lambda x: F.adaptive_max_pool2d(x, 1).sum())(x).kinks == 1


def test_one_number_is_for_all_dimensions_of_a_window() -> None:
    x = torch.zeros(1, 1, 4, 4)
    for given in (2, [2], (2, 2)):
        found = subgrad.grad(lambda x: F.max_pool2d(x, given, padding=0).sum())(x)  # noqa: B023
        assert F.avg_pool2d(found, 2).tolist() == [[[[0.25, 0.25], [0.25, 0.25]]]]
    with subgrad.use("min-norm"):
        assert torch.func.grad(lambda x: F.max_pool2d(x, [2]).sum())(x).unique().tolist() == [0.25]


@pytest.mark.parametrize("seed", range(4))
def test_the_row_for_padding_is_a_constant_in_both_modes(seed: int) -> None:
    """With a tolerance no values are held against: beside a constant 0 both sides of the difference make up x."""

    def program(table: Tensor, x: Tensor) -> Tensor:
        row = F.embedding(torch.tensor([2]), table, padding_idx=2)
        return ((row + x).relu() - (-x).relu()).mv(torch.tensor([1.0, -2.0])).sum()

    found = subgrad.element(program, argnums=(0, 1), seed=seed, tol=1e-6)(torch.zeros(3, 2), torch.zeros(2))
    assert found.gradient[0].count_nonzero() == 0
    assert found.gradient[1].tolist() == [1.0, -2.0]


@pytest.mark.parametrize("has_forward_mode", [True, False])
@pytest.mark.parametrize("where", [(0,), (1,), (0, 1)], ids=["image", "grid", "both"])
def test_images_are_sampled_on_borders_of_cells(
    where: tuple[int, ...], has_forward_mode: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before 2.15 torch has no forward mode for them, and a formula of ours takes its place."""
    if has_forward_mode and Cells.wholly:
        pytest.skip("not in this torch")
    monkeypatch.setattr(Cells, "wholly", not has_forward_mode)
    image = torch.linspace(-1, 2, 18).double().sin().view(1, 2, 3, 3)
    grid = torch.tensor([[0.0, 0.0], [0.25, 0.0], [0.0, -0.5], [-0.25, 0.75]]).double().view(1, 2, 2, 2)
    weights = torch.tensor([1.0, -2.0, 3.0, 0.5, -1.0, 2.0, 1.5, 4.0]).double().view(1, 2, 2, 2)

    def program(image: Tensor, grid: Tensor) -> Tensor:
        return (F.grid_sample(image, grid, align_corners=True) * weights).sum() + image.abs().sum() + grid.abs().sum()

    found = subgrad.element(program, argnums=where)(image, grid)
    further = [image, grid]
    for place, ahead in zip(where, found.direction, strict=True):
        further[place] = further[place] + 1e-6 * ahead
    assert not found.extrapolated
    for mine, theirs in zip(found.gradient, torch.func.grad(program, where)(*further), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-4)


def test_indices_of_windows_whose_derivatives_tie_are_those_a_little_further_on() -> None:
    def program(x: Tensor) -> Tensor:
        _, index = F.max_pool1d((x * x)[None, None], 2, return_indices=True)
        return x[index[0, 0]].sum()

    found = subgrad.element(program)(torch.zeros(4))
    assert torch.equal(found.gradient, torch.func.grad(program)(found.direction))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("index", [lambda y: y.argmax(-1), lambda y: y.max(-1).indices], ids=["argmax", "max"])
def test_so_are_indices_of_lines_where_no_values_are_asked(index: Callable[[Tensor], Tensor], seed: int) -> None:
    """With a tolerance nothing is held against values: what the rule says is what comes out."""
    weights = torch.tensor([[1.0], [2.0]], dtype=torch.float64)

    def program(x: Tensor) -> Tensor:
        return (x.gather(-1, index(x * x).unsqueeze(-1)) * weights).sum()

    found = subgrad.element(program, seed=seed, tol=1e-9)(torch.zeros(2, 2, dtype=torch.float64))
    assert torch.equal(found.gradient, torch.func.grad(program)(found.direction))


def test_kinks_behind_a_selection_are_met_with_a_tolerance_as_well() -> None:
    found = subgrad.element(lambda x: x.amax().relu(), tol=1e-6)(torch.zeros(2))
    assert found.kinks == 2


def test_ties_that_come_and_go_are_decided_when_they_are_met() -> None:
    """A program is expected to meet the kinks that it met; where it meets more it is run once more, not twice.

    What is met for the first time is held against values at two points nearby.
    """
    runs = []

    def program(x: Tensor, shift: Tensor) -> Tensor:
        runs.append(None)
        return F.relu(x).sum() - F.relu(-x).sum() + F.relu(x + shift).sum() - F.relu(-x - shift).sum()

    gradient, x = subgrad.grad(program), torch.zeros(3)
    counts = []
    for shift in (1.0, 1.0, 0.0, 0.0, 1.0):
        runs.clear()
        assert gradient(x, torch.tensor(shift)).tolist() == [2.0, 2.0, 2.0]
        counts.append(len(runs))
    assert counts == [3 + 2, 2, 3 + 2, 2, 2]


@pytest.mark.parametrize("bias", [True, False])
def test_formulas_of_cells_are_those_of_torch(bias: bool) -> None:
    """On CUDA they take the place of fused ones, in the tangent pass."""
    torch.manual_seed(0)
    x, h, c = torch.randn(2, 4), torch.randn(2, 3), torch.randn(2, 3)
    for kind, formula, state in ((nn.LSTMCell, fused_ops.lstm_cell, c), (nn.GRUCell, fused_ops.gru_cell, h)):
        cell = kind(4, 3, bias=bias)
        given = [x @ cell.weight_ih.T, h @ cell.weight_hh.T, state, cell.bias_ih, cell.bias_hh]
        wanted = cell(x, (h, c)) if kind is nn.LSTMCell else (cell(x, h),)
        torch.testing.assert_close(formula(*given), wanted)


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last], ids=str)
def test_layouts_do_not_matter(layout: torch.memory_format) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.MaxPool2d(2), nn.ReLU()).double()
    x = torch.randn(4, 2, 6, 6).round().double().contiguous(memory_format=layout)
    assert_gradient_is_that_a_little_further_on(lambda x: model(x.abs()).sum(), x)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_normalisation_in_16_bits_carries_tangents(dtype: torch.dtype) -> None:
    """With a tolerance its slope is held against nothing else."""
    x = torch.arange(16, dtype=dtype).view(8, 2).sin()
    weights = torch.arange(16, dtype=dtype).view(8, 2).cos()

    def program(x: Tensor) -> Tensor:
        return (F.batch_norm(x.abs(), None, None, training=True) * weights.to(x)).sum()

    found = subgrad.element(program, tol=1e-6)(x)
    further = torch.func.grad(program)((x + 1e-2 * found.direction).double())
    assert found.slope == pytest.approx(float((further * found.direction).sum()), rel=0.1)


def test_autocast_gives_the_value_of_the_program() -> None:
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1)), torch.randn(5, 4)
    nn.init.zeros_(model[0].bias)
    x[0] = 0

    def program(weight: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return torch.func.functional_call(model, {"0.weight": weight}, (x,)).float().square().sum()

    value, gradient = subgrad.value_and_grad(program)(model[0].weight.detach())
    assert torch.equal(value, program(model[0].weight.detach()))
    assert gradient.dtype is torch.float32
    assert gradient.isfinite().all()
