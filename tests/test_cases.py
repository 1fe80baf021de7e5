"""The published cases come out as stated, in every mode."""

from __future__ import annotations

import pytest
import torch
from cases import BOUNDED, CASES, MODES, Case, measure

import subgrad


@pytest.mark.parametrize(
    "mode", [pytest.param(mode, marks=pytest.mark.compiled) if "compile" in mode else mode for mode in MODES]
)
@pytest.mark.parametrize("convention", ["min-norm", "torch-2.13"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_published_case_comes_out_as_stated(case: Case, convention: str, mode: str) -> None:
    assert measure(case, convention, mode) == case.wanted[convention]


@pytest.mark.parametrize("expression", BOUNDED)
def test_bounded_functions_agree_with_torch_in_value(expression: str) -> None:
    function, places = BOUNDED[expression]
    x = torch.tensor([*places, -7.0, 0.5, 9.0])
    with subgrad.use("min-norm"):
        inside = function(x.clone().requires_grad_())
    assert torch.equal(inside, function(x))


def test_hardtanh_is_the_documented_formula() -> None:
    x = torch.linspace(-8, 8, 65)
    assert torch.equal(
        subgrad.nn.Hardtanh(-2.0, 3.0)(x), torch.minimum(torch.maximum(x, torch.tensor(-2.0)), torch.tensor(3.0))
    )


def test_bounded_outputs_quantise_to_int8_within_half_a_step() -> None:
    torch.manual_seed(0)
    block = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), subgrad.nn.Hardtanh(0, 6))
    y = block(torch.randn(2, 3, 16, 16) * 10)
    step = 6 / 255
    quantised = torch.clamp((y / step).round() - 128, -128, 127).to(torch.int8)
    assert ((quantised.to(torch.float32) + 128) * step - y).abs().max() <= step / 2 + 1e-6


def test_a_mobile_block_trains_the_same_with_hardtanh_and_relu6() -> None:
    torch.manual_seed(0)
    conv, x = torch.nn.Conv2d(3, 8, 3), torch.randn(2, 3, 16, 16).round()
    with torch.no_grad():
        conv.weight.copy_(conv.weight.mul(8).round())  # integers, so that bounds are met exactly
        conv.bias.zero_()
    met = conv(x)
    assert ((met == 0) | (met == 6)).any()

    def gradient(activation: torch.nn.Module) -> torch.Tensor:
        return torch.autograd.grad(activation(conv(x)).square().sum(), conv.weight)[0]

    assert torch.equal(gradient(subgrad.nn.Hardtanh(0, 6)), gradient(subgrad.nn.ReLU6()))
    assert torch.equal(gradient(subgrad.nn.Hardtanh(0, 6)), gradient(torch.nn.ReLU6()))
