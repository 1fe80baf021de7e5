"""At minimisers of convex functions the least element of the program's set is 0, whatever torch's own element is.

Problems of Luksan and Vlcek and of Haarala (`nonsmooth_problems.json`), and models that scikit-learn fits to its data
sets: there the least element is as small as the solver is exact.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import subgrad

SMALL = 1e-6


@dataclass(frozen=True)
class Problem:
    name: str
    n: int
    convex: bool
    fopt: float
    xopt: list[float] | float  # one number where all coordinates are equal
    formula: str
    code: str
    source: str

    @property
    def function(self) -> Callable[[Tensor], Tensor]:
        return eval(f"lambda x: {self.code}", {"torch": torch})

    @property
    def minimiser(self) -> Tensor:
        return torch.tensor(self.xopt, dtype=torch.float64).expand(self.n).clone()


PROBLEMS = [Problem(**each) for each in json.loads((Path(__file__).parent / "nonsmooth_problems.json").read_text())]
CONVEX = [problem for problem in PROBLEMS if problem.convex]

# Where the coordinates of the minimiser are rounded: by how far its pieces may differ there.
ROUNDED = {"CB2": 1e-8, "QL": 1e-12, "LQ": 1e-12, "ChainedLQ": 1e-12}

# How long torch's own element is there, for 7 of the 11. At the other 4 it is the middle of the tied ones, and 0.
OF_TORCH = {"CB2": 2.79, "CB3": 1.12, "DEM": 0.5, "QL": 5.81, "LQ": 1.41, "ChainedLQ": 8.6, "ChainedCB3_I": 2.4}
LUCKY = ("Wolfe", "MAXQ", "Goffin", "MXHILB")

convex = pytest.mark.parametrize("problem", CONVEX, ids=lambda problem: problem.name)


@convex
def test_the_least_element_is_0_at_the_minimiser(problem: Problem) -> None:
    tol = ROUNDED.get(problem.name, 0.0)
    least = subgrad.min_norm(problem.function, tol=tol)(problem.minimiser)
    assert least.norm < SMALL
    assert least.convex


@convex
def test_torchs_own_element_is_not_small_at_7_of_the_11(problem: Problem) -> None:
    assert {each.name for each in CONVEX} == {*OF_TORCH, *LUCKY}
    x = problem.minimiser.requires_grad_()
    (element,) = torch.autograd.grad(problem.function(x), x)
    assert element.norm().item() == pytest.approx(OF_TORCH.get(problem.name, 0.0), rel=0.01, abs=SMALL)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: len(x) * x.max(0).values - x.sum(),
        lambda x: (len(x) * x.cummax(0).values - x.cumsum(0))[-1],
        lambda x: torch.where(x > 0, x, -2 * x).sum(),
    ],
)
def test_nor_is_it_where_the_tied_are_not_shared(function: Callable[[Tensor], Tensor]) -> None:
    x = torch.zeros(8, dtype=torch.float64)
    assert torch.func.grad(function)(x).norm() > 1
    assert subgrad.min_norm(function)(x).norm < SMALL


@convex
def test_away_from_the_minimiser_it_is_not_0(problem: Problem) -> None:
    x = problem.minimiser + torch.linspace(0.1, 0.2, problem.n, dtype=torch.float64)
    assert subgrad.min_norm(problem.function)(x).norm > 1e-3


@pytest.mark.parametrize("problem", [each for each in PROBLEMS if not each.convex], ids=lambda problem: problem.name)
def test_elsewhere_it_is_the_least_of_what_was_found(problem: Problem) -> None:
    least = subgrad.min_norm(problem.function)(problem.minimiser)
    assert least.norm < 1 + SMALL  # that of one element at least


# Models of scikit-learn. Points are what the solvers return: `tol` is how far residuals are from 0 there.


@cache
def diabetes() -> tuple[Tensor, Tensor]:
    datasets = pytest.importorskip("sklearn.datasets")
    return tuple(map(torch.tensor, datasets.load_diabetes(return_X_y=True)))  # type: ignore[return-value]


@cache
def breast_cancer() -> tuple[Tensor, Tensor]:
    datasets = pytest.importorskip("sklearn.datasets")
    features, classes = map(torch.tensor, datasets.load_breast_cancer(return_X_y=True))
    return (features - features.mean(0)) / features.std(0, correction=0), classes


def solution(model: object) -> Tensor:
    """The coefficients and the intercept, as one vector."""
    coefficients = torch.tensor(model.coef_).flatten()  # type: ignore[attr-defined]
    return torch.cat((coefficients, torch.tensor(model.intercept_).reshape(1)))  # type: ignore[attr-defined]


def with_ones(features: Tensor) -> Tensor:
    return torch.cat((features, features.new_ones(len(features), 1)), 1)


def test_lasso_on_diabetes() -> None:
    linear_model = pytest.importorskip("sklearn.linear_model")
    features, targets = diabetes()
    alpha, tolerance = 0.5, 1e-12
    model = linear_model.Lasso(alpha=alpha, tol=tolerance, max_iter=100_000).fit(features.numpy(), targets.numpy())

    def objective(w: Tensor) -> Tensor:
        return (with_ones(features) @ w - targets).square().mean() / 2 + alpha * w[:-1].abs().sum()

    w = solution(model)
    assert (w == 0).sum() > 1  # exactly on kinks: no tol
    assert subgrad.min_norm(objective)(w).norm < 1e-10
    assert torch.func.grad(objective)(w).norm() > 0.1


def test_quantile_regressor_on_diabetes() -> None:
    linear_model = pytest.importorskip("sklearn.linear_model")
    features, targets = diabetes()
    quantile, tol = 0.75, 1e-9
    model = linear_model.QuantileRegressor(quantile=quantile, alpha=0.0, solver="highs").fit(
        features.numpy(), targets.numpy()
    )

    def objective(w: Tensor) -> Tensor:
        residuals = targets - with_ones(features) @ w
        return torch.maximum(quantile * residuals, (quantile - 1) * residuals).mean()

    w = solution(model)
    assert ((targets - with_ones(features) @ w).abs() < tol).sum() == len(w)  # a vertex
    assert subgrad.min_norm(objective, tol=tol)(w).norm < 1e-10
    assert torch.func.grad(objective)(w).norm() > 1e-4


def test_linear_svc_on_breast_cancer() -> None:
    svm = pytest.importorskip("sklearn.svm")
    features, classes = breast_cancer()
    c, tolerance, tol = 0.01, 1e-8, 1e-6
    model = svm.LinearSVC(loss="hinge", C=c, tol=tolerance, max_iter=2_000_000, random_state=0)
    model.fit(features.numpy(), classes.numpy())
    signs = 2.0 * classes - 1

    def objective(w: Tensor) -> Tensor:  # liblinear penalises the intercept as well
        return w.square().sum() / 2 + c * F.relu(1 - signs * (with_ones(features) @ w)).sum()

    w = solution(model)
    assert ((1 - signs * (with_ones(features) @ w)).abs() < tol).sum() > 3  # support vectors on the margin
    assert subgrad.min_norm(objective, tol=tol)(w).norm < tolerance
    assert torch.func.grad(objective)(w).norm() > 0.01
