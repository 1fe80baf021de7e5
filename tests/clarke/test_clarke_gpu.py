"""Whole programs on a CUDA device: fused layers, ties in windows, attention, a network; as on the CPU."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

import subgrad
from clarke.layers import (
    DROPOUT,
    LAYERS,
    Layer,
    assert_gradient_is_that_a_little_further_on,
    assert_values_are_those_of_the_program,
)
from subgrad.clarke import Refused

pytestmark = pytest.mark.gpu

layers = pytest.mark.parametrize("layer", LAYERS.values(), ids=LAYERS)


@layers
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_values_are_those_of_the_program_to_the_bit(layer: Layer, dtype: torch.dtype) -> None:
    assert_values_are_those_of_the_program(*layer.program("cuda", dtype))


@layers
def test_the_element_is_the_gradient_a_little_further_on(layer: Layer) -> None:
    assert_gradient_is_that_a_little_further_on(*layer.program("cuda"))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last], ids=str)
def test_ties_in_windows_are_found(dtype: torch.dtype, layout: torch.memory_format) -> None:
    planes = torch.stack([torch.randperm(64) for _ in range(8)])  # distinct in 16 bits, too
    distinct = planes.view(2, 4, 8, 8).to("cuda", dtype).contiguous(memory_format=layout)
    pooled = subgrad.element(lambda x: F.max_pool2d(x, 2).sum())
    assert pooled(distinct).kinks == 0
    tied = distinct.clone()
    tied[1, 2, 4:6, 6:8] = 1000
    found = pooled(tied)
    assert found.kinks == 1
    window = found.gradient[1, 2, 4:6, 6:8].flatten()
    assert window.argmax() == found.direction[1, 2, 4:6, 6:8].flatten().argmax()
    assert window.sum() == 1


def test_corners_within_a_tolerance_are_met() -> None:
    """On the CPU another way to look finds them."""
    x = torch.tensor([0.25 + 1e-7, 1.0], device="cuda", dtype=torch.float64)
    found = subgrad.element(lambda x: x.clamp(0.25, 3.0).sum(), tol=1e-5)(x)
    assert found.kinks == 1
    assert found.gradient.tolist() == [float(found.direction[0] > 0), 1.0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_fused_attention_keeps_its_value_and_the_certificate(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 4, 64, 32, device="cuda", dtype=dtype)
    x[:, :, ::4] = 0

    def program(x: Tensor) -> Tensor:
        return F.relu(F.scaled_dot_product_attention(x, x.abs(), x, is_causal=True)).float().square().sum()

    assert_values_are_those_of_the_program(program, x)
    found = subgrad.element(program)(x)
    # Of bfloat16 the last place counts 8 times what it does in float16.
    assert found.slope == pytest.approx(found.product, rel=0.2 if dtype is torch.bfloat16 else 0.05)


def test_dropout_inside_fused_attention_is_refused_where_kinks_are_met() -> None:
    def program(x: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(x, x, x, dropout_p=0.5).sum() + x.abs().sum()

    zero, one = (torch.full((2, 4, 64, 32), value, device="cuda", dtype=torch.float16) for value in (0.0, 1.0))
    with pytest.raises(Refused, match=r"scaled_dot_product_attention at .*test_clarke_gpu.py:\d+ draws"):
        subgrad.grad(program)(zero)
    assert_values_are_those_of_the_program(program, one)
    with sdpa_kernel(SDPBackend.MATH):
        assert_values_are_those_of_the_program(program, zero)


@pytest.mark.parametrize("name", ["LSTM with dropout", "RNN with relu and dropout"])
def test_dropout_inside_cudnn_is_refused_where_kinks_are_met(name: str) -> None:
    program, x = DROPOUT[name].program("cuda")
    with pytest.raises(Refused, match=r"(lstm|rnn_relu) at .*layers.py:\d+ draws"):
        subgrad.grad(program)(x)
    with torch.backends.cudnn.flags(enabled=False):
        assert_values_are_those_of_the_program(program, x)


def network() -> nn.Module:
    return nn.Sequential(
        *(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8, track_running_stats=False), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8, track_running_stats=False), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Dropout(0.25), nn.Linear(32, 10)),
    )


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last], ids=str)
def test_a_convolutional_network(layout: torch.memory_format) -> None:
    torch.manual_seed(0)
    model = network().to("cuda", torch.float64).to(memory_format=layout)
    images = torch.randn(16, 3, 8, 8, device="cuda", dtype=torch.float64).contiguous(memory_format=layout)
    images[::4] = 0
    targets = torch.zeros(16, dtype=torch.long, device="cuda")
    others = {name: each.detach() for name, each in model.named_parameters() if name != "0.weight"}

    def program(weight: Tensor) -> Tensor:
        return F.cross_entropy(torch.func.functional_call(model, {**others, "0.weight": weight}, (images,)), targets)

    weight = model[0].weight.detach()
    assert_values_are_those_of_the_program(program, weight)
    assert_gradient_is_that_a_little_further_on(program, weight)


def test_what_is_recalled_gives_the_same_as_what_is_looked_for() -> None:
    torch.manual_seed(0)
    model = network().cuda()
    images, targets = torch.randn(16, 3, 8, 8, device="cuda").round(), torch.zeros(16, dtype=torch.long, device="cuda")
    parameters = {name: each.detach() for name, each in model.named_parameters()}

    def program(parameters: dict[str, Tensor]) -> Tensor:
        return F.cross_entropy(torch.func.functional_call(model, parameters, (images,)), targets)

    gradient, found = subgrad.grad(program), []
    for _ in range(3):
        torch.manual_seed(1)
        found.append(gradient(parameters))
    for name, first in found[0].items():
        for again in found[1:]:
            torch.testing.assert_close(again[name], first, rtol=1e-3, atol=1e-5)
