"""What modules hold after a gradient: what one plain run leaves there, also where it is assigned, not written into."""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import subgrad


class Running(nn.Module):
    """Statistics, counters and caches as people write them."""

    mean: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([0.0, 1.0, -2.0]))
        self.register_buffer("mean", torch.zeros(()))
        self.count, self._steps = 0, torch.zeros(())
        self.hidden: Tensor | None = None
        self.history: list[float] = []
        self.last = {"norm": torch.zeros(())}
        self.met: set[int] = set()
        self.latest: deque[float] = deque(maxlen=2)
        self.nested = {"steps": [0]}
        self.inner = nn.BatchNorm1d(1)

    def forward(self) -> Tensor:
        y = torch.relu(self.weight)
        self.mean = 0.9 * self.mean + 0.1 * y.detach().mean()
        self.count += 1
        self._steps = self._steps + 1
        self.hidden = y.detach() if self.hidden is None else self.hidden + y.detach()
        self.history.append(float(y.detach().sum()))
        self.last["norm"] = y.detach().norm()
        self.last[f"norm {self.count}"] = y.detach().norm()
        self.met.add(self.count)
        self.latest.append(float(self.count))
        self.nested["steps"].append(self.count)
        self.inner.eps = 0.5 * self.inner.eps
        return y.sum() + self.inner(y[:, None]).square().sum()


class Trainer:
    def __init__(self, module: Running) -> None:
        self.parts = [module]

    def loss(self) -> Tensor:
        return self.parts[0]()


def state(module: Running) -> dict[str, Any]:
    found = {name: value for name, value in vars(module).items() if not name.startswith("_") or name == "_steps"}
    return {**found, "inner": module.inner.eps, **{f"buffer {k}": v for k, v in module.named_buffers()}}


def assert_same(one: Any, other: Any) -> None:
    if isinstance(one, dict):
        assert one.keys() == other.keys()
        for name in one:
            assert_same(one[name], other[name])
    elif isinstance(one, list):
        for each, another in zip(one, other, strict=True):
            assert_same(each, another)
    elif isinstance(one, Tensor):
        assert one.dtype == other.dtype
        assert torch.equal(one, other)
    else:
        assert one == other


class Shared:
    module: Running

    @classmethod
    def loss(cls) -> Tensor:
        return cls.module()


def of_a_class(module: Running) -> Callable[[], Tensor]:
    Shared.module = module
    return Shared.loss


ANYWHERE: list[Running] = []


def of_the_file() -> Tensor:
    return ANYWHERE[0]()


def by_a_global() -> Tensor:
    return of_the_file()


def closed_over(module: Running) -> Callable[[], Tensor]:
    return lambda: module()


def by_a_global_of(module: Running) -> Callable[[], Tensor]:
    ANYWHERE[:] = [module]
    return by_a_global


WAYS: dict[str, Callable[[Running], Callable[[], Tensor]]] = {
    "itself": lambda module: module,
    "its method": lambda module: module.forward,
    "a closure": closed_over,
    "a partial": lambda module: partial(Running.forward, module),
    "a trainer": lambda module: Trainer(module).loss,
    "a closure over a trainer": lambda module: (lambda trainer: lambda: trainer.loss())(Trainer(module)),
    "a class": of_a_class,
    "an argument": lambda module: lambda part=module: part(),
    "a global": by_a_global_of,
    "a parent": lambda module: (lambda parent: lambda: parent[0]())(nn.Sequential(module)),
}


@pytest.mark.parametrize("way", WAYS)
def test_modules_are_as_after_one_run(way: str) -> None:
    module = Running()
    plain = copy.deepcopy(module)
    closure = WAYS[way](module)
    for _ in range(3):
        module.zero_grad()
        plain().backward()
        subgrad.backward(closure, list(module.parameters()))
        assert_same(state(module), state(plain))


def test_so_they_are_if_arguments_are_differentiated_in() -> None:
    module = Running()
    plain = copy.deepcopy(module)
    for function in (lambda x: (module() * x).abs().sum(), lambda x: module() * x):
        for _ in range(2):
            plain()
            subgrad.grad(function)(torch.zeros(()))
            assert_same(state(module), state(plain))


def test_modules_are_as_before_if_anything_is_raised() -> None:
    module = Running()
    before = copy.deepcopy(module)
    with pytest.raises(subgrad.clarke.Refused):
        subgrad.backward(lambda: module() + module.weight.detach().sum(), list(module.parameters()))
    assert_same(state(module), state(before))


@pytest.mark.filterwarnings("ignore:.*weight_norm")
def test_what_is_computed_before_a_call_is_a_tensor_of_the_program() -> None:
    layer = torch.nn.utils.weight_norm(nn.Linear(3, 4))
    subgrad.backward(lambda: layer(torch.zeros(2, 3)).abs().sum(), list(layer.parameters()))
    assert layer.weight.dtype == torch.float32
    assert layer.weight.requires_grad
    assert layer(torch.ones(2, 3)).dtype == torch.float32


def test_statistics_that_reach_the_result_detached_are_seen_to() -> None:
    class Shifted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight, self.mean = nn.Parameter(torch.tensor([1.0, 2.0])), torch.zeros(())

        def forward(self) -> Tensor:
            self.mean = 0.9 * self.mean + 0.1 * self.weight.detach().mean()
            return (self.weight.relu() + self.mean).sum()

    module = Shifted()
    with pytest.raises(subgrad.clarke.Refused, match="detach"):
        subgrad.backward(module, list(module.parameters()))
    assert module.mean == 0


SPECTRAL = {"parametrization": nn.utils.parametrizations.spectral_norm, "hook": nn.utils.spectral_norm}


