"""What came out wrong of programs that others wrote, each reduced to a few lines."""

from __future__ import annotations

from collections.abc import Callable

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
