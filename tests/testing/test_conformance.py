"""The conformance pack: torch itself passes it, planted errors are named, and the runner needs Python alone."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from recorded_frameworks import answers
from torch import Tensor

import subgrad
from subgrad.conventions import RULES
from subgrad.kinks.frameworks import FRAMEWORKS, LEFT_TO_TORCH
from subgrad.kinks.overloads import overload
from subgrad.survey.frameworks import cases as survey_cases
from subgrad.testing import conformance_pack as pack
from subgrad.testing.conformance_pack import Case, cases, conformance, conventions
from subgrad.torch_internals import versions

ENTRYWISE = ("relu", "relu6", "clamp", "abs", "hardtanh", "maximum", "leaky_relu", "hardswish")


def torchs(case: Case, call: Callable[..., Any] | None = None) -> tuple[Tensor, Mapping[str, Tensor]]:
    """The backend that is torch, under whatever convention is in force."""
    is_tensor = {name: name in case.tensors and each is not None for name, each in case.arguments.items()}
    arguments = {name: torch.tensor(each) if is_tensor[name] else each for name, each in case.arguments.items()}
    leaves = {name: arguments[name].requires_grad_() for name in case.differentiated}
    cotangent = torch.tensor(case.cotangent)
    out = (call or overload(case.overload.removeprefix("aten::")))(**{**arguments, **leaves})
    if not isinstance(out, Tensor):
        out = next(each for each in out if each.shape == cotangent.shape and each.is_floating_point())
    gradients = torch.autograd.grad(out, list(leaves.values()), cotangent, materialize_grads=True)
    return out.detach(), dict(zip(leaves, gradients, strict=True))


@pytest.mark.parametrize("convention", conventions())
def test_torch_under_a_convention_passes(convention: str) -> None:
    if convention == "pass-through" and versions.COLUMN == "2.13":
        pytest.skip("away from the bounds of clamp it is as the installed torch, and the pack was made by a newer one")

    def run(case: Case) -> Any:
        if case.operator == "aminmax" and torch.__version__ < "2.13":  # torch itself cannot differentiate it there
            raise NotImplementedError
        with subgrad.use(convention):
            return torchs(case)

    found = conformance(run, convention)
    assert not found.died
    assert all(failure.is_beyond for failure in found.failures), str(found)  # at nan torch is the installed one
    judged = [case for case in cases() if convention in case.gradients and case.operator not in found.lacking]
    assert found.passed + found.failed == len(judged) > 50


def planted(name: str, wrong: Callable[..., Any]) -> Any:
    with subgrad.use("torch-2.14"):
        return conformance(lambda case: torchs(case, wrong), "torch-2.14", operators=[name])


class Bounded(torch.autograd.Function):
    """A clamp whose derivative is 1 between two numbers, the upper one included."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, low: float, high: float, below: float, above: float) -> Tensor:
        ctx.save_for_backward((x > below) & (x <= above))
        return x.clamp(low, high)

    @staticmethod
    def backward(ctx: Any, cotangent: Tensor) -> Any:
        (mask,) = ctx.saved_tensors
        return cotangent * mask, None, None, None, None


def test_relu6_that_passes_the_gradient_at_6_is_named() -> None:
    found = planted("relu6", lambda self: Bounded.apply(self, 0, 6, 0, 6))
    assert not found
    assert [str(failure) for failure in found.failures if not failure.is_beyond] == [
        "relu6() at 6, entry 4: the gradient of self is -0.5, not 0, another element of [0, 1] at self == 6"
    ]
    assert found.agrees["relu6"] == ("left",)


def test_inverted_bounds_of_a_clamp_are_named() -> None:
    def inverted(self: Tensor, min: Any = None, max: Any = None) -> Tensor:
        if isinstance(min, Tensor) or isinstance(max, Tensor) or min is None or max is None:
            return torch.clamp(self, min, max)
        return Bounded.apply(self, min, max, *sorted((min, max)))

    found = planted("clamp", inverted)
    wrong = [str(failure) for failure in found.failures if str(failure.case) == "clamp(min=1.0, max=-1.0)"]
    assert wrong
    assert all("away from kinks" in each for each in wrong)


def test_what_no_convention_returns_is_told_from_another_choice() -> None:
    (failure,) = (
        each for each in planted("hardswish", lambda self: at_three(self, 4.0)).failures if not each.is_beyond
    )
    assert str(failure).endswith("the gradient of self is -2, not -0.5, no element of [1, 1.5] at self == 3")


