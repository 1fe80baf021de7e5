"""Strong zeros on a CUDA device: what they are on the CPU, in every mode; what is no NaN is torch's to the bit."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import subgrad
from subgrad.kernels.cuda_bitmask import DTYPES

pytestmark = pytest.mark.gpu

DEVICE = "cuda"
Program = Callable[[Tensor], Tensor]


def at(*entries: float, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.tensor(entries, dtype=dtype, device=DEVICE)


def masked(like: Tensor) -> Tensor:
    return torch.tensor([[-math.inf, -math.inf], [0.0, 0.0]], dtype=like.dtype, device=like.device)


def attention(x: Tensor) -> Tensor:
    """A row of which everything is masked, and left out behind the product."""
    x = x.view(2, 2)
    found = torch.softmax(x + masked(x), -1) @ x
    return torch.where(masked(x)[:, :1] == 0, found, 0.0).square().sum()


DEAD: dict[str, tuple[Program, tuple[float, ...]]] = {
    "root": (lambda x: torch.where(x > 0, x.sqrt(), x).sum(), (-1, -4, 1, 4)),
    "exponential": (lambda x: torch.where(x <= 0, x.exp(), 1 + x).sum(), (1000, 2, -1, -2)),
    "logarithm": (lambda x: torch.where(x > 2, x.log2(), 2 * x).sum(), (0, 1, 4, 8)),
    "quotient": (lambda x: torch.where(x == 0, 0.0, 1 / x).sum(), (0, 1, 2, 3)),
    "quotient by a column": (
        lambda x: torch.where(x.view(2, 2)[:, :1] > 0, x.view(2, 2) / x.view(2, 2)[:, :1], 0.0).square().sum(),
        (0, 1, 2, 3),
    ),
    "norm": (lambda x: (x * torch.where(x == 0, 0.0, x.abs().rsqrt())).sum(), (0, 1, 2, 3)),
    "power": (lambda x: torch.where(x > 0, x**0.5, 0.0).sum(), (-1, 1, 2, 3)),
    "attention": (attention, (1, 2, 3, 4)),
    "product of matrices": (lambda x: (x.view(2, 2).log() @ torch.tensor([0.0, 1.0]).to(x)).sum(), (0, 1, 0, 4)),
    "eigenvectors": (
        lambda x: (
            torch.linalg.eigh(torch.stack([torch.eye(2).to(x), x.view(2, 2) + x.view(2, 2).mT]))[1][1].abs().sum()
        ),
        (1, 2, 3, 5),
    ),
}


def eager(function: Program, x: Tensor) -> Tensor:
    leaf = x.clone().requires_grad_()
    return torch.autograd.grad(function(leaf), leaf)[0]


def compiled(function: Program, x: Tensor) -> Tensor:
    torch.compiler.reset()
    return eager(torch.compile(function, backend="aot_eager", fullgraph=True), x)


def batched(function: Program, x: Tensor) -> Tensor:
    return torch.func.vmap(torch.func.grad(function))(torch.stack([x, x]))[1]


MODES: dict[str, Callable[[Program, Tensor], Tensor]] = {
    "eager": eager,
    "grad": lambda function, x: torch.func.grad(function)(x),
    "vmap": batched,
    "compiled": compiled,
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", DEAD)
def test_dead_branches_are_as_on_the_cpu(name: str, mode: str) -> None:
    function, entries = DEAD[name]
    x = at(*entries)
    with subgrad.use("torch", strong_zero=True):
        wanted, found = eager(function, x.cpu()), MODES[mode](function, x)
    assert wanted.isfinite().all()
    torch.testing.assert_close(found.cpu(), wanted)


@pytest.mark.parametrize("mode", ["eager", "grad", "vmap"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_live_branches_stay_as_torch_has_them(dtype: torch.dtype, mode: str) -> None:
    x = at(0, -1, 4, 1, dtype=dtype)
    for function in (lambda x: (2 * x.sqrt()).sum(), lambda x: (x.log() * 3).sum(), lambda x: (x / x).sum()):
        wanted = MODES[mode](function, x)
        with subgrad.use("torch", strong_zero=True):
            found = MODES[mode](function, x)
        torch.testing.assert_close(found, wanted, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_operators_of_entries_in_every_type(dtype: torch.dtype) -> None:
    x = torch.tensor([0.0, 0.0, -1.0, 4.0, math.inf] * 600, dtype=dtype, device=DEVICE, requires_grad=True)
    cotangent = torch.tensor([0.0, 2.0, 0.0, 0.0, -1.0] * 600, dtype=dtype, device=DEVICE)
    (plain,) = torch.autograd.grad(x.sqrt(), x, cotangent)
    with subgrad.use("torch", strong_zero=True):
        (found,) = torch.autograd.grad(x.sqrt(), x, cotangent)
    assert found[:5].tolist() == [0.0, math.inf, 0.0, 0.0, -0.0]
    assert torch.equal(found[~plain.isnan()].view(torch.uint8), plain[~plain.isnan()].view(torch.uint8))


class Net(torch.nn.Module):
    """Convolutions, a gate, products, norms: what networks are made of."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Conv2d(3, 8, 3)
        self.norm, self.second = torch.nn.BatchNorm2d(8), torch.nn.Conv2d(8, 8, 1)
        self.head = torch.nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = F.silu(self.norm(self.first(x)))
        x = F.hardswish(x * torch.sigmoid(self.second(x).mean((2, 3), keepdim=True)))
        x = x.mean((2, 3))
        return self.head(x / (x.norm(dim=-1, keepdim=True) + 1e-3))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_network_trains_to_the_bit_as_under_torch(dtype: torch.dtype) -> None:
    def trained(strong_zero: bool) -> list[Tensor]:
        torch.manual_seed(0)
        model = Net().to(DEVICE, dtype)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
        x = torch.randn(16, 3, 12, 12, device=DEVICE, dtype=dtype)
        y = torch.arange(16, device=DEVICE) % 5
        for _ in range(4):
            optimizer.zero_grad()
            with subgrad.use("torch", strong_zero=strong_zero):
                F.cross_entropy(F.layer_norm(model(x), (5,)).float(), y).backward()
            optimizer.step()
        return [each.detach() for each in model.parameters()]

    torch.backends.cudnn.deterministic = True
    try:
        plain, again, strong = trained(False), trained(False), trained(True)
    finally:
        torch.backends.cudnn.deterministic = False
    for one, two, other in zip(plain, again, strong, strict=True):
        if torch.equal(one, two):  # what torch repeats itself
            assert torch.equal(one, other)
        else:
            torch.testing.assert_close(one, other)


