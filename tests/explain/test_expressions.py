"""Expressions against Python's own evaluation of the same text, and mistakes at their places."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from subgrad.explain.evaluation import MOST_ENTRIES, Evaluation
from subgrad.explain.expression import Expression
from subgrad.explain.parsing import Mistake
from subgrad.explain.points import point

POINT = {
    "x": torch.tensor([0.0, -1.5, 2.0], dtype=torch.float64),
    "y": torch.tensor([1.0, 0.0, 2.0], dtype=torch.float64),
    "w": torch.tensor([[3.0, 2.0, 1.0], [1.0, 0.0, 2.0], [0.5, 0.25, 4.0]], dtype=torch.float64),
    "s": torch.tensor(0.5, dtype=torch.float64),
}
TEXTS = (
    "x", "-x", "+x", "x + y", "x - 2", "3 * x", "x / 4", "x ** 2", "2 ** x", "x // 2", "x % 2", "w @ x", "(x @ w) @ y",
    "-x ** 2", "2 ** 3 ** 0.5 * x", "(1 - 2) * x", "-3 // 2 * x", "7 % 4 * x", "torch.pi * x", "torch.e * x",
    "F.relu(x)", "torch.relu(x)", "x.relu()", "torch.nn.functional.relu(x)", "F.leaky_relu(x, 0.2)",
    "F.leaky_relu(x, negative_slope=0.2)", "torch.clamp(x, -1, 1)", "torch.clamp(x, min=0)", "x.clamp(max=y)",
    "torch.maximum(x, y)", "torch.maximum(x, torch.tensor(0.))", "torch.maximum(x, torch.tensor([0., 1, -2]))",
    "torch.where(x > 0, x, 0)", "torch.where((x > -2) & ~(x > 1), x, y)", "x * (x >= 0)", "(x == y) * x + (x != y) * y",
    "x if s > 0 else y", "x if x[0] > 0 else y", "x[0] if x[1] < y[1] else w[0, 1]", "x[1]", "x[-1]", "x[1:]", "x[::2]",
    "w[:, 1]", "w[..., 0]", "w[None, 1, :]", "w[1][2]", "w.T", "w.mT @ x", "w.T.mT", "w.max(dim=1).values",
    "torch.max(w, 1)[0]", "w.sort(dim=0, descending=True).values", "torch.topk(w, 2, dim=1).values.sum()",
    "w.amax(dim=(0, 1))", "w.sum(dim=0, keepdim=True)", "torch.stack([x, y], dim=1)", "torch.cat([x, y])",
    "torch.linalg.norm(w, ord='fro')", "w.norm(p=1)", "torch.linalg.svdvals(w)", "torch.linalg.vector_norm(x, ord=3)",
    "torch.special.xlogy(y, y)", "F.l1_loss(x, y, reduction='sum')", "F.softmax(w, dim=-1)",
    "F.gelu(x, approximate='tanh')",
    "((F.relu(x @ w) @ w - 1)**2).sum()", "torch.cdist(w, w, p=1.0)", "x.abs().sqrt()", "torch.hypot(x, y)",
    "w.reshape(-1)", "w.reshape((9,))", "w.flatten()[3:]", "torch.frexp(x).mantissa", "torch.aminmax(x).min",
    "torch.full_like(x, 2)", "torch.zeros_like(x) + x", "x.detach() * x", "torch.quantile(x, 0.5)",
    "torch.linalg.eigh(w + w.T).eigenvalues", "torch.linalg.slogdet(w).logabsdet",
    "F.cross_entropy(w, torch.tensor([0, 1, 2]))",
    "torch.scatter_reduce(x, 0, torch.tensor([0, 0, 1]), y, 'amax')", "1e400 * s", "x.true_divide(y + 1)", "True * x",
)  # fmt: skip


def value(text: str, inputs: dict[str, Tensor] = POINT) -> Tensor:
    return Evaluation(Expression.of(text, inputs), list(inputs)).first(*inputs.values())


def of_python(text: str) -> Tensor:
    """The same text, evaluated by Python where constants have the dtype of the inputs."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        found: Any = eval(text, {"torch": torch, "F": F}, dict(POINT))
    finally:
        torch.set_default_dtype(before)
    return found if found.ndim == 0 else found.sum()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("text", TEXTS)
def test_an_expression_has_the_value_that_python_gives_it(text: str) -> None:
    torch.testing.assert_close(value(text), of_python(text), rtol=0, atol=0, equal_nan=True)


def test_a_result_of_many_entries_is_summed_and_counted() -> None:
    evaluation = Evaluation(Expression.of("2 * w", POINT), list(POINT))
    assert float(evaluation.function(*POINT.values())) == float(2 * POINT["w"].sum())
    assert evaluation.entries == 9


def test_constants_have_the_dtype_that_is_asked_for() -> None:
    inputs = point(["x=1"], torch.bfloat16)
    found = Evaluation(Expression.of("x * torch.tensor(0.1)", inputs), ["x"], torch.bfloat16).first(*inputs.values())
    assert found.dtype == torch.bfloat16
    assert float(found) == float(torch.tensor(0.1, dtype=torch.bfloat16))


