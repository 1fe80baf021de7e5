"""Every remedy is tried on its operator where the slope is infinite: its gradient is finite, and that of the values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import subgrad
from subgrad.audit import Line, Nonfinite, Site
from subgrad.audit.nonfinite.advice import STRONG, of
from subgrad.audit.nonfinite.remedies import MASKED, REMEDIES, SAFE, SELECTING, Remedy

STEP = 1e-6
# Where the slope is infinite, and where it is not.
PLACES = {
    **dict.fromkeys(("sqrt", "rsqrt", "log", "log2", "log10", "reciprocal", "lgamma", "digamma"), (0.0, 0.7)),
    **dict.fromkeys(("acos", "asin", "atanh", "erfinv"), (1.0, 0.3)),
    **dict.fromkeys(("exp", "expm1", "sinh", "cosh"), (800.0, 0.3)),
    "exp2": (1100.0, 0.3),
    "acosh": (1.0, 1.9),
    "log1p": (-1.0, 0.4),
    "logit": (1.0, 0.3),
    "special_ndtri": (0.0, 0.3),
    "special_entr": (0.0, 0.3),
}


@dataclass(frozen=True)
class Case:
    """A program with the operator, and what the names in the remedy's code stand for in it.

    Attributes:
        original: of x, what the remedy is to replace; y and others are constants in it.
        at: x.
        names: other names, given x.
        weights: of the entries of the result.
    """

    original: Callable[[Tensor], Tensor]
    at: Tensor
    names: Callable[[Tensor], dict[str, Any]] = field(default=lambda x: {})
    weights: Callable[[Tensor], Tensor] = field(default=lambda result: torch.arange(1.0, 1.0 + result.numel()).double())

    def loss(self, result: Tensor) -> Tensor:
        return (result.reshape(-1) * self.weights(result)).sum()


def double(*numbers: Any) -> Tensor:
    return torch.tensor(numbers, dtype=torch.float64)


KEEP = torch.tensor([False, True])
ZERO_ROW = double([0.0, 0.0], [0.3, -0.4])
HIDDEN = torch.tensor([[False, True, False], [True, True, True]])
SCORES = double([0.1, 0.2, 0.4], [0.3, 0.5, 0.6])
LESS = double([0.0, 0.0], [-torch.inf, -torch.inf])


def elementwise(remedy: Remedy) -> Case:
    (name,) = remedy.operators
    spelled: Any = torch
    for part in SAFE[name][1].split("."):
        spelled = getattr(spelled, part)
    if remedy.masks == SELECTING:
        return Case(lambda x: spelled(x)[KEEP], double(*PLACES[name]), lambda x: {"keep": KEEP})
    return Case(lambda x: torch.where(KEEP, spelled(x), 0.0), double(*PLACES[name]), lambda x: {"keep": KEEP})


def kept(original: Callable[[Tensor], Tensor], at: Tensor, **names: Any) -> Case:
    return Case(lambda x: torch.where(KEEP, original(x), 0.0), at, lambda x: {"keep": KEEP, **names})


def norm_of(x: Tensor) -> Tensor:
    return (x * x).sum(-1).sqrt()


def masked_softmax(function: Any) -> Callable[[Tensor], Tensor]:
    less = torch.zeros(2, 3).double().masked_fill(HIDDEN, -torch.inf)
    return lambda x: function(x + less, -1).masked_fill(HIDDEN, 0.0)


A, B = double([1.0, 0.0, 0.0], [0.6, 0.8, 0.0]), double([1.0, 0.0, 0.0], [0.0, 0.6, 0.8])
TARGET = double([1.0, 2.0], [3.0, 4.0])
THREE = double(3.0, 3.0)
REPEATED = double([2.0, 0.0], [0.0, 2.0])

# By operator and the beginning of the words.
CASES: dict[tuple[str, str], Case] = {
    ("div", "Keep"): Case(
        lambda x: torch.where(KEEP, THREE / x, 0.0), double(0.0, 0.7), lambda x: {"keep": KEEP, "y": x, "x": THREE}
    ),
    ("pow", "Keep"): kept(lambda x: x**-1.5, double(0.0, 0.7), y=-1.5),
    ("hypot", "Keep"): kept(
        lambda x: torch.hypot(x, torch.zeros(2).double()), double(0.0, 0.7), y=torch.zeros(2).double()
    ),
    ("xlogy", "Keep"): Case(
        lambda x: torch.where(KEEP, torch.xlogy(double(0.0, 2.0), x), 0.0),
        double(0.0, 0.7),
        lambda x: {"keep": KEEP, "y": x, "x": double(0.0, 2.0)},
    ),
    ("softmax", "Give"): Case(masked_softmax(torch.softmax), SCORES, lambda x: {"hidden": HIDDEN}),
    ("log_softmax", "Give"): Case(masked_softmax(torch.log_softmax), SCORES, lambda x: {"hidden": HIDDEN}),
    ("logsumexp", "Leave"): Case(
        lambda x: torch.where(torch.tensor([False, True]), 0.0, torch.logsumexp(x + LESS, -1)),
        SCORES[:, :2],
        lambda x: {"x": x + LESS},
    ),
    ("exp", "`softplus`"): Case(lambda x: torch.where(x > 20, x, torch.log1p(torch.exp(x))), double(800.0, 0.3)),
    ("sqrt", "The norm has a gradient of 0 at 0, the least|sum"): Case(norm_of, ZERO_ROW),
    ("sqrt", "The norm has a gradient of 0 at 0, the least|mean"): Case(lambda x: (x * x).mean(-1).sqrt(), ZERO_ROW),
    ("sqrt", "The norm has a gradient of 0 at 0, also"): Case(
        lambda x: F.mse_loss(x, TARGET).sqrt(), TARGET, lambda x: {"target": TARGET}
    ),
    ("sqrt", "`std`"): Case(lambda x: x.var(-1).sqrt(), double([1.5, 1.5, 1.5], [0.1, 0.7, 0.4])),
    ("hypot", "The norm"): Case(
        lambda x: torch.hypot(x[0], x[1]), double([0.0, 0.3], [0.0, 0.4]), lambda x: {"x": x[0], "y": x[1]}
    ),
    ("log", "`logsigmoid`"): Case(lambda x: torch.log(torch.sigmoid(x)), double(-800.0, 0.3)),
    ("log", "`log_softmax`"): Case(lambda x: torch.log(torch.softmax(x, -1)), double([-800.0, 0.0], [0.1, 0.4])),
    ("log", "`logsumexp`"): Case(lambda x: torch.log(torch.exp(x).sum(-1)), double([-800.0, -801.0], [0.1, 0.4])),
    ("acos", "The angle"): Case(
        lambda x: torch.acos((A * x).sum(-1) / torch.linalg.vector_norm(x, dim=-1)), B, lambda x: {"a": A, "b": x}
    ),
    ("std", "One"): Case(lambda x: x.std(-1), double([1.5], [2.5])),
    ("native_layer_norm", "An eps"): Case(lambda x: F.layer_norm(x, (2,), eps=0.0), double([1.5, 1.5], [0.1, 0.7])),
    ("native_group_norm", "An eps"): Case(lambda x: F.group_norm(x, 1, eps=0.0), double([1.5, 1.5], [0.1, 0.7])),
    ("linalg_eigh", "Eigenvalues"): Case(lambda x: torch.linalg.eigh(x).eigenvectors, REPEATED),
    ("linalg_svd", "Singular"): Case(lambda x: torch.linalg.svd(x).U, REPEATED),
    ("sqrt", "Stay"): Case(torch.sqrt, double(0.0, 0.7)),
    ("log", "Bound"): Case(torch.log, double(0.0, 0.7)),
    ("log1p", "Bound"): Case(torch.log1p, double(-1.0, 0.7)),
    ("acos", "Bound"): Case(torch.acos, double(1.0, 0.3)),
    ("asin", "Bound"): Case(torch.asin, double(-1.0, 0.3)),
    ("atanh", "Bound"): Case(torch.atanh, double(1.0, 0.3)),
    ("erfinv", "Bound"): Case(torch.erfinv, double(-1.0, 0.3)),
    ("acosh", "Bound"): Case(torch.acosh, double(1.0, 1.9)),
    ("logit", "Bound"): Case(torch.logit, double(0.0, 0.3)),
    ("pow", "Stay"): Case(lambda x: x**0.5, double(0.0, 0.7), lambda x: {"y": 0.5}),
    ("div", "A quotient"): Case(lambda x: THREE / x, double(0.0, 0.7), lambda x: {"y": x, "x": THREE}),
    ("rsqrt", "Stay"): Case(torch.rsqrt, double(0.0, 0.7)),
    ("reciprocal", "Bound"): Case(torch.reciprocal, double(0.0, 0.7)),
    ("xlogy", "Bound"): Case(lambda x: torch.xlogy(x, x), double(0.0, 0.7), lambda x: {"y": x}),
    ("special_entr", "Bound"): Case(torch.special.entr, double(0.0, 0.7)),
    ("exp", "Bound"): Case(torch.exp, double(800.0, 0.3)),
    ("linalg_inv_ex", "A multiple"): Case(torch.linalg.inv, double([1e-200, 0.0], [0.0, 1e-200])),
    ("linalg_slogdet", "A multiple"): Case(lambda x: torch.linalg.slogdet(x).logabsdet, double([1.0, 1.0], [1.0, 1.0])),
}


def case_of(remedy: Remedy) -> Case:
    for (operator, words), case in CASES.items():
        beginning, _, before = words.partition("|")
        if operator in remedy.operators and remedy.words.startswith(beginning) and remedy.before.startswith(before):
            return case
    return elementwise(remedy)


def slopes(function: Callable[[Tensor], Tensor], at: Tensor) -> Tensor:
    """Central differences of values."""
    found = torch.zeros(at.numel(), dtype=torch.float64)
    for place in range(at.numel()):
        shift = torch.zeros(at.numel(), dtype=torch.float64)
        shift[place] = STEP
        shift = shift.reshape(at.shape)
        found[place] = (function(at + shift) - function(at - shift)) / (2 * STEP)
    return found.reshape(at.shape)


def gradient(function: Callable[[Tensor], Tensor], at: Tensor) -> Tensor:
    x = at.clone().requires_grad_()
    return torch.autograd.grad(function(x), x)[0]


def advised(remedy: Remedy, case: Case, x: Tensor) -> Tensor:
    """What the code of a remedy gives, run as it is."""
    given = {"torch": torch, "x": x, "y": x, **case.names(x)}
    exec(remedy.code.format(x="x", y="y"), given)
    return given["result"]


def names(remedy: Remedy) -> str:
    return f"{remedy.operators[0]}-{remedy.when}-{remedy.words.split()[0]}-{remedy.before or 'any'}"


@pytest.mark.parametrize("remedy", REMEDIES, ids=names)
def test_the_gradient_is_finite_and_that_of_the_values(remedy: Remedy) -> None:
    case = case_of(remedy)
    assert not gradient(lambda x: case.loss(case.original(x)), case.at).isfinite().all()
    found = gradient(lambda x: case.loss(advised(remedy, case, x)), case.at)
    assert found.isfinite().all()
    if remedy.words.startswith(("Eigenvalues", "Singular", "One number", "A multiple", "An eps")):  # another function
        return
    values = case.loss(case.original(case.at))
    if remedy.is_gradient and values.isfinite():
        expected = slopes(lambda x: case.loss(case.original(x)), case.at)
        assert torch.allclose(found, expected, rtol=1e-5, atol=1e-6), (found, expected)
    else:  # where the slope is finite it is the same
        last = gradient(lambda x: case.loss(case.original(x)), case.at)
        assert torch.allclose(found[-1], last[-1], rtol=1e-5, atol=1e-6)


@pytest.mark.filterwarnings("ignore:std")
@pytest.mark.parametrize("remedy", REMEDIES, ids=names)
def test_what_explains_the_program_gives_the_remedy(remedy: Remedy) -> None:
    case = case_of(remedy)
    x = case.at.clone().requires_grad_()
    found = subgrad.explain_nan(lambda: case.loss(case.original(x)), {"x": x}).nonfinite
    words = [advice.words for each in found for advice in each.advice]
    assert remedy.words in words


def test_every_operator_with_a_number_that_is_safe_has_a_place_where_it_is_not() -> None:
    assert set(PLACES) == set(SAFE)
    assert {operator for each in REMEDIES if each.when == MASKED for operator in each.operators} >= set(SAFE)


def test_operands_are_read_from_the_line() -> None:
    first, second = (torch.tensor([0.0, 4.0], requires_grad=True) for _ in range(2))
    loss = lambda: torch.where(first > 0, (first + 0).sqrt() / (second * 1), 0.0).sum()  # noqa: E731
    found = subgrad.explain_nan(loss, {"first": first, "second": second}).nonfinite
    codes = {each.guilty.operator: each.advice[0].code for each in found if each.guilty}
    assert "divisor = torch.where(keep, (second * 1), 1.0)" in codes["div"]


def test_lines_that_cannot_be_read_alone_leave_the_names_of_the_template() -> None:
    x = torch.tensor([0.0, 4.0], requires_grad=True)
    found = subgrad.explain_nan(
        lambda: torch.where(
            x > 0,
            torch.sqrt(
                x,
            ),
            0.0,
        ).sum(),
        {"x": x},
    ).nonfinite
    assert "torch.where(keep, x, 1.0)" in found[0].advice[0].code


@pytest.mark.skipif("strong_zero" not in subgrad.Convention.__init__.__annotations__, reason="no strong zeros yet")
@pytest.mark.parametrize("remedy", [each for each in REMEDIES if each.when == MASKED], ids=names)
def test_strong_zeros_give_the_gradient_without_a_change_to_the_line(remedy: Remedy) -> None:
    case = case_of(remedy)
    x = case.at.clone().requires_grad_()
    given: dict[str, Any] = {"subgrad": subgrad, "closure": lambda: case.loss(case.original(x))}
    exec(STRONG, given)
    (found,) = torch.autograd.grad(given["loss"], x)
    expected = slopes(lambda x: case.loss(case.original(x)), case.at)
    assert torch.allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_a_line_of_an_installed_package_is_not_to_be_written_in_another_way() -> None:
    def advice(file: str) -> list[str]:
        line = Line(Site(file, 3, "f", "y = x.sqrt()"), "sqrt", inputs=(("self", "0"),))
        mask = Line(Site("/home/me/train.py", 4, "f", "torch.where(x > 0, y, 0.0)"), "where")
        found = Nonfinite(0, "slope", "NaN", mask.site, (), line=line, mask=mask, cotangent="0", gradient="nan")
        return [each.code for each in of(found, ())]

    assert "torch.sqrt(inside)" in advice("/home/me/train.py")[0]
    assert advice("/usr/lib/python3/site-packages/package/file.py") == [STRONG]