def test_a_step_waits_for_nothing() -> None:
    model, x = Net().to(DEVICE), torch.randn(16, 3, 12, 12, device=DEVICE)
    y = torch.arange(16, device=DEVICE) % 5
    with subgrad.use("min-norm", strong_zero=True):
        F.cross_entropy(model(x), y).backward()
        torch.cuda.set_sync_debug_mode("error")
        try:
            F.cross_entropy(model(x), y).backward()
        finally:
            torch.cuda.set_sync_debug_mode("default")


def test_a_captured_graph_waits_for_nothing() -> None:
    x = torch.tensor([[0.0, 1.0], [2.0, 4.0]], device=DEVICE, requires_grad=True)

    def step() -> None:
        x.grad = None
        (torch.where(x > 0, x.sqrt(), 0.0) @ torch.where(x > 0, x.log(), x)).sum().backward()

    with subgrad.use("torch", strong_zero=True):
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            step()
        torch.cuda.current_stream().wait_stream(side)
        assert x.grad is not None
        wanted, graph = x.grad.clone(), torch.cuda.CUDAGraph()
        x.grad = None
        with torch.cuda.graph(graph):
            step()
    graph.replay()
    torch.cuda.synchronize()
    assert x.grad is not None
    assert x.grad.isfinite().all()
    torch.testing.assert_close(x.grad, wanted)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("base", ["torch", "min-norm", "mean"])
def test_hardswish_at_numbers_that_are_not_finite_makes_no_nan_of_a_cotangent_of_0(
    base: str, dtype: torch.dtype
) -> None:
    """On CUDA torch's own derivative has no product with what is not finite, so that nothing has to be spared."""
    places = [math.nan, math.inf, -math.inf, -3.0, 3.0, 0.5, -7.0, 7.0] * 64
    x = at(*places, dtype=dtype).requires_grad_()
    for cotangent in (torch.zeros_like(x), torch.ones_like(x)):
        plain = torch.autograd.grad(F.hardswish(x), x, cotangent)[0]
        with subgrad.use(base, strong_zero=True):
            strong = torch.autograd.grad(F.hardswish(x), x, cotangent)[0]
        with subgrad.use(base):
            without = torch.autograd.grad(F.hardswish(x), x, cotangent)[0]
        assert not plain.isnan().any()
        assert torch.equal(strong, without)


@pytest.mark.parametrize("function", [torch.mul, torch.div])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_gates_that_are_broadcast(function: Callable[[Tensor, Tensor], Tensor], dtype: torch.dtype) -> None:
    generator = torch.Generator(DEVICE).manual_seed(0)
    image, cotangent = torch.randn(2, 4, 16, 32, 32, generator=generator, device=DEVICE).to(dtype)
    gate = (torch.rand(4, 16, 1, 1, generator=generator, device=DEVICE) + 0.5).to(dtype)

    def gradients(gate: Tensor, strong: bool) -> tuple[Tensor, ...]:
        leaves = [each.clone().requires_grad_() for each in (image, gate)]
        with subgrad.use("torch", strong_zero=strong):
            return torch.autograd.grad(function(*leaves), leaves, cotangent)

    for one, other in zip(gradients(gate, strong=False), gradients(gate, strong=True), strict=True):
        assert torch.equal(one, other)
    bad = gate.clone()
    bad[1, 3] = math.inf if function is torch.mul else 0.0
    cotangent[1, 3] = 0.0
    for one, other, right in zip(
        gradients(bad, strong=False), gradients(bad, strong=True), gradients(gate, strong=False), strict=True
    ):
        assert torch.equal(one[~one.isnan()], other[~one.isnan()])
        torch.testing.assert_close(other, right)