@pytest.mark.filterwarnings("ignore:.*spectral_norm")
@pytest.mark.parametrize("is_training", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("kind", SPECTRAL)
def test_spectral_norms_that_have_converged_are_differentiated(
    kind: str, dtype: torch.dtype, is_training: bool
) -> None:
    def layer() -> nn.Module:
        torch.manual_seed(0)
        found = SPECTRAL[kind](nn.Linear(3, 4, dtype=dtype))
        for _ in range(200):
            found(torch.ones(2, 3, dtype=dtype))
        return found.train(is_training)

    x = torch.ones(2, 3, dtype=dtype)
    one, other = layer(), layer()
    one(x).square().sum().backward()
    subgrad.backward(lambda: other(x).square().sum() + F.relu(other(0 * x) - other.bias).sum(), other.parameters())
    for mine, torchs in zip(other.parameters(), one.parameters(), strict=True):
        assert mine.grad is not None
        torch.testing.assert_close(mine.grad, torchs.grad)
    assert all(each.dtype is dtype for each in (*other.buffers(), other.weight))
    other(x)  # as before


def test_what_writes_into_a_given_result_is_followed() -> None:
    found = torch.empty(3, dtype=torch.float64)

    def program(x: Tensor) -> Tensor:
        with torch.no_grad():
            torch.add(x, 1, out=found)
        return (x * x).sum() + F.relu(x).sum() + F.relu(found - x - 1).sum()

    x = torch.tensor([-1.0, 0.5, 2.0], dtype=torch.float64)
    torch.testing.assert_close(subgrad.grad(program)(x), torch.tensor([-2.0, 2.0, 5.0], dtype=torch.float64))
    torch.testing.assert_close(found, x + 1)


CONVERSIONS: dict[str, Callable[[nn.Module, Tensor], nn.Module]] = {
    "to the type of the argument": lambda module, x: module.to(x.dtype),
    "to its own": lambda module, x: module.to(next(module.parameters()).dtype),
    "by name": lambda module, x: module.float() if x.dtype is torch.float32 else module.to(x),
    "to its device": lambda module, x: module.cpu().to(x.device),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("kind", CONVERSIONS)
def test_modules_that_are_converted_to_what_they_are_stay_so(kind: str, dtype: torch.dtype) -> None:
    x = torch.tensor([[0.0, 1.0], [1.0, 0.0], [2.0, 2.0], [3.0, -1.0]], dtype=dtype)
    module = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3)).to(dtype)
    parameters = list(module.parameters())
    plain = copy.deepcopy(module)
    for is_first in (True, False):
        wanted = subgrad.grad(lambda x: plain(x).abs().sum() + x.abs().sum())(x)
        found = subgrad.grad(lambda x: CONVERSIONS[kind](module, x)(x).abs().sum() + x.abs().sum())(x)
        torch.testing.assert_close(found, wanted)
        subgrad.backward(lambda: plain(x).abs().sum() + F.relu(0 * plain[0].weight).sum(), plain.parameters())
        subgrad.backward(
            lambda: CONVERSIONS[kind](module, x)(x).abs().sum() + F.relu(0 * module[0].weight).sum(), parameters
        )
        assert is_first or module[0].weight.grad is not None
        for one, other in zip(module.parameters(), plain.parameters(), strict=True):
            assert_same([one, one.grad], [other, other.grad])
        assert all(one is other for one, other in zip(module.parameters(), parameters, strict=True))
        assert_same(dict(module.named_buffers()), dict(plain.named_buffers()))


def test_modules_that_are_converted_are_so_after_one_run_and_are_as_before_if_anything_is_raised() -> None:
    module = nn.Linear(2, 1)
    weight, before = module.weight, module.weight.detach().clone().double()
    x = torch.zeros(2, dtype=torch.float64)
    with pytest.raises(subgrad.clarke.Refused, match="sqrt"):
        subgrad.grad(lambda x: module.double()(x).sum() + x.sqrt().sum())(x)
    assert module.weight.dtype is torch.float32
    for _ in range(2):
        found = subgrad.grad(lambda x: module.double()(x).sum() + F.relu(x).sum() - F.relu(-x).sum())(x)
        torch.testing.assert_close(found, before[0] + 1)
        assert module.weight is weight
        assert torch.equal(weight, before)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_layers_that_are_made_and_converted_inside_are_differentiated(dtype: torch.dtype) -> None:
    def program(x: Tensor) -> Tensor:
        torch.manual_seed(0)
        return nn.GRU(2, 3).to(dtype)(x.view(2, 1, 2).abs())[0].sum() + (F.relu(x) - F.relu(-x)).sum()

    x = torch.tensor([0.0, 1.0, -1.0, 0.0], dtype=dtype)
    found = subgrad.element(program)(x)
    torch.manual_seed(0)
    layer = nn.GRU(2, 3).double()

    def value(step: float) -> float:
        moved = x.double() + step * found.direction.double()
        return float(layer(moved.view(2, 1, 2).abs())[0].sum() + moved.sum())

    assert abs(found.product - (value(1e-5) - value(0.0)) / 1e-5) < 1e-3


def test_numbers_that_are_put_in_the_place_of_others_are_as_after_one_run() -> None:
    scale = torch.ones(2)

    def program(x: Tensor) -> Tensor:
        scale.data = scale.data * 2
        return (scale * x).sum() + F.relu(scale * x).sum() - F.relu(-x).sum()

    for number in (1, 2, 3):
        found = subgrad.grad(program)(torch.zeros(2))
        torch.testing.assert_close(scale, torch.full((2,), 2.0**number))
        assert all(each in (2.0 * 2**number, 2.0**number + 1) for each in found.tolist())
