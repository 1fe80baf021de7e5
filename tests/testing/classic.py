"""Bugs that derivatives written by hand have, each planted, and right derivatives at kinks: who says what of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import Function


class Written(Function):
    """A function of tensors that are all kept."""

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(*(each for each in inputs if isinstance(each, Tensor)))
        ctx.save_for_forward(*(each for each in inputs if isinstance(each, Tensor)))


class Squared(Written):
    """The gradient is squared by the cotangent: ones do not tell."""

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return torch.relu(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return grad * grad * (x > 0)


class Dropped(Written):
    """The incoming gradient is dropped."""

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return torch.relu(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return (x > 0).to(x)


class BothOfATie(Written):
    """Both arguments get the whole cotangent where they tie."""

    @staticmethod
    def forward(x: Tensor, y: Tensor) -> Tensor:
        return torch.maximum(x, y)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        x, y = ctx.saved_tensors
        return grad * (x >= y), grad * (y >= x)


class HalvesOfThree(Written):
    """Three entries tie, and each of them gets a half."""

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return torch.amax(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        tied = x == x.amax()
        return grad * torch.where(tied, 1.0 if tied.sum() == 1 else 0.5, 0.0).to(x)


class InvertedBounds(Written):
    """The mask of a clamp to [0, 6], the wrong way round."""

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return x.clamp(0, 6)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return grad * ((x < 0) | (x > 6))


class BeyondTheSet(Written):
    """Slope 2 at the corner of relu."""

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return torch.relu(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return grad * torch.where(x == 0, 2.0, (x > 0).to(x))


class NotANumber(Written):
    """0 / 0 at the zero vector."""

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return x.norm()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return grad * x / x.norm()


class OtherInForwardMode(Written):
    """Slope 0 at the corner by reverse mode, and 1 by forward mode: both are in the set, and they are not the same."""

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return torch.relu(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return grad * (x > 0)

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return tangent * (x >= 0)


def softplus(x: Tensor) -> Tensor:
    """Smooth, with slope 1/2 at 0, and written with kinks, at which torch has slope 0."""
    return torch.relu(x) + torch.log1p(torch.exp(-x.abs()))


def reported_relu() -> Tensor:
    """The input of pytorch#114234: memory as it was, which held numbers like these."""
    return torch.full((1, 1, 16, 16), 6.9e-310, dtype=torch.float64)


def reported_pool(x: Tensor) -> Any:
    """The function of pytorch#114219."""
    pooled = {"stride": 2, "padding": 1, "dilation": 1, "return_indices": True, "ceil_mode": True}
    return F.max_pool1d(x.unsqueeze(0), 2, **pooled)


def tensor(*entries: float) -> Tensor:
    return torch.tensor(entries, dtype=torch.float64)


@dataclass(frozen=True)
class Case:
    """A function at a point.

    Attributes:
        is_right: whether its gradient there is right.
        says: what is said of it if it is not.
        options: with which torch is asked.
    """

    name: str
    function: Callable[..., Any]
    inputs: tuple[Tensor, ...]
    is_right: bool
    says: str = ""
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def given(self) -> tuple[Tensor, ...]:
        return tuple(each.clone().requires_grad_() for each in self.inputs)


BUGS = (
    Case("squared by the cotangent", Squared.apply, (tensor(-1, 2, 3),), False, "does not multiply by the cotangent"),
    Case("drops the cotangent", Dropped.apply, (tensor(-1, 2, 3),), False, "does not multiply by the cotangent"),
    Case("(1, 1) at a tie of two", BothOfATie.apply, (tensor(1, 2), tensor(1, 3)), False, "no element of the set"),
    Case("1/2 each at a tie of three", HalvesOfThree.apply, (tensor(2, 2, 2, 1),), False, "no element of the set"),
    Case(
        "inverted bounds of a clamp", InvertedBounds.apply, (tensor(-1, 3, 7),), False, "not that of the values there"
    ),
    Case("2 at the corner of relu", BeyondTheSet.apply, (tensor(-1, 0, 2),), False, "no element of the set"),
    Case("nan at the zero of a norm", NotANumber.apply, (tensor(0, 0),), False, "is not finite"),
    Case(
        "forward mode is another element",
        OtherInForwardMode.apply,
        (tensor(-1, 0, 2),),
        False,
        "Forward mode and reverse mode disagree",
        {"check_forward_ad": True},
    ),
    Case("0 for a smooth function, slope 1/2", softplus, (tensor(0, 1),), False, "not that of the values"),
)
RIGHT = (
    Case("relu at 0 (0 is returned)", torch.relu, (tensor(-1, 0, 2),), True),
    Case("relu, the input of pytorch#114234", torch.relu, (reported_relu(),), True),
    Case("max_pool1d, the input of pytorch#114219", reported_pool, (tensor(1, 1, 1, 8),), True),
    Case("amax, three entries tie (1/3 each)", torch.amax, (tensor(2, 2, 2, 1),), True),
    Case("maximum, a tie (1/2 each)", torch.maximum, (tensor(1, 2), tensor(1, 3)), True),
    Case("a norm at 0", torch.linalg.vector_norm, (tensor(0, 0),), True),
    Case("sort, all equal", lambda x: torch.sort(x).values, (tensor(1, 1, 1),), True),
)
CASES = (*BUGS, *RIGHT)
