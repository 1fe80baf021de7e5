"""Functions without rows: they call what `THROUGH` says, and conventions reach them there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

import subgrad
from subgrad.kinks.composites import THROUGH
from subgrad.kinks.sets import Jump


@dataclass(frozen=True)
class Case:
    """A call on its kink, and either two conventions that tell its gradients apart or the gradient that all share."""

    function: Callable[..., Tensor]
    inputs: tuple[Any, ...]
    apart: tuple[str, str] | None = None
    least: tuple[Any, ...] | None = None

    @property
    def points(self) -> list[Tensor]:
        return [torch.tensor(each, dtype=torch.float64) for each in self.inputs]


def corner(function: Callable[..., Tensor], *inputs: Any) -> Case:
    """On a corner or a tie of two tensors, of which the one-sided derivatives differ."""
    return Case(function, inputs, apart=("left", "right"))


def selection(function: Callable[..., Tensor], *inputs: Any) -> Case:
    """On a joint kink at which torch's own element is not the least."""
    return Case(function, inputs, apart=("torch", "min-norm"))


LABELS, EYE, NOTHING = torch.tensor([1.0, -1.0]), ((1.0, 0.0), (0.0, 1.0)), ((0.0, 0.0), (0.0, 0.0))
# Anchor to positive 5, to negative 6: the margin of 1 is met exactly.
TRIPLET = (((0.0, 0.0),), ((3.0, 4.0),), ((6.0, 0.0),))


def euclid(one: Tensor, other: Tensor) -> Tensor:
    return F.pairwise_distance(one, other, eps=0)


CASES = {
    "F.l1_loss": corner(F.l1_loss, (1.0, 2.0), (1.0, 0.0)),
    "F.smooth_l1_loss(beta=0)": corner(lambda x, y: F.smooth_l1_loss(x, y, beta=0), (1.0, 2.0), (1.0, 0.0)),
    "F.margin_ranking_loss": corner(lambda x, y: F.margin_ranking_loss(x, y, LABELS), (1.0, 2.0), (1.0, 0.0)),
    "F.hinge_embedding_loss": corner(lambda x: F.hinge_embedding_loss(x, LABELS), (2.0, 1.0)),
    "F.cosine_embedding_loss": corner(
        lambda x, y: F.cosine_embedding_loss(x, y, LABELS[1:]), ((1.0, 0.0),), ((0.0, 2.0),)
    ),
    "F.triplet_margin_loss": corner(lambda *points: F.triplet_margin_loss(*points, eps=0), *TRIPLET),
    "F.triplet_margin_with_distance_loss": corner(
        lambda *points: F.triplet_margin_with_distance_loss(*points, distance_function=euclid), *TRIPLET
    ),
    "F.normalize": corner(lambda x: F.normalize(x, dim=0, eps=5.0), (3.0, 4.0)),
    "F.cosine_similarity": Case(
        lambda x, y: F.cosine_similarity(x, y, dim=0, eps=0.5),
        ((0.0, 0.0), (3.0, 4.0)),
        least=((1.2, 1.6), (0.0, 0.0)),  # y / |y| / eps: the norm of x has slope 0
    ),
    "F.pairwise_distance": Case(euclid, (((1.0, 2.0),), ((1.0, 2.0),)), least=(((0.0, 0.0),), ((0.0, 0.0),))),
    "torch.cdist": Case(
        lambda x, y: torch.cdist(x, y, compute_mode="use_mm_for_euclid_dist"),
        (((1.0, 2.0),), ((1.0, 2.0),)),
        least=(((0.0, 0.0),), ((0.0, 0.0),)),
    ),
    "torch.cdist(p=inf)": selection(lambda x, y: torch.cdist(x, y, p=inf), ((1.0, -1.0),), ((0.0, 0.0),)),
    "torch.std": Case(torch.std, ((1.0, 1.0, 1.0),), least=((0.0, 0.0, 0.0),)),
    "torch.norm": Case(torch.norm, ((0.0, 0.0),), least=((0.0, 0.0),)),
    "torch.linalg.norm": Case(torch.linalg.norm, ((0.0, 0.0),), least=((0.0, 0.0),)),
    "torch.linalg.matrix_norm(ord='fro')": Case(torch.linalg.matrix_norm, (NOTHING,), least=(NOTHING,)),
    "torch.linalg.matrix_norm(ord=inf)": Case(
        lambda x: torch.linalg.matrix_norm(x, inf), (EYE,), least=(((0.5, 0.0), (0.0, 0.5)),)
    ),
    "torch.linalg.matrix_norm(ord=2)": selection(lambda x: torch.linalg.matrix_norm(x, 2), NOTHING),
    "torch.linalg.matrix_norm(ord='nuc')": selection(lambda x: torch.linalg.matrix_norm(x, "nuc"), NOTHING),
    "torch.linalg.cond(p=2)": selection(lambda x: torch.linalg.cond(x, 2), EYE),
    "torch.max(x, y)": corner(torch.max, (1.0, 2.0), (1.0, 0.0)),
    "torch.msort": selection(torch.msort, (1.0, 2.0, 1.0)),
    "torch.quantile": selection(lambda x: torch.quantile(x, 0.5), (1.0, 1.0, 0.0)),
    "torch.nanquantile": selection(lambda x: torch.nanquantile(x, 0.5), (1.0, 1.0, 0.0)),
    "F.max_pool1d": selection(lambda x: F.max_pool1d(x, 2), (((1.0, 1.0, 0.0, 2.0),),)),
    "F.adaptive_max_pool1d": selection(lambda x: F.adaptive_max_pool1d(x, 2), (((1.0, 1.0, 0.0, 2.0),),)),
    "torch.absolute": corner(torch.absolute, (0.0, 1.0)),
    "torch.clip": corner(lambda x: torch.clip(x, 0, 1), (0.0, 1.0)),
    "F.relu6": corner(F.relu6, (0.0, 6.0)),
    "F.selu": corner(F.selu, (0.0, 6.0)),
}
EVERY = pytest.mark.parametrize("name", CASES)


