"""What came out wrong of programs that others wrote, each reduced to a few lines."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.distributions import Categorical, HalfCauchy, HalfNormal, OneHotCategorical, Uniform, kl_divergence

import subgrad
from subgrad.clarke import Refused
from subgrad.clarke.api import Arguments
from subgrad.clarke.engine.search import look


def numbers(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


EQUAL: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "categorical": lambda x, y: kl_divergence(Categorical(logits=x), Categorical(logits=y)),
    "one-hot": lambda x, y: kl_divergence(OneHotCategorical(logits=x), OneHotCategorical(logits=y)),
    "with a number shown": lambda x, y: kl_divergence(Categorical(logits=x), Categorical(logits=y)) + 0 * x.detach()[0],
}


@pytest.mark.parametrize("kind", EQUAL)
@pytest.mark.parametrize("logits", [(0.0, 0.0, 0.0), (0.0, 1.0, -1.0), (0.3, 0.2, 0.7)])
def test_the_divergence_of_equal_distributions_does_not_jump_by_what_rounding_leaves(
    kind: str, logits: tuple[float, ...]
) -> None:
    x = numbers(*logits)
    found = subgrad.grad(lambda x: EQUAL[kind](x, numbers(*logits)) + (x - x[0]).abs().sum() * 0)(x)
    assert found.abs().max() < 1e-12


def test_what_rounding_leaves_of_terms_that_cancel_is_no_jump() -> None:
    """It may be the same number all along one side, as in distances of equal measures that `geomloss` computes."""
    f: Callable[[Tensor], Tensor] = lambda x: (x**2).sum() + (x.detach() > 0).sum() * 2.0**-53  # noqa: E731
    for seed in range(4):
        assert not subgrad.grad(f, seed=seed)(numbers(0.0, 0.0)).any()
    with pytest.raises(Refused, match="jumps"):
        subgrad.grad(lambda x: f(x) + (x.detach() > 0).sum() * 1e-12)(numbers(0.0, 0.0))


def test_small_jumps_are_refused_all_the_same() -> None:
    for size in (1e-6, 1e-9):
        f: Callable[[Tensor], Tensor] = lambda x, s=size: (x.abs() + torch.where(x > 0, s, 0.0) + 0 * x.detach()).sum()  # noqa: E731
        with pytest.raises(Refused, match="jumps"):
            subgrad.grad(f)(numbers(0.0, 0.0))
        with pytest.raises(Refused, match="jumps"):
            subgrad.grad(lambda x, f=f: f(x) * 1e-4)(numbers(0.0, 0.0))


def test_shapes_that_are_lent_are_no_derivatives_that_are_cut() -> None:
    ones = torch.ones(2, dtype=torch.float64)
    lent: list[Callable[[Tensor], Tensor]] = [
        lambda x: ones.expand_as(x),
        lambda x: ones.view_as(x),
        lambda x: ones.reshape_as(x),
        lambda x: (x > 5).expand_as(x).to(x),
    ]
    for shaped in lent:
        arguments = Arguments(lambda x, g=shaped: (x * g(x)).sum(), 0, (numbers(1, 2),), {}, False)
        assert not look(arguments.program(), 0.0)[0].leaks


INFINITE_BEYOND: dict[str, Callable[[Tensor], Tensor]] = {
    "half-normal": lambda x: HalfNormal(torch.ones_like(x), validate_args=False).log_prob(x).sum(),
    "half-Cauchy": lambda x: HalfCauchy(torch.ones_like(x), validate_args=False).log_prob(x).sum(),
    "divergence of uniforms": lambda x: kl_divergence(
        Uniform(x, numbers(1.0, 2.0), validate_args=False), Uniform(numbers(0.0, 0.0), numbers(1.0, 2.0))
    ).sum(),
    "a barrier": lambda x: torch.where(x >= 0, x, torch.inf).sum(),
}


@pytest.mark.parametrize("kind", INFINITE_BEYOND)
def test_what_is_infinite_beyond_the_point_jumps(kind: str) -> None:
    f, zeros = INFINITE_BEYOND[kind], numbers(0.0, 0.0)
    assert bool(f(zeros).isfinite())
    for seed in range(4):
        with pytest.raises(Refused, match="jumps"):
            subgrad.grad(f, seed=seed)(zeros)
    with pytest.raises(Refused, match="jumps"):
        subgrad.jvp(f, (zeros,), (numbers(-1.0, 0.0),))
    (_, ahead), one = subgrad.jvp(f, (zeros,), (numbers(1.0, 0.0),)), numbers(1e-7, 0.0)
    assert abs(float(ahead) - float(f(one) - f(zeros)) / 1e-7) < 1e-5


# Nearer than 1e-6 these are other functions than further out, and they are differentiated where they are.
SMOOTHED: dict[str, Callable[[Tensor], Tensor]] = {
    "a contrastive loss of equal embeddings": lambda x: (
        torch.relu(1 - ((x[:2] - x[2:]) ** 2).sum().add(1e-12).sqrt()) ** 2 / 2 + (x[:2] - x[2:]).abs().mean()
    ),
    "a constant image, scaled to 0 and 1": lambda x: (WEIGHTS * (x - x.min()) / (x.max() - x.min() + 1e-6)).sum(),
    "shares of zeros": lambda x: (WEIGHTS * x.abs()).sum() / (x.abs().sum() + 1e-6),
}
WEIGHTS = numbers(0.3, 0.9, 1.7, 2.1)


@pytest.mark.parametrize("kind", SMOOTHED)
@pytest.mark.parametrize("seed", range(6))
def test_what_is_smoothed_near_the_point_is_not_refused(kind: str, seed: int) -> None:
    f, x = SMOOTHED[kind], numbers(0.0, 0.0, 0.0, 0.0)
    found = subgrad.element(f, seed=seed)(x)
    ahead = [f(x + step * found.direction) for step in (2.0**-40, 2.0**-44)]
    slope = float(ahead[0] - ahead[1]) / (2.0**-40 - 2.0**-44)
    assert abs(float((found.gradient * found.direction).sum()) - slope) < 2e-3 * max(1.0, abs(slope))


class Clipped(torch.autograd.Function):
    """Without forward mode; it selects inside, which no rule decides."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x - x.max() + x.max().clamp(min=0)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        (x,), (grad,) = ctx.saved_tensors, grads
        is_most = torch.nn.functional.one_hot(x.argmax(), x.numel())
        return grad - is_most * grad.sum() * (x.max() <= 0)


