"""PyTorch's own operator database as a test suite: what passes without us passes under a convention.

All covered entries: the forward of all samples, and the gradient checks of the smallest, within the bounds below.
`scripts/database.py` does both for all of them.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import patch

import pytest
import torch
from entries import CHECKED, Case, all_cases, cases, covered, database, smallest
from met import forms, meeting
from regressions import CHECKS, CONVENTIONS, Verdict, baseline, counted, outcomes
from torch import Tensor
from torch.overrides import TorchFunctionMode

import subgrad
from subgrad.kinks import KINKS
from subgrad.kinks.sets import Pole

SAMPLES = 1  # for each way in which an entry meets the table
LARGEST = 100_000  # numbers in a sample; only grid_sampler_3d has larger ones
OTHERS = 200  # samples in float32 and bfloat16; only pools, some norms and one loss have more
QUICK = tuple(check for check in CHECKS if "strided" not in check.name)

pytestmark = pytest.mark.filterwarnings("ignore")  # torch's, about what it is about to change


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Samples are so small that threads only wait for each other, and that the stack trace of a seed takes longer."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with patch("torch.manual_seed", torch.default_generator.manual_seed):
        yield
    torch.set_num_threads(threads)


# At an infinite slope there is nothing to choose, so that no convention has a kernel for it.
CHOSEN = list(dict.fromkeys(kink.op for kink in KINKS if not isinstance(kink.set, Pole)))


def entries_of(op: str) -> list[str]:
    """The covered entries, each at that overload of those it calls that the fewest others call."""
    callers = Counter(each for met in covered().values() for each in met.overloads)
    order = {each: (callers[each], position) for position, each in enumerate(CHOSEN)}
    called = {name: [each for each in met.overloads if each in order] for name, met in covered().items()}
    return [name for name, some in called.items() if some and min(some, key=order.__getitem__) == op]


def is_in_bounds(case: Case) -> bool:
    return case.size <= LARGEST and (case.dtype is CHECKED or case.index < OTHERS)


@pytest.mark.parametrize("op", CHOSEN)
def test_what_passes_without_us_passes_under_a_convention(op: str, record_property: Callable[..., None]) -> None:
    names = entries_of(op)
    if not names:
        pytest.skip("no entry of torch's database is left to it: none calls it, or all call a rarer one too")
    found = []
    for name in names:
        bounded = [case for case in all_cases(name) if is_in_bounds(case)]
        checked = {str(case) for case in smallest(bounded, SAMPLES)}
        for case in bounded:
            native = baseline(case, QUICK if str(case) in checked else ())
            found += native.outcomes()
            found += [each for convention in CONVENTIONS for each in outcomes(case, native, convention)]
    record_property("database", json.dumps(counted(found)))
    regressions = [str(each) for each in found if each.verdict is Verdict.REGRESSION]
    assert not regressions, "\n".join(regressions)


# The suite can fail: mistakes planted in abs, beside its kink and on it.


class Planted(TorchFunctionMode):
    """Something else than `torch.abs` returns, made of its input and its result."""

    def __init__(self, mistake: Callable[[Tensor, Tensor], Tensor]):
        super().__init__()
        self.mistake = mistake

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **kwargs or {})
        return self.mistake(args[0], result) if function is torch.abs else result


class Unbatched(torch.autograd.Function):
    """The identity, with a backward that looks at numbers, which no batched gradient can."""

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None: ...

    @staticmethod
    def backward(ctx: Any, cotangent: Tensor) -> Tensor:
        return cotangent * 2 if cotangent.flatten()[0].item() == float("inf") else cotangent.clone()

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor) -> Tensor:
        return tangent.clone()


def nothing(x: Tensor, result: Tensor) -> Tensor:
    return result


def another_bit(x: Tensor, result: Tensor) -> Tensor:
    with torch.no_grad():
        result.view(torch.int64).bitwise_xor_(1)
    return result


def other_strides(x: Tensor, result: Tensor) -> Tensor:
    return result.t().contiguous().t()


def an_overwritten_input(x: Tensor, result: Tensor) -> Tensor:
    with torch.no_grad():
        x.add_(1)
    return result


def another_slope(x: Tensor, result: Tensor) -> Tensor:
    return result + 0.1 * (x - x.detach())


def another_curvature(x: Tensor, result: Tensor) -> Tensor:
    return result + 0.1 * (x - x.detach()) ** 2


def no_batching(x: Tensor, result: Tensor) -> Tensor:
    return Unbatched.apply(result)


FIRST = {"gradcheck", "batched gradients", "forward mode", "batched forward mode"}
SECOND = {"gradgradcheck", "batched gradgradcheck", "forward over reverse"}


def abs_at(*numbers: float) -> Case:
    from torch.testing._internal.opinfo.core import SampleInput

    input = torch.tensor(numbers, dtype=torch.float64).reshape(-1, 2).requires_grad_()
    return Case(database()["abs"], False, torch.float64, 0, SampleInput(input))


def found_under(context: Callable[[], Any], case: Case) -> dict[Verdict, set[str]]:
    found: dict[Verdict, set[str]] = {verdict: set() for verdict in Verdict}
    for each in outcomes(case, baseline(case, QUICK), "planted", context):
        found[each.verdict].add(each.check)
    return found


@pytest.mark.parametrize(
    ("mistake", "caught"),
    [
        (nothing, set()),
        (another_bit, {"forward"}),
        (other_strides, {"forward"}),
        (an_overwritten_input, {"forward"}),
        (another_slope, FIRST),
        (another_curvature, SECOND),
        (no_batching, {"batched gradients"}),
    ],
)
def test_a_planted_mistake_is_a_regression(mistake: Callable[..., Tensor], caught: set[str]) -> None:
    found = found_under(lambda: Planted(mistake), abs_at(-1.5, 0.25, 2.0, -0.5, 0.75, 1.25))
    # An overwritten input spoils whatever comes after it.
    others = set() if mistake is an_overwritten_input else {"forward", *FIRST, *SECOND} - caught
    assert found[Verdict.REGRESSION] >= caught
    assert found[Verdict.PASSED] >= others


def test_another_element_on_a_kink_is_counted_as_that() -> None:
    # The central difference at 0 is 0, as torch's slope, and not 1.
    found = found_under(lambda: subgrad.use("right"), abs_at(-1.5, 0.0))
    assert found[Verdict.ON_A_KINK] == FIRST
    assert found[Verdict.PASSED] == {"forward"}
    assert not found[Verdict.REGRESSION]


@pytest.mark.parametrize(
    ("mistake", "caught"),
    [(another_bit, "forward"), (no_batching, "batched gradients"), (lambda x, result: result / 0, "gradcheck")],
    ids=["another bit", "no batching", "nan"],
)
def test_a_kink_excuses_nothing_else(mistake: Callable[..., Tensor], caught: str) -> None:
    def slope_and_mistake(x: Tensor, result: Tensor) -> Tensor:
        return mistake(x, another_slope(x, result))

    assert caught in found_under(lambda: Planted(slope_and_mistake), abs_at(-1.5, 0.0))[Verdict.REGRESSION]


# What is covered.


def test_an_entry_is_covered_if_its_forward_calls_what_the_table_has() -> None:
    assert "relu" in covered()["nn_functional_relu"].overloads
    assert "clamp_min" in covered()["nn_functional_triplet_margin_loss"].overloads
    assert "exp" not in covered()


def test_the_table_can_be_asked_at_every_sample() -> None:
    unanswered = [f"{name}: {place}" for name, met in covered().items() for place in met.unanswered]
    assert not unanswered, "\n".join(unanswered)


def test_the_forms_of_an_overload_are_its_own() -> None:
    assert forms("clamp.Tensor") == ("clamp.Tensor", "clamp.Tensor_out", "clamp_.Tensor")
    assert all(op in forms(op) for op in KINKS.overloads)


def test_in_place_calls_and_hits_are_met() -> None:
    with meeting() as met:
        torch.zeros(2, requires_grad=True).clone().relu_()
        torch.ones(2, requires_grad=True).abs()
    assert {"relu", "abs"} <= met.overloads
    assert met.hits == {"relu at self == 0"}


def test_a_hit_below_autograd_is_none() -> None:
    with meeting() as met, torch._C._AutoDispatchBelowADInplaceOrView():
        torch.zeros(2).relu()
    assert "relu" in met.overloads
    assert not met.hits


def test_samples_are_the_same_every_time() -> None:
    one, other = cases("clamp"), cases("clamp")
    assert [str(case) for case in one] == [str(case) for case in other]
    for case, again in zip(one, other, strict=True):
        torch.testing.assert_close(case.tensors, again.tensors, rtol=0, atol=0, equal_nan=True)


def test_listening_leaves_conventions_as_they_are() -> None:
    x = torch.zeros(1, requires_grad=True)
    with meeting(), subgrad.use("right"):
        (slope,) = torch.autograd.grad(torch.relu(x), x)
    assert slope.item() == 1