class Watch(TorchDispatchMode):
    """The overloads that are differentiated, in-place forms under the name of what they do."""

    def __init__(self) -> None:
        super().__init__()
        self.called: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name, form = func._schema.name.removeprefix("aten::").removesuffix("_"), func._schema.overload_name
        if torch.is_grad_enabled():  # cosine_similarity bounds its norms where nobody looks
            self.called.add(f"{name}.{form}" if form else name)
        return func(*args, **(kwargs or {}))


def gradients(case: Case, convention: str) -> list[Tensor]:
    """The gradients under a convention, for cotangents that are not constant."""
    leaves = [each.requires_grad_() for each in case.points]
    with subgrad.use(convention):
        out = case.function(*leaves)
        cotangent = torch.arange(out.numel(), dtype=out.dtype).reshape(out.shape) - 2.5
        return list(torch.autograd.grad(out, leaves, cotangent))


def test_every_function_of_the_table_has_a_case() -> None:
    assert list(CASES) == list(THROUGH)


@EVERY
def test_a_function_calls_the_overloads_that_the_table_says(name: str) -> None:
    with Watch() as watch:
        CASES[name].function(*[each.requires_grad_() for each in CASES[name].points])
    kinked = {kink.op for kink in subgrad.kinks if not isinstance(kink.set, Jump)}
    assert watch.called & kinked == set(THROUGH[name])


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.apart])
def test_a_convention_reaches_the_function(name: str) -> None:
    case = CASES[name]
    assert case.apart is not None
    one, other = (gradients(case, convention) for convention in case.apart)
    assert any((a - b).abs().max() > 0.1 for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("convention", ["torch", "min-norm", "documented"])
@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.least])
def test_where_torch_takes_the_least_element_so_do_conventions(name: str, convention: str) -> None:
    case = CASES[name]
    assert case.least is not None
    wanted = [-2.5 * torch.tensor(each, dtype=torch.float64) for each in case.least]
    torch.testing.assert_close(gradients(case, convention), wanted)
