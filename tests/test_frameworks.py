"""`jax`, `tensorflow`, `mlx` and `paddle` against what the real frameworks returned, as it was recorded."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from math import inf
from typing import Any, NamedTuple

import pytest
import torch
import torch.nn.functional as F
from recorded_frameworks import answers, record
from torch import Tensor

import subgrad
from subgrad import Convention, kinks, use
from subgrad.kinks import KINKS
from subgrad.kinks.frameworks import ALL, FRAMEWORKS, LEFT_TO_TORCH, SPELLINGS, pick
from subgrad.kinks.overloads import overload
from subgrad.kinks.sets import OTHERS, Joint, Jump
from subgrad.survey.frameworks import Case, Returned, cases, chosen, signature

every_framework = pytest.mark.parametrize("framework", FRAMEWORKS)
UNDERIVED = {"aminmax"} if torch.__version__ < "2.13" else set()  # what the installed torch has no derivative of
CLOSE = {"rtol": 1e-5, "atol": 1e-6, "equal_nan": True}


def torchs(case: Case) -> tuple[Tensor, dict[str, Tensor]]:
    """The value of a case, and its gradients under the convention in force."""
    is_tensor = {name: name in case["tensors"] and each is not None for name, each in case["arguments"].items()}
    arguments = {name: torch.tensor(each) if is_tensor[name] else each for name, each in case["arguments"].items()}
    leaves = {name: arguments[name].requires_grad_() for name in case["differentiated"]}
    cotangent = torch.tensor(case["cotangent"])
    out = overload(case["overload"].removeprefix("aten::"))(**{**arguments, **leaves})
    if not isinstance(out, Tensor):
        out = next(each for each in out if each.shape == cotangent.shape and each.is_floating_point())
    found = torch.autograd.grad(out, list(leaves.values()), cotangent, materialize_grads=True)
    return out.detach(), dict(zip(leaves, found, strict=True))


class Gap(NamedTuple):
    """A number that is not what the framework returned."""

    operator: str
    point: float | None
    found: float
    returned: float


def gaps(framework: str, convention: str) -> Iterator[Gap]:
    """At every case that the framework has, in the spelling that its convention follows."""
    for case, spellings in zip(cases(), answers(framework).cases, strict=True):
        if case["overload"] is None or not spellings or case["operator"] in UNDERIVED:
            continue
        returned = next(iter(spellings.values()))
        if returned.failed is None:
            with use(convention):
                found = torchs(case)[1]
            yield from _gaps(case, returned, found)


def _gaps(case: Case, returned: Returned, found: Mapping[str, Tensor]) -> Iterator[Gap]:
    assert returned.reverse is not None
    points = torch.tensor(case["arguments"].get("self", 0.0))
    for name, gradient in found.items():
        wanted = torch.tensor(returned.reverse[name], dtype=gradient.dtype)
        wrong = ~torch.isclose(gradient, wanted, **CLOSE)
        for entry in wrong.nonzero().tolist():
            at = tuple(entry)
            point = float(points[at]) if points.shape == wrong.shape else None
            yield Gap(case["operator"], point, float(gradient[at]), float(wanted[at]))


@cache
def all_gaps(framework: str) -> tuple[Gap, ...]:
    return tuple(gaps(framework, framework))


def is_finite(gap: Gap) -> bool:
    return gap.point is None or math.isfinite(gap.point)


@every_framework
def test_every_finite_sample_has_the_gradient_of_the_framework_but_for_what_is_listed(framework: str) -> None:
    wrong = {gap.operator for gap in all_gaps(framework) if is_finite(gap)}
    assert wrong <= set(LEFT_TO_TORCH[framework]), [gap for gap in all_gaps(framework) if is_finite(gap)]


@every_framework
def test_what_is_listed_differs_indeed(framework: str) -> None:
    wrong = {gap.operator for gap in all_gaps(framework) if is_finite(gap)}
    assert set(LEFT_TO_TORCH[framework]) == wrong


@every_framework
def test_what_a_framework_has_in_the_table_is_compared(framework: str) -> None:
    """No row rests on a guess: a spelling was recorded for its operator."""
    recorded = {case["operator"] for case, found in zip(cases(), answers(framework).cases, strict=True) if found}
    named = {kink.name for kink in KINKS if not isinstance(kink.set, Jump) and pick(kink, framework) is not None}
    assert named <= recorded
    assert len(named) > 35


@every_framework
def test_another_convention_is_noticed(framework: str) -> None:
    """The comparison can fail: with the least elements it does."""
    wrong = {gap.operator for gap in gaps(framework, "min-norm") if is_finite(gap)}
    assert len(wrong - set(LEFT_TO_TORCH[framework])) > 8


@every_framework
def test_values_are_those_of_torch_at_finite_numbers(framework: str) -> None:
    """The spellings are the same mathematical operation."""
    others = set()
    for case, spellings in zip(cases(), answers(framework).cases, strict=True):
        points = torch.tensor(case["arguments"].get("self", case["value"]), dtype=torch.float32)
        wanted = torch.tensor(case["value"])
        finite = points.isfinite() if points.shape == wanted.shape else torch.ones_like(wanted, dtype=torch.bool)
        for name, returned in spellings.items():
            if returned.failed is None:
                same = torch.isclose(torch.tensor(returned.value, dtype=wanted.dtype), wanted, **CLOSE)
                others |= {name} if bool((finite & ~same).any()) else set()
    assert others == OTHER_FUNCTIONS[framework]


OTHER_FUNCTIONS = {
    "jax": set(),
    "tensorflow": {"tf.clip_by_value", "keras.ops.clip"},  # with bounds in the wrong order
    "mlx": {"nn.leaky_relu"},
    "paddle": {"paddle.logsumexp", "paddle.renorm"},  # nan where all entries are -inf
}


@pytest.mark.parametrize("framework", ["torch", *FRAMEWORKS, "tinygrad", "autograd"])
def test_the_record_is_of_these_cases(framework: str) -> None:
    assert [row["of"] for row in record(framework)["cases"]] == [signature(case) for case in cases()]


def test_every_row_describes_a_kink() -> None:
    assert [row for row in ALL if not any(row.describes(kink) for kink in KINKS)] == []


def test_every_kink_with_a_set_that_has_a_row_says_something_that_can_be_done() -> None:
    known = {"left", "right", "mean", "sum", "least", "one", *OTHERS}
    for kink in KINKS:
        for framework in FRAMEWORKS:
            picked = pick(kink, framework)
            if isinstance(picked, str):
                assert picked in known
                assert isinstance(kink.set, Joint) == (picked in ("least", "one", *OTHERS)) or picked == "right"


ZEROS = torch.zeros(2, 2, dtype=torch.float64)
EQUAL = torch.ones(2, 2, dtype=torch.float64)
MODES_OF: dict[str, tuple[Callable[[Tensor], Tensor], Tensor]] = {
    "clamp": (lambda x: x.clamp(-1, 1), EQUAL),
    "clamp, equal bounds": (lambda x: x.clamp(1, 1), EQUAL),
    "celu": (F.celu, ZEROS),
    "prelu": (lambda x: F.prelu(x, torch.full((2,), 0.25, dtype=torch.float64)), ZEROS),
    "maximum": (lambda x: torch.maximum(x, x.detach()), EQUAL),
    "hypot": (lambda x: torch.hypot(x, x), ZEROS),
    "vector_norm": (lambda x: torch.linalg.vector_norm(x, dim=1), ZEROS),
    "vector_norm, 1": (lambda x: torch.linalg.vector_norm(x, 1, dim=1, keepdim=True), ZEROS),
    "vector_norm, inf": (lambda x: torch.linalg.vector_norm(x, inf, dim=(0, 1)), EQUAL),
    "norm": (lambda x: x.norm(), ZEROS),
    "dist": (lambda x: torch.dist(x, torch.zeros(1, 2, dtype=torch.float64)), ZEROS),
    "cdist": (lambda x: torch.cdist(x, torch.zeros(3, 2, dtype=torch.float64)), ZEROS),
    "std": (lambda x: x.std(1), EQUAL),
    "std_mean": (lambda x: torch.stack(torch.std_mean(x, 1)), EQUAL),
    "max": (lambda x: x.max(1).values, EQUAL),
}


def in_reverse(f: Callable[[Tensor], Tensor], x: Tensor, cotangent: Tensor) -> Tensor:
    x = x.clone().requires_grad_()
    return torch.autograd.grad(f(x), x, cotangent)[0]


def transformed(f: Callable[[Tensor], Tensor], x: Tensor, cotangent: Tensor) -> Tensor:
    return torch.func.grad(lambda x: (f(x) * cotangent).sum())(x)


def by_rows_of_cotangents(f: Callable[[Tensor], Tensor], x: Tensor, cotangent: Tensor) -> Tensor:
    _, pull = torch.func.vjp(f, x)
    return torch.func.vmap(lambda each: pull(each)[0])(torch.stack([cotangent, 2 * cotangent]))[0]


def compiled(f: Callable[[Tensor], Tensor], x: Tensor, cotangent: Tensor) -> Tensor:
    torch._dynamo.reset()
    return in_reverse(torch.compile(f, fullgraph=True, backend="aot_eager"), x, cotangent)


def forward_mode(f: Callable[[Tensor], Tensor], x: Tensor, cotangent: Tensor) -> Tensor:
    entries = torch.eye(x.numel(), dtype=x.dtype).reshape(-1, *x.shape)
    rows = [(torch.func.jvp(f, (x,), (each,))[1] * cotangent).sum() for each in entries]
    return torch.stack(rows).reshape(x.shape)


class TestModes:
    """One element in every mode, nan and what is outside of the set included."""

    @pytest.mark.parametrize("mode", [transformed, by_rows_of_cotangents])
    @pytest.mark.parametrize("name", MODES_OF)
    @every_framework
    def test_agree_with_reverse_mode(self, framework: str, name: str, mode: Any) -> None:
        f, x = MODES_OF[name]
        with use(framework):
            cotangent = _cotangent(f(x))
            torch.testing.assert_close(mode(f, x, cotangent), in_reverse(f, x, cotangent), equal_nan=True)

    @pytest.mark.parametrize("name", [name for name in MODES_OF if name != "cdist"])  # has no forward mode in torch
    @every_framework
    def test_forward_agrees_with_reverse_mode(self, framework: str, name: str) -> None:
        f, x = MODES_OF[name]
        with use(framework):
            cotangent = _cotangent(f(x))
            wanted = in_reverse(f, x, cotangent)
            found = forward_mode(f, x, cotangent)
        if wanted.isnan().any():  # elsewhere 0 times nan is nan, too
            assert torch.equal(found.isnan(), wanted.isnan())
        else:
            torch.testing.assert_close(found, wanted)

    @pytest.mark.compiled
    @pytest.mark.parametrize("name", MODES_OF)
    @every_framework
    def test_compiled_agrees_with_eager(self, framework: str, name: str) -> None:
        f, x = MODES_OF[name]
        with use(framework):
            cotangent = _cotangent(f(x))
            torch.testing.assert_close(compiled(f, x, cotangent), in_reverse(f, x, cotangent), equal_nan=True)

    @pytest.mark.parametrize("name", MODES_OF)
    @every_framework
    def test_values_are_torchs_to_the_bit(self, framework: str, name: str) -> None:
        f, x = MODES_OF[name]
        with use(framework):
            found = f(x.clone().requires_grad_())
        assert torch.equal(found, f(x))
        assert torch.equal(found.signbit(), f(x).signbit())

    @pytest.mark.parametrize("name", ["hypot", "vector_norm", "norm", "dist", "cdist", "std", "std_mean"])
    @every_framework
    def test_strong_zeros_make_0_of_what_is_dead(self, framework: str, name: str) -> None:
        f, x = MODES_OF[name]
        with use(framework, strong_zero=True):
            dead = in_reverse(f, x, torch.zeros_like(f(x)))
            live = in_reverse(f, x, _cotangent(f(x)))
        assert dead.tolist() == [[0.0, 0.0], [0.0, 0.0]]
        with use(framework):
            torch.testing.assert_close(live, in_reverse(f, x, _cotangent(f(x))), equal_nan=True)

    def test_without_strong_zeros_nan_is_what_jax_returns_for_what_is_dead(self) -> None:
        f, x = MODES_OF["vector_norm"]
        with use("jax"):
            assert in_reverse(f, x, torch.tensor([0.0, 2.0], dtype=x.dtype)).isnan().all()
        with use("tensorflow"):
            found = in_reverse(f, x, torch.tensor([0.0, 2.0], dtype=x.dtype))
        assert found.isnan().tolist() == [[False, False], [True, True]]


class TestLayouts:
    """What is not a plain vector of doubles."""

    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
    def test_single_and_half_precision(self, dtype: torch.dtype) -> None:
        x = torch.zeros(3, dtype=dtype, requires_grad=True)
        with use("jax"):
            value = torch.linalg.vector_norm(x, 1)
        (found,) = torch.autograd.grad(value, x, torch.tensor(-2.0, dtype=dtype))
        assert (found.dtype, found.tolist()) == (dtype, [-2.0, -2.0, -2.0])

    def test_a_result_of_another_dtype(self) -> None:
        x = torch.zeros(2, 2, requires_grad=True)
        with use("jax"):
            value = torch.linalg.vector_norm(x, 1, dim=(0, 1), dtype=torch.float64)
        assert value.dtype == torch.float64
        assert torch.autograd.grad(value, x, torch.tensor(-2.0, dtype=torch.float64))[0].tolist() == [[-2.0] * 2] * 2

    def test_numbers_and_nothing(self) -> None:
        x, empty = torch.tensor(0.0, requires_grad=True), torch.zeros(0, 3, requires_grad=True)
        with use("jax"):
            assert torch.autograd.grad(torch.linalg.vector_norm(x, 1), x, torch.tensor(3.0))[0] == 3
            assert torch.autograd.grad(torch.linalg.vector_norm(x), x)[0].isnan()
            assert torch.autograd.grad(torch.linalg.vector_norm(empty), empty)[0].shape == (0, 3)
            assert torch.autograd.grad(torch.linalg.vector_norm(empty, dim=1).sum(), empty)[0].shape == (0, 3)

    def test_complex_tensors_keep_torchs_own_gradient(self) -> None:
        x = torch.zeros(2, dtype=torch.complex128, requires_grad=True)
        with use("jax"):
            assert torch.autograd.grad(torch.linalg.vector_norm(x), x)[0].tolist() == [0, 0]

    def test_away_from_kinks_second_derivatives_are_torchs(self) -> None:
        x = torch.tensor([[0.0, 0.0], [3.0, -4.0]], dtype=torch.float64)

        def of_second_row(x: Tensor) -> Tensor:
            return torch.linalg.vector_norm(x, dim=1)[1]

        plain = torch.func.hessian(of_second_row)(x)
        with use("tensorflow"):  # whose first row is dead, and 0
            found = torch.func.hessian(of_second_row)(x)
        torch.testing.assert_close(found[1, :, 1], plain[1, :, 1])


def _cotangent(out: Tensor) -> Tensor:
    return torch.linspace(-1.5, 2.25, out.numel(), dtype=out.dtype).reshape(out.shape)


class TestSpellings:
    """Where a framework differs with itself: the other spelling is had by what `SPELLINGS` says."""

    OTHERS = (
        ("jax", "relu", "jnp.maximum(x, 0)", {"relu": "mean"}),
        ("jax", "clamp", "lax.clamp", {"clamp": "min-norm"}),
        ("jax", "hardtanh", "jnp.clip", {"hardtanh": "mean"}),
        ("jax", "maximum", "jnp.where(x > y, x, y)", {"maximum": 0.0}),
        ("jax", "hypot", "jnp.sqrt(x * x + y * y)", {"hypot": "paddle"}),
        ("jax", "max", "x[jnp.argmax(x)]", {"max": "torch"}),
        ("tensorflow", "relu", "tf.maximum(x, 0)", {"relu": 1.0}),
        ("paddle", "relu", "paddle.maximum(x, 0)", {"relu": "mean"}),
        ("paddle", "clamp", "paddle.minimum(paddle.maximum)", {"clamp": "jax"}),
        ("paddle", "clamp_min", "paddle.maximum", {"clamp_min": "mean"}),
        ("paddle", "clamp_max", "paddle.minimum", {"clamp_max": "mean"}),
        ("paddle", "hardtanh", "paddle.clip", {"hardtanh": "tensorflow"}),
    )

    @pytest.mark.parametrize(("framework", "operator", "spelling", "overrides"), OTHERS)
    def test_can_be_chosen(self, framework: str, operator: str, spelling: str, overrides: dict[str, Any]) -> None:
        """At every finite sample; but for jnp.clip with equal bounds, which gives 1/4 and has no name."""
        compared = 0
        for case, found in zip(cases(), answers(framework).cases, strict=True):
            is_whole_tensor = operator == "max" and case["overload"] == "aten::max"  # which shares, in every torch
            if case["operator"] != operator or spelling not in found or case["overload"] is None or is_whole_tensor:
                continue
            if case["arguments"].get("min_val") == case["arguments"].get("max_val") is not None:
                continue
            if spelling == "lax.clamp" and "min" in case["tensors"]:  # gives tensors as bounds nothing at all
                continue
            with use(Convention(framework, **overrides)):
                wrong = list(_gaps(case, found[spelling], torchs(case)[1]))
            assert [gap for gap in wrong if is_finite(gap)] == []
            compared += 1
        assert compared

    def test_of_the_list_are_all_here(self) -> None:
        listed = {(name, operator) for name, by in SPELLINGS.items() for operator, (_, other) in by.items() if other}
        assert listed == {(framework, operator) for framework, operator, *_ in self.OTHERS}


def test_the_survey_knows_the_operators_by_name_and_overload() -> None:
    assert {case["operator"] for case in chosen(["clamp"])} == {"clamp"}
    assert {case["overload"] for case in chosen(["clamp.Tensor"])} == {"aten::clamp.Tensor"}
    assert subgrad.kinks is kinks
