"""The assertions: what each of them lets pass, and all that it says where it does not."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import subgrad
from subgrad.testing import (
    assert_convention,
    assert_finite_gradient,
    assert_in_subdifferential,
    assert_no_hits,
    assert_same_gradient,
)

X = torch.tensor([-1.0, 0.0, 2.0])


def clamped(x: Tensor) -> Tensor:
    return x.clamp(min=0)


def said(caught: Any) -> dict[str, str]:
    """A report as what each of its lines says; the headline without a name."""
    first, *lines = str(caught.value).splitlines()
    found, name = {"": first}, ""
    for line in lines:
        name = line[2:12].strip() or name
        found[name] = f"{found[name]}\n{line[14:]}" if name in found and not line[2:12].strip() else line[14:]
    return found


# Two spellings.


def test_two_spellings_that_differ_are_reported_in_full() -> None:
    with subgrad.use("torch-2.13"), pytest.raises(AssertionError) as caught:
        assert_same_gradient(torch.relu, clamped, X)
    report = said(caught)
    assert report[""] == "f and g return different gradients."
    assert (report["of"], report["point"], report["f"], report["g"]) == ("output[1]", "inputs[1] = 0", "(0)", "(1)")
    assert re.fullmatch(r"hull of \([01]\), \([01]\): both are in it", report["set"])
    ours, theirs = report["because of"].splitlines()
    assert re.match(r"f: test_assertions.py:\d+: relu at self == 0, where the set is \[0, 1\]: 1 of 3    ", ours)
    assert re.match(r"g: test_assertions.py:\d+: clamp at self == min, where the set is \[0, 1\]: 1 of 3    ", theirs)
    assert theirs.endswith("return x.clamp(min=0)")


@pytest.mark.parametrize("kink", [0.0, 0.25, -0.3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_kinks_near_the_inputs_are_looked_for(kink: float, dtype: torch.dtype) -> None:
    def f(x: Tensor) -> Tensor:
        return torch.relu(x - kink)

    x = torch.tensor([-0.7, 0.4], dtype=dtype)
    with subgrad.use("torch-2.13"):
        assert_same_gradient(f, lambda x: clamped(x - kink), x, near=0)
        with pytest.raises(AssertionError, match="a kink near the inputs that were given") as caught:
            assert_same_gradient(f, lambda x: clamped(x - kink), x)
    # To the floating-point number: the one that is named lies on it.
    number = float(re.search(r"inputs\[\d\] = (\S+)", str(caught.value))[1])  # type: ignore[index]
    assert torch.tensor(number, dtype=dtype) - kink == 0
    with subgrad.use("min-norm"):
        assert_same_gradient(f, lambda x: clamped(x - kink), x)


def test_ties_of_two_arguments_are_among_the_kinks_near() -> None:
    def spelled(x: Tensor, y: Tensor) -> Tensor:
        return torch.where(x >= y, x, y)

    given = (torch.tensor([0.5, -1.0]), torch.tensor([0.2, 2.0]))
    assert_same_gradient(torch.maximum, spelled, given, near=0.01)
    with pytest.raises(AssertionError, match="maximum at self == other"):
        assert_same_gradient(torch.maximum, spelled, given)


def test_values_that_differ_are_told_first_and_no_kink_answers_for_them() -> None:
    with pytest.raises(AssertionError) as caught:
        assert_same_gradient(torch.relu, lambda x: clamped(x) + 0.001, X)
    report = said(caught)
    assert report[""] == "f and g return different values."
    assert (report["f"], report["g"]) == ("0", "0.001")
    assert "because of" not in report
    with pytest.raises(AssertionError, match=r"f returns tensors of shapes \[\[3\]\], and g \[\[\]\]."):
        assert_same_gradient(torch.relu, lambda x: x.sum(), X)


def test_a_backward_that_squares_its_cotangent_is_not_the_same() -> None:
    class Squared(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x * 1

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            return grad * grad

    with pytest.raises(AssertionError, match="Squared, with a backward of its own"):
        assert_same_gradient(lambda x: x * 1, Squared.apply, X)


# One function.


def test_the_convention_that_is_missed_is_named_with_the_line() -> None:
    def f(x: Tensor) -> Tensor:
        return torch.clamp(x, 0, 2)

    with subgrad.use("torch-2.13"), pytest.raises(AssertionError) as caught:
        assert_convention(f, X, "min-norm")
    report = said(caught)
    assert report[""] == "The gradient is not that of min-norm; in force is torch-2.13."
    assert report["point"] == "inputs[1] = 0\ninputs[2] = 2"
    assert report["min-norm"] == "(0, 0)"
    assert re.match(r"test_assertions.py:\d+: clamp, 2 entries    return torch.clamp\(x, 0, 2\)", report["because of"])
    with subgrad.use("min-norm"):
        assert_convention(f, X, "min-norm")
        assert_convention(f, X, subgrad.Convention("min-norm"))
    with pytest.raises(ValueError, match="Did you mean 'min-norm'"):
        assert_convention(f, X, "min-nrm")


def test_one_entry_is_counted_as_one() -> None:
    with subgrad.use("torch-2.13"), pytest.raises(AssertionError, match="clamp, 1 entry    "):
        assert_convention(clamped, X, "min-norm")


def test_a_function_with_a_backward_of_its_own_is_not_taken_for_a_convention() -> None:
    class Own(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return torch.relu(x)

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            return grad * 0.5

    for check in (lambda: assert_convention(Own.apply, X, "min-norm"), lambda: assert_no_hits(Own.apply, X)):
        with pytest.raises(AssertionError, match="Own"):
            check()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_gradient_outside_of_the_set_is_told_with_what_the_values_say(dtype: torch.dtype) -> None:
    def identity(x: Tensor) -> Tensor:
        return torch.relu(x) - torch.relu(-x)

    with pytest.raises(AssertionError) as caught:
        assert_in_subdifferential(identity, X.to(dtype))
    report = said(caught)
    assert report[""] == "The gradient is not that of the values."
    assert (report["of"], report["returned"]) == ("output[1]", "(0)")
    assert report["values"].startswith("have the gradient (1), within ")
    assert "relu at self == 0, where the set is [0, 1]: 2 of 6" in report["because of"]
    with subgrad.use("mean"):
        assert_in_subdifferential(identity, X.to(dtype))


def test_every_kink_that_is_met_is_listed() -> None:
    def f(x: Tensor) -> Tensor:
        return torch.relu(x) + torch.where(x > 2, x, 2 * x)

    assert_no_hits(f, X + 0.5)
    with pytest.raises(AssertionError) as caught:
        assert_no_hits(f, X)
    report = said(caught)
    assert report[""] == "The function meets kinks here."
    assert re.search(r"relu at self == 0, where the set is \[0, 1\]: 1 of 3", report["because of"])
    assert re.search(r"gt at self == other: 1 of 3", report["because of"])
    assert_no_hits(lambda x: torch.where(x > 2, x, 2 * x), X, comparisons=False)


@pytest.mark.parametrize(
    ("f", "returned", "operator"),
    [
        (torch.sqrt, "(inf)", "SqrtBackward0"),
        (lambda x: torch.where(x > 0, x.sqrt(), 0.0), "(nan)", "SqrtBackward0"),
        (lambda x: x / x.norm(dim=0) * (x - x), "(nan)", "DivBackward0"),
    ],
)
def test_where_a_gradient_stops_being_finite_is_named(f: Any, returned: str, operator: str) -> None:
    with pytest.raises(AssertionError) as caught:
        assert_finite_gradient(f, torch.tensor([0.0]))
    report = said(caught)
    assert (report[""], report["point"]) == ("The gradient is not finite.", "inputs[0] = 0")
    assert report["returned"] in (returned, returned.replace("(", "(-"))
    assert operator in report["because of"]


def test_a_finite_gradient_passes() -> None:
    assert_finite_gradient(lambda x: x.norm(), torch.zeros(3))
    assert_finite_gradient(F.relu, X)
