"""Values that come back through memory, lists or numbers without a derivative: right, or refused, never unseen."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import subgrad
from subgrad.clarke import Refused

Hidden = Callable[[Tensor, Tensor], Tensor]  # the same numbers as x, by way of a buffer or none


def detached(x: Tensor, buffer: Tensor) -> Tensor:
    buffer.detach().copy_(x)
    return buffer


def data(x: Tensor, buffer: Tensor) -> Tensor:
    buffer.data.copy_(x)
    return buffer


def without_gradient(x: Tensor, buffer: Tensor) -> Tensor:
    with torch.no_grad():
        buffer.copy_(x)
    return buffer


def assigned(x: Tensor, buffer: Tensor) -> Tensor:
    buffer[:] = x.detach()
    return buffer


def own_memory(x: Tensor, buffer: Tensor) -> Tensor:
    found = torch.empty_like(buffer)
    found.detach()[:] = x
    return found


def own_view(x: Tensor, buffer: Tensor) -> Tensor:
    found = torch.zeros_like(buffer)
    view = found.detach()
    view.add_(0)
    view[1:].copy_(x[1:])
    view[:1].copy_(x[:1])
    return found


def outer_view(x: Tensor, buffer: Tensor) -> Tensor:
    buffer.detach()[1:].copy_(x[1:])
    buffer.data[:1].copy_(x[:1])
    return buffer.view(3, 1).flatten()


def by_out(x: Tensor, buffer: Tensor) -> Tensor:
    torch.add(x.detach(), 0, out=buffer)
    return buffer


def listed(x: Tensor, buffer: Tensor) -> Tensor:
    return torch.as_tensor(x.tolist(), dtype=x.dtype)


def filled(x: Tensor, buffer: Tensor) -> Tensor:
    return torch.stack([torch.full((), float(each), dtype=x.dtype) for each in x.detach()])


def shared(x: Tensor, buffer: Tensor) -> Tensor:
    return torch.from_numpy(x.detach().numpy().copy())


def set_to(x: Tensor, buffer: Tensor) -> Tensor:
    return torch.zeros_like(buffer).set_(x.detach())


def pickled(x: Tensor, buffer: Tensor) -> Tensor:
    return pickle.loads(pickle.dumps(x.detach()))


def copied(x: Tensor, buffer: Tensor) -> Tensor:
    return copy.deepcopy(x.detach())


HIDDEN: tuple[Hidden, ...] = (
    *(detached, data, without_gradient, assigned, own_memory, own_view, outer_view, by_out),
    *(listed, filled, shared, set_to, pickled, copied),
)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("hidden", HIDDEN, ids=lambda each: each.__name__)
@pytest.mark.parametrize("is_kinked", [False, True])
def test_what_comes_back_without_a_derivative_is_seen(hidden: Hidden, is_kinked: bool, dtype: torch.dtype) -> None:
    buffer, x = torch.full((3,), 7.0, dtype=dtype), torch.tensor([1.0, 2.0, 3.0], dtype=dtype)

    def program(x: Tensor) -> Tensor:
        kinked = (x - 1).relu().sum() if is_kinked else 0.0
        return (hidden(x, buffer).to(dtype) * x).sum() + kinked

    try:
        found = subgrad.grad(program)(x)
    except Refused:
        assert torch.equal(buffer, torch.full_like(buffer, 7.0))  # as before
        return
    ones = torch.ones_like(x) * is_kinked
    ones[0] = found[0] - 2  # either side of the corner
    assert ones[0] in (0.0, float(is_kinked))
    torch.testing.assert_close(found, 2 * x + ones)