MISTAKES = {
    "x + z": ("'z' is not known here", "z"),
    "F.relu(x) + F.relo(x)": ("Did you mean 'F.relu'?", "F.relo"),
    "x.clampp(0)": ("Did you mean '.clamp'?", "clampp"),
    "x.relu": (".relu is a method: call it.", "relu"),
    "F.relu": ("F.relu is a function: call it.", "F.relu"),
    "x.__class__": (".__class__ cannot be used here", "__class__"),
    "0 < x < 1": ("One comparison at a time", "0 < x < 1"),
    "x and y": ("`and` and `or`", "x and y"),
    "not x": ("write ~", "not x"),
    "x + 'a'": ("'a' is no number", "'a'"),
    "torch.sum(x, 0, True)": ("Give True by its name", "True"),
    "x.norm('nux')": ("Did you mean 'nuc'?", "'nux'"),
    "x @ w + x @ s": ("RuntimeError", "x @ s"),
    "w.max(dim=1) + 1": ("several results", "w.max(dim=1) + 1"),
    "w.max(dim=1)": ("This is several results", "w.max(dim=1)"),
    "x > 0": ("torch.bool", "x > 0"),
    "2 * 3": ("plain number", "2 * 3"),
    "x if x > 0 else y": ("asks one number", "x > 0"),
    "x[x > 0]": ("Between brackets", "x > 0"),
    "x[5]": ("IndexError", "x[5]"),
    "w.sort().mantissa": ("There is no .mantissa here", "w.sort().mantissa"),
    "2 ** 0.5j": ("no number", "0.5j"),
    "(-1) ** 0.5 * x": ("no real number", "(-1) ** 0.5"),
    "x / (1 - 1) ** -1": ("0.0 cannot be raised", "(1 - 1) ** -1"),
    "x +": ("not an expression", ""),
}  # fmt: skip


@pytest.mark.parametrize("text", MISTAKES)
def test_a_mistake_says_what_and_where(text: str) -> None:
    said, place = MISTAKES[text]
    with pytest.raises(Mistake) as refused:
        value(text)
    assert said in refused.value.why
    assert text[refused.value.start : refused.value.end] == place or not place


def test_carets_stand_under_the_mistake() -> None:
    with pytest.raises(Mistake) as refused:
        value("F.relu(x) + F.relo(x)")
    _, text, carets = str(refused.value).splitlines()
    assert text[carets.index("^") : carets.rindex("^") + 1] == "F.relo"


def test_carets_stand_under_the_mistake_of_a_long_text() -> None:
    with pytest.raises(Mistake) as refused:
        value("x + " * 40 + "F.relo(x)" + " + x" * 20)
    _, text, carets = str(refused.value).splitlines()
    assert text[carets.index("^") : carets.rindex("^") + 1] == "F.relo"
    assert len(text) <= 80


def test_a_result_that_would_be_too_large_is_refused_before_it_is_made() -> None:
    inputs = {"x": torch.zeros(3000, dtype=torch.float64)}
    for text in ("x.reshape((3000, 1)) + x", "torch.outer(torch.cat([x, x]), x)", "F.pdist(torch.stack([x, x]))"):
        with pytest.raises(Mistake, match="too large"):
            value(text, inputs)
    assert value("x.reshape((300, 10)) + x[:10]", inputs).numel() == 1
    assert MOST_ENTRIES < 3000 * 3000


POINTS = {
    "x=0": 0.0,
    "x = -1.5": -1.5,
    "x=-0.0": -0.0,
    "x=inf": float("inf"),
    "x=-inf": float("-inf"),
    "x=1e-3": 1e-3,
    "x=[1, 2]": [1.0, 2.0],
    "x=[[3,2,1],[1,0,2]]": [[3.0, 2.0, 1.0], [1.0, 0.0, 2.0]],
    "x=(1, 2)": [1.0, 2.0],
    "x=[]": [],
}


@pytest.mark.parametrize("text", POINTS)
def test_a_point_is_what_is_written(text: str) -> None:
    found = point([text])["x"]
    assert found.dtype == torch.float64
    assert found.tolist() == POINTS[text]
    assert torch.signbit(found).tolist() == torch.signbit(torch.tensor(POINTS[text])).tolist()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x=[1, [2]]", "not of one length"),
        ("x=[[1, 2], [3]]", "not of one length"),
        ("x=1e999", "too large"),
        ("x=-[1]", "not for a list"),
        ("x='a'", "holds numbers"),
        ("x=1+1", "holds numbers"),
        ("x", "NAME=VALUE"),
    ],
)
def test_what_is_no_point_is_refused_in_words(text: str, said: str) -> None:
    with pytest.raises(Mistake, match=said):
        point([text])


def test_a_number_that_a_dtype_does_not_hold_is_refused() -> None:
    with pytest.raises(Mistake, match=r"torch\.float16 does not hold"):
        point(["x=1e6"], torch.float16)


def test_a_name_is_given_once() -> None:
    with pytest.raises(Mistake, match="given twice"):
        point(["x=1", "x=2"])
