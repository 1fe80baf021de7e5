"""After an audit the process is as before: hooks, modes, settings, filters, and what torch's functions are."""

from __future__ import annotations

import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules import module as modules
from torch.optim import optimizer as optimizers
from torch.overrides import TorchFunctionMode
from torch.utils.checkpoint import checkpoint

import subgrad
from subgrad.apply.current_pass import here


def attributes(owner: Any) -> dict[str, int]:
    return {name: id(value) for name, value in vars(owner).items() if callable(value)}


def process() -> dict[str, Any]:
    """What of the process an audit could leave changed."""
    return {
        "tracing": (sys.gettrace(), sys.getprofile(), threading.gettrace(), threading.getprofile()),
        "global hooks": [
            {**hooks}
            for name, hooks in vars(modules).items()
            if name.startswith("_global_") and isinstance(hooks, dict)
        ],
        "optimizers": [
            {**hooks} for name, hooks in vars(optimizers).items() if name.startswith("_global_") and hooks is not None
        ],
        "functions": [
            attributes(each) for each in (torch.autograd, torch.autograd.graph, Tensor, nn.Module, F, torch.optim.SGD)
        ],
        "modes": (torch._C._len_torch_function_stack(), torch._C._len_torch_dispatch_stack()),
        "saved tensors": torch._C._autograd._top_saved_tensors_default_hooks(False),
        "warnings": ([*warnings.filters], warnings.showwarning),
        "gradients": (torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.is_anomaly_enabled()),
        "kernels": (
            torch.are_deterministic_algorithms_enabled(),
            torch.is_deterministic_algorithms_warn_only_enabled(),
            torch.backends.cudnn.deterministic,
            torch.backends.cudnn.benchmark,
            torch.is_autocast_enabled("cpu"),
        ),
        "defaults": (torch.get_default_dtype(), torch.get_num_threads(), torch.get_default_device()),
        "pass": here.current,
        "convention": subgrad.active(),
        "generator": torch.get_rng_state().tolist(),
        "threads": threading.active_count(),
    }


@contextmanager
def left_as_it_was() -> Iterator[None]:
    before = process()
    try:
        yield
    finally:
        after = process()
        for name, value in before.items():
            assert after[name] == value, name


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Linear(3, 3), nn.BatchNorm1d(3)

    def forward(self, x: Tensor) -> Tensor:
        x = checkpoint(lambda x: self.norm(self.first(x)).clamp(0, 1), x, use_reentrant=False)
        return F.prelu(x, torch.tensor([0.5])).maximum(x.detach())


def train(net: nn.Module, optimizer: Any) -> None:
    for _ in range(3):
        optimizer.zero_grad()
        (net(torch.zeros(4, 3)) * torch.arange(12.0).sub(5).reshape(4, 3)).sum().backward()
        optimizer.step()


def hooks_of(net: nn.Module, optimizer: Any) -> list[Any]:
    found = [
        {**value}
        for each in (*net.modules(), optimizer)
        for name, value in vars(each).items()
        if "hook" in name and isinstance(value, dict)
    ]
    return [*found, [each._backward_hooks for each in net.parameters()], [vars(each).keys() for each in net.modules()]]


SESSIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "compared": {"compare": ("left", "min-norm"), "every": 1, "compare_every": 1},
    "with last places": {"ulps": 2, "every": 2},
    "a listener that fails": {"listeners": [lambda step, met: {}["nothing"]]},
}


@pytest.mark.parametrize("given", SESSIONS)
@pytest.mark.parametrize("error", [None, ValueError, KeyboardInterrupt])
def test_an_audit_leaves_the_process_as_it_was(given: str, error: type[BaseException] | None) -> None:
    subgrad.audit().__enter__().__exit__()  # kernels are registered once, and stay
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    train(net, optimizer)  # what torch itself sets up
    hooks = hooks_of(net, optimizer)
    with left_as_it_was(), suppress(ValueError, KeyboardInterrupt, KeyError), subgrad.audit(net, **SESSIONS[given]):
        train(net, optimizer)
        if error:
            raise error
    assert hooks_of(net, optimizer) == hooks


@pytest.mark.parametrize("error", [None, ValueError, KeyboardInterrupt])
def test_compare_leaves_the_process_as_it_was(error: type[BaseException] | None) -> None:
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    train(net, optimizer)
    hooks = hooks_of(net, optimizer)

    def closure() -> Tensor:
        torch.rand(3)
        out = net(torch.zeros(4, 3)).sum()
        if error:
            raise error
        return out

    with left_as_it_was(), suppress(ValueError, KeyboardInterrupt):
        subgrad.compare(closure, net, ["left", "right"])
    assert hooks_of(net, optimizer) == hooks


def test_modes_of_the_user_stay_in_force_around_an_audit() -> None:
    class Mode(TorchFunctionMode):
        called = 0

        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            Mode.called += func is torch.relu
            return func(*args, **(kwargs or {}))

    x = torch.zeros(3, requires_grad=True)
    with Mode(), left_as_it_was():
        with subgrad.audit(compare=("left", "right")) as audit:
            torch.relu(x).sum().backward()
        torch.relu(x)
    assert (Mode.called, audit.hits) == (2, 3)


def test_an_audit_that_was_left_while_somebody_else_watches_backward_stays_quiet() -> None:
    """Who wraps the same function of torch's later, and leaves later, finds what it put there."""
    before = torch.autograd._engine_run_backward
    audit = subgrad.audit(compare=("left", "right"))
    audit.__enter__()
    inner: Callable[..., Any] = torch.autograd._engine_run_backward
    calls = []

    def theirs(*args: Any, **kwargs: Any) -> Any:
        calls.append(1)
        return inner(*args, **kwargs)

    torch.autograd._engine_run_backward = theirs
    try:
        audit.__exit__()
        x = torch.zeros(3, requires_grad=True)
        torch.relu(x).sum().backward()
        assert x.grad is not None
        assert torch.autograd._engine_run_backward is theirs
        assert (len(calls), audit.effects) == (1, ())
    finally:
        torch.autograd._engine_run_backward = before
