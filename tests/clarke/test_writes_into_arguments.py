"""Programs that write into what they are differentiated in, where no derivative sees it: right, or refused."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import subgrad
from subgrad.clarke import Refused


def clamped(x: Tensor) -> None:
    with torch.no_grad():
        x.clamp_(0, 1)


def clamped_by_the_function(x: Tensor) -> None:
    with torch.no_grad():
        torch.clamp_(x, 0, 1)


def clamped_data(x: Tensor) -> None:
    x.data.clamp_(0, 1)


def clamped_beside(x: Tensor) -> None:
    x.detach().clamp_(0, 1)


def clamped_in_a_list(x: Tensor) -> None:
    with torch.no_grad():
        getattr(torch, "_foreach_clamp_max_")([x], 1.0)  # noqa: B009


def rooted(x: Tensor) -> None:
    with torch.no_grad():
        x.sqrt_()


def normed(x: Tensor) -> None:
    with torch.no_grad():
        x.view(1, -1).renorm_(2, 0, 1.0)


def rectified(x: Tensor) -> None:
    with torch.no_grad():
        F.relu6(F.relu(x.sub_(1), inplace=True), inplace=True)


def assigned(x: Tensor) -> None:
    with torch.no_grad():
        x[0] = 5.0


def scaled_in_a_list(x: Tensor) -> None:
    with torch.no_grad():
        getattr(torch, "_foreach_mul_")([x], 2.0)  # noqa: B009


WRITES = (
    assigned,
    scaled_in_a_list,
    rectified,
    clamped,
    clamped_by_the_function,
    clamped_data,
    clamped_beside,
    clamped_in_a_list,
    rooted,
    normed,
)


@pytest.mark.parametrize("write", WRITES, ids=lambda write: write.__name__)
@pytest.mark.parametrize("first", [0.5, 0.0])
def test_what_is_written_without_a_derivative_is_seen(write: Callable[[Tensor], None], first: float) -> None:
    def program(x: Tensor) -> Tensor:
        write(x)
        return (x * x).sum() + F.relu(x).sum()

    point = torch.tensor([first, 2.0, 3.0], dtype=torch.float64)
    x = point.clone()
    v, t = torch.tensor([0.3, -0.7, 0.5], dtype=torch.float64), 1e-6
    behind, here, ahead = (float(program(point + step * v)) for step in (-t, 0.0, t))
    slopes = sorted(((here - behind) / t, (ahead - here) / t))
    for gradient in (subgrad.grad(program), lambda x: subgrad.element(program)(x).gradient):
        try:
            slope = float(gradient(x) @ v)
        except Refused:
            continue
        assert slopes[0] - 1e-3 <= slope <= slopes[1] + 1e-3
    assert torch.equal(x, point)

    parameter = torch.nn.Parameter(point.clone())
    with pytest.raises(Refused, match="writes into what it is differentiated in"):
        subgrad.backward(lambda: program(parameter), [parameter])
    assert torch.equal(parameter, point)
    assert parameter.grad is None


@pytest.mark.parametrize("embed", [F.embedding, F.embedding_bag])
def test_rows_that_are_scaled_are_refused_and_others_differentiated(embed: Callable[..., Tensor]) -> None:
    indices = torch.tensor([[0, 2]])

    def program(weight: Tensor) -> Tensor:
        return embed(indices, weight, max_norm=1.0).abs().sum()

    for rows, is_scaled in (([[0.5, 0.5], [3.0, 3.0], [0.0, 0.25]], False), ([[1.0, 1.0], [3, 3], [0, 0]], True)):
        weight, parameter = torch.tensor(rows), torch.nn.Parameter(torch.tensor(rows))
        if is_scaled:
            with pytest.raises(Refused):
                subgrad.grad(program)(weight)
            with pytest.raises(Refused, match="writes into what it is differentiated in"):
                subgrad.backward(lambda: program(parameter), [parameter])  # noqa: B023
        else:
            wanted = subgrad.grad(lambda weight: embed(indices, weight).abs().sum())(weight)
            assert torch.equal(subgrad.grad(program)(weight), wanted)
            subgrad.backward(lambda: program(parameter), [parameter])  # noqa: B023
            torch.testing.assert_close(parameter.grad, wanted, rtol=0, atol=0)
        assert weight.tolist() == parameter.tolist() == rows


def test_what_is_dropped_in_place_is_seen_in_single_precision() -> None:
    def program(x: Tensor) -> Tensor:
        with torch.no_grad():
            F.dropout(x, 0.5, True, inplace=True)
        return (x * x).sum()

    torch.manual_seed(0)
    with pytest.raises(Refused):
        subgrad.grad(program)(torch.tensor([0.5, 2.0, -3.0]))


def test_a_write_that_torch_tells_nobody_of_is_refused() -> None:
    def program(x: Tensor) -> Tensor:
        with torch.no_grad():
            x.set_(torch.ones(2))  # pyright: ignore[reportArgumentType, reportCallIssue]
        return (x * x).sum()

    x = torch.zeros(2)
    with pytest.raises(Refused, match="puts other memory under what"):
        subgrad.grad(program)(x)
    assert x.tolist() == [0.0, 0.0]
    parameter = torch.nn.Parameter(x.clone())
    with pytest.raises(Refused, match="puts other memory under what"):
        subgrad.backward(lambda: program(parameter), [parameter])
    assert parameter.grad is None


def test_weights_that_are_constants_are_scaled_once() -> None:
    weight, factor = torch.tensor([[3.0, 4.0]]), torch.zeros(2, requires_grad=True)
    loss = subgrad.backward(lambda: (F.embedding(torch.tensor([0]), weight, max_norm=1.0) * factor).abs().sum(), factor)
    torch.testing.assert_close(weight, torch.tensor([[0.6, 0.8]]))
    assert factor.grad is not None
    torch.testing.assert_close(factor.grad.abs(), weight[0])
    assert loss == 0