def test_custom_functions_that_select_are_differentiated_where_the_program_has_kinks() -> None:
    f: Callable[[Tensor], Tensor] = lambda x: (Clipped.apply(x) * numbers(1.0, 2.0, 3.0)).sum() + x.abs().sum()  # noqa: E731
    for point in (numbers(0.0, 1.0, -1.0), numbers(0.5, 0.0, 0.25)):
        for seed in range(4):
            found = subgrad.element(f, seed=seed)(point)
            near = (point + 2.0**-30 * found.direction).requires_grad_()
            assert (found.gradient - torch.autograd.grad(f(near), near)[0]).abs().max() < 1e-8


class Positive(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, scale: Tensor) -> Tensor:
        ctx.save_for_backward(x, scale)
        return x.clamp(min=0) * scale

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        x, scale = ctx.saved_tensors
        return grads[0] * (x > 0) * scale, None


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_custom_functions_are_applied_to_parameters_themselves(dtype: torch.dtype) -> None:
    layer, scale = torch.nn.Linear(3, 2, dtype=dtype), torch.tensor(2.0, dtype=dtype)
    torch.nn.init.zeros_(layer.bias)
    torchs = torch.autograd.Function.__dict__["apply"]
    closure: Callable[[], Tensor] = lambda: (  # noqa: E731  twice the bias, and the weight
        (Positive.apply(layer.bias, scale) - Positive.apply(-layer.bias, scale)).sum() + layer.weight.sum()
    )
    subgrad.backward(closure, layer.parameters())
    assert torch.equal(layer.bias.grad, torch.full_like(layer.bias, 2.0))  # type: ignore[arg-type]
    assert torch.equal(layer.weight.grad, torch.ones_like(layer.weight))  # type: ignore[arg-type]
    assert torch.autograd.Function.__dict__["apply"] is torchs


@pytest.mark.parametrize("name", ["nextafter", "nextafter_"])
def test_the_next_number_moves_with_the_first_also_where_both_are_equal(name: str) -> None:
    x, y = numbers(0.0, 1.0, 2.0), numbers(1.0, 1.0, 1.0)
    for plus in (lambda x: 0.0, lambda x: x.abs().sum()):
        f: Callable[..., Tensor] = lambda x, y, p=plus: (getattr(x * 1, name)(y) * WEIGHTS[:3]).sum() + p(x)  # noqa: E731
        found = subgrad.grad(f, argnums=(0, 1))(x, y)
        expected = subgrad.grad(lambda x, p=plus: (x * WEIGHTS[:3]).sum() + p(x))(x)
        assert torch.allclose(found[0], expected)
        assert not found[1].any()
        assert torch.equal(f(x, y), subgrad.value_and_grad(f)(x, y)[0])


@pytest.mark.parametrize(("name", "other"), [("amax", "max"), ("amin", "min")])
@pytest.mark.parametrize("initial", [None, 2.0])
def test_extremes_of_segments_have_two_names(name: str, other: str, initial: float | None) -> None:
    x, lengths = numbers(1, 1, 0, 2, 2, 2), torch.tensor([3, 3])

    def reduced(reduce: str) -> Callable[[Tensor], Tensor]:
        return lambda x: (torch.segment_reduce(x, reduce, lengths=lengths, initial=initial) * numbers(2.0, -3.0)).sum()

    for seed in range(4):
        found = subgrad.grad(reduced(name), seed=seed)(x)
        assert torch.equal(found, subgrad.grad(reduced(other), seed=seed)(x))
        assert found[3:].count_nonzero() <= 1
    with subgrad.use("min-norm"):
        assert torch.equal(torch.func.grad(reduced(name))(x), torch.func.grad(reduced(other))(x))