def at_three(x: Tensor, slope: float) -> Tensor:
    return torch.nn.functional.hardswish(torch.where(x == 3, x.detach(), x)) + torch.where(x == 3, slope * (x - 3), 0)


def test_a_derivative_that_drops_its_cotangent_is_caught() -> None:
    def run(case: Case) -> Any:
        value, gradients = torchs(case)
        return value, {name: torch.ones_like(each) for name, each in gradients.items()}

    assert {failure.case.operator for failure in conformance(run, operators=ENTRYWISE).failures} == set(ENTRYWISE)


def test_values_are_held_against_torchs() -> None:
    found = conformance(lambda case: (torchs(case)[0] + 1, torchs(case)[1]), operators=["relu"])
    assert "the value is 1.25, not 0.25" in str(found)


def test_what_a_backend_lacks_and_what_dies_is_told() -> None:
    def run(case: Case) -> Any:
        if case.operator == "relu":
            raise NotImplementedError
        raise ZeroDivisionError("no such thing")

    found = conformance(run, operators=["relu", "abs"])
    assert found.lacking == ("relu",)
    assert [said for _, said in found.died] == ["ZeroDivisionError: no such thing"]
    assert not found


def test_entries_that_are_missing_are_an_error() -> None:
    with pytest.raises(ValueError, match="8 entries of self, where 9 belong"):
        conformance(lambda case: (case.value, {"self": case.value[:-1]}), operators=["relu"])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"convention": "torch-1.0"}, "no gradients under 'torch-1.0': the pack has torch-2.13, torch-2.14"),
        ({"operators": ["relo"]}, "no cases of relo: the pack has relu, abs"),
    ],
)
def test_bad_input_is_told(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        conformance(torchs, **options)


@pytest.mark.compiled
def test_inductor_passes() -> None:
    def run(case: Case) -> Any:
        torch.compiler.reset()
        return torchs(case, torch.compile(overload(case.overload.removeprefix("aten::"))))

    with subgrad.use("torch-2.13"):
        found = conformance(run, "torch-2.13", operators=["aten::clamp_min", "relu6"])
    assert found, str(found)
    assert found.passed == 3


def test_the_runner_needs_python_alone(tmp_path: Path) -> None:
    folder = Path(pack.__file__).parent
    for name in ("conformance_pack.py", "conformance_pack.json"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    program = (
        "import sys, conformance_pack as c\n"
        "found = c.conformance(lambda case: (case.value, case.gradients['torch-2.14']))\n"
        "assert found and found.passed > 100, str(found)\n"
        "assert not {'torch', 'numpy', 'subgrad'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-S", "-c", program], cwd=tmp_path, check=True)


def test_the_pack_holds_every_operator_with_a_choice_but_those_left_out() -> None:
    kinked = {kink.name for kink in subgrad.kinks if not str(kink.set).startswith("none")}
    left_out = {"fractional_max_pool2d", "fractional_max_pool3d", "embedding_bag", "segment_reduce"}
    spectra = {"linalg_svdvals", "linalg_eigvalsh"}
    assert {case.operator for case in cases()} == kinked - left_out - spectra


def test_the_pack_holds_every_convention_but_the_installed_torch() -> None:
    """A new convention has no column until scripts/conformance_pack.py is run again."""
    assert set(conventions()) == {name for name in RULES if not subgrad.Convention(name).surrogate} - {"torch"}
    given = Counter(name for case in cases() for name in case.gradients)
    assert all(given[name] > 50 for name in conventions()), given


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_what_a_framework_returned_passes_its_own_column_but_for_what_is_listed(framework: str) -> None:
    recorded = {_key(case): found for case, found in zip(survey_cases(), answers(framework).cases, strict=True)}

    def run(case: Case) -> Any:
        returned = next(iter(recorded[_key(vars(case))].values()), None)
        if returned is None or returned.reverse is None:
            raise NotImplementedError
        return case.value, returned.reverse

    found = conformance(run, framework)
    assert not found.died
    wrong = {failure.case.operator for failure in found.failures if not failure.is_beyond}
    assert wrong <= set(LEFT_TO_TORCH[framework]), str(found)
    judged = {case.operator for case in cases() if framework in case.gradients} - set(found.lacking)
    assert len(judged) >= 30
    assert {name for name in judged if framework not in found.agrees[name]} == wrong


def _key(case: Mapping[str, Any]) -> str:
    return repr((case["overload"], case["arguments"]))


def test_a_case_reads_as_its_call() -> None:
    case = next(cases(["clamp"]))
    assert str(case) == "clamp(min=0, max=6)"
    assert str(replace(case, arguments={**case.arguments, "max": None})) == "clamp(min=0)"
