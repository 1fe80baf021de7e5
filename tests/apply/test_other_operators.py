"""Operators that are not torch's: once they have rows, everything knows them. Held against their values nearby."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from added_rows import taken_out_again
from fresh import COMPILER, run_fresh
from torch import Tensor
from torch.func import grad, jvp, vmap

import subgrad
from subgrad import Convention, Kink, Slopes, Ties, add_operator
from subgrad.kinks import KINKS
from subgrad.kinks.samples import CALLS
from subgrad.kinks.sets import Ball, Joint
from subgrad.survey import survey

COTANGENT = torch.tensor([3.0, -0.5, 2.0, 1.5, -2.0], dtype=torch.float64)
STEP = 2.0**-20

# With `custom_op`: beyond its limit a parabola. Its own derivative passes at the limits.


@torch.library.custom_op("door::softclip", mutates_args=())
def softclip(x: Tensor, limit: float = 1.0) -> Tensor:
    beyond = (x.abs() - limit).clamp(min=0)
    return torch.where(beyond > 0, x.sign() * (limit + 0.25 * beyond**2), x + 0)


@softclip.register_fake
def _(x: Tensor, limit: float = 1.0) -> Tensor:
    return torch.empty_like(x)


def _setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(inputs[0])
    ctx.limit = inputs[1]


def _backward(ctx: Any, cotangent: Tensor) -> tuple[Tensor, None]:
    (x,) = ctx.saved_tensors
    beyond = x.abs() - ctx.limit
    return cotangent * torch.where(beyond > 0, 0.5 * beyond, 1), None


softclip.register_autograd(_backward, setup_context=_setup)

# With `define` and `impl`: a derivative made of torch's operators, one of an autograd.Function, and a composite.
LIBRARY = torch.library.Library("door", "FRAGMENT")
LIBRARY.define("bend(Tensor x, *, float slope=0.5) -> Tensor")
LIBRARY.define("larger(Tensor x, Tensor y, *, float lift=0.0) -> Tensor")
LIBRARY.define("hinge(Tensor x, float at) -> Tensor")


def _bend(x: Tensor, *, slope: float = 0.5) -> Tensor:
    return torch.where(x > 0, x, torch.sin(slope * x))


def _larger(x: Tensor, y: Tensor, *, lift: float = 0.0) -> Tensor:
    return torch.where(x >= y, x, y) + lift


class _Larger(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor, lift: float) -> Tensor:
        ctx.save_for_backward(x, y)
        with torch._C._AutoDispatchBelowAutograd():
            return torch.ops.door.larger(x, y, lift=lift)

    @staticmethod
    def backward(ctx: Any, cotangent: Tensor) -> tuple[Tensor | None, ...]:
        x, y = ctx.saved_tensors
        return cotangent * (x >= y), cotangent * (x < y), None


for key in ("CPU", "Meta", "Autograd"):
    LIBRARY.impl("bend", _bend, key)
LIBRARY.impl("larger", _larger, "CompositeExplicitAutograd")
LIBRARY.impl("larger", lambda x, y, *, lift=0.0: _Larger.apply(x, y, lift), "Autograd")
LIBRARY.impl("hinge", lambda x, at: torch.relu(x - at) + torch.relu(x - at) ** 2 / 2, "CompositeImplicitAutograd")


@dataclass(frozen=True)
class Other:
    """An operator with corners, called on entries of which the first two lie on them."""

    name: str
    call: Callable[[Tensor], Tensor]
    entries: tuple[float, ...]
    in_func: bool = True  # torch itself has no `torch.func` of a `custom_op`

    def __str__(self) -> str:
        return self.name

    @property
    def x(self) -> Tensor:
        return torch.tensor(self.entries, dtype=torch.float64)

    def slopes(self) -> Mapping[str, Tensor]:
        """At each entry by its values nearby."""
        with torch.no_grad():
            here = self.call(self.x)
            left, right = ((self.call(self.x + step) - here) / step for step in (-STEP, STEP))
        least = torch.where(left * right <= 0, 0, torch.where(left.abs() < right.abs(), left, right))
        return {"left": left, "right": right, "mean": (left + right) / 2, "min-norm": least, "documented": least}


OTHERS = (
    Other("softclip", lambda x: torch.ops.door.softclip(x, 2.0), (2.0, -2.0, 0.5, 3.0, -5.0), in_func=False),
    Other("bend", lambda x: torch.ops.door.bend(x, slope=-2.0), (0.0, -0.0, 0.5, -1.0, 2.0)),
    Other("hinge", lambda x: torch.ops.door.hinge(x, 0.5), (0.5, 0.5, 1.5, -1.0, 0.25)),
)
IN_FUNC = tuple(each for each in OTHERS if each.in_func)
CONVENTIONS = ("min-norm", "documented", "left", "right", "mean")
ROWS = {
    "softclip": (
        Kink("door::softclip", "-limit", Slopes(0.0, 1.0)),
        Kink("door::softclip", "limit", Slopes(1.0, 0.0)),
    ),
    "bend": (Kink("door::bend", "0", Slopes("slope", 1.0)),),
    "hinge": (Kink("door::hinge", "at", Slopes(0.0, 1.0)),),
    "larger": (Kink("door::larger", "self == y", Ties.largest("self", "y")),),
}


@pytest.fixture(scope="module", autouse=True)
def added() -> Iterator[None]:
    with taken_out_again():
        add_operator(*ROWS["softclip"], calls=[{"limit": 1.0}, {"limit": 2.5}])
        with subgrad.use("left"):  # what is added from here on meets kernels that are there already
            torch.relu(torch.zeros(1, requires_grad=True))
        add_operator(*ROWS["bend"], calls=[{}, {"slope": 2.0}, {"slope": -0.5}])
        add_operator(*ROWS["hinge"], calls=[{"at": 0.5}])
        add_operator(*ROWS["larger"])
        yield


def gradient(call: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """The weight with which each entry of a cotangent that is not constant comes back."""
    x = x.clone().requires_grad_()
    return torch.autograd.grad(call(x), x, COTANGENT)[0] / COTANGENT


def near(found: Tensor, wanted: Tensor) -> None:
    torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("convention", CONVENTIONS)
@pytest.mark.parametrize("other", OTHERS, ids=str)
def test_a_convention_takes_its_element(other: Other, convention: str) -> None:
    with subgrad.use(convention):
        found = gradient(other.call, other.x)
    near(found, other.slopes()[convention])


@pytest.mark.parametrize("other", OTHERS, ids=str)
def test_a_number_is_the_element_of_this_operator_alone(other: Other) -> None:
    inside = {"softclip": 0.25, "bend": -1.5, "hinge": 0.75}[other.name]
    with subgrad.use(Convention("left", [(other.name, inside)])):
        found = gradient(other.call, other.x)
        relu = gradient(torch.relu, torch.zeros(5, dtype=torch.float64))
    near(found[:2], torch.full_like(found[:2], inside))
    near(found[2:], other.slopes()["mean"][2:])
    assert not relu.any()


def test_a_number_outside_of_the_set_is_refused() -> None:
    with pytest.raises(ValueError, match=r"2.0 is not a generalised derivative of softclip"):
        Convention("min-norm", softclip=2.0)
    with subgrad.use(Convention("min-norm", softclip=2.0, surrogate=True)):
        assert gradient(OTHERS[0].call, OTHERS[0].x)[0] == 2


@pytest.mark.parametrize("other", OTHERS, ids=str)
def test_away_from_kinks_and_after_use_the_gradient_is_the_operators_own(other: Other) -> None:
    before = gradient(other.call, other.x)
    for convention in (*CONVENTIONS, "torch", "torch-2.13", "torch-2.14"):
        with subgrad.use(convention):
            under = gradient(other.call, other.x)
        assert torch.equal(under[2:], before[2:])
        assert torch.equal(gradient(other.call, other.x), before)
        assert not convention.startswith("torch") or torch.equal(under, before)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("other", OTHERS, ids=str)
def test_values_do_not_change_by_a_bit(other: Other, dtype: torch.dtype) -> None:
    x = torch.tensor([*other.entries, float("nan"), float("inf"), -float("inf"), -0.0, 1e-30], dtype=dtype)
    bits = {torch.float64: torch.int64, torch.float32: torch.int32, torch.bfloat16: torch.int16}[dtype]
    with torch.no_grad():
        wanted = other.call(x)
    for convention in CONVENTIONS:
        with subgrad.use(convention):
            out = other.call(x.clone().requires_grad_())
        assert torch.equal(out.detach().view(bits), wanted.view(bits))


@pytest.mark.parametrize("convention", CONVENTIONS)
@pytest.mark.parametrize("other", IN_FUNC, ids=str)
def test_the_element_is_the_same_in_torch_func(other: Other, convention: str) -> None:
    def weighed(x: Tensor) -> Tensor:
        return (other.call(x) * COTANGENT).sum()

    wanted = other.slopes()[convention]
    with subgrad.use(convention):
        near(grad(weighed)(other.x) / COTANGENT, wanted)
        near(vmap(grad(weighed))(torch.stack([other.x, other.x]))[1] / COTANGENT, wanted)
        near(jvp(other.call, (other.x,), (COTANGENT,))[1] / COTANGENT, wanted)


@pytest.mark.parametrize("other", OTHERS, ids=str)
def test_the_second_derivative_knows_the_element(other: Other) -> None:
    for convention in CONVENTIONS:
        x = other.x.requires_grad_()
        with subgrad.use(convention):
            out = other.call(x)
            (first,) = torch.autograd.grad((out**2 * COTANGENT).sum(), x, create_graph=True)
            (second,) = torch.autograd.grad(first.sum(), x)
        element = other.slopes()[convention]
        near(second[:2], (2 * COTANGENT * element**2)[:2])  # of the square of a line with this slope
        with torch.no_grad():
            squares = [other.call(x + step) ** 2 for step in (-1e-4, 0, 1e-4)]
        curved = COTANGENT * (squares[0] - 2 * squares[1] + squares[2]) / 1e-8
        torch.testing.assert_close(second[2:], curved[2:], atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("other", OTHERS, ids=str)
def test_compiled_code_takes_the_element_of_each_convention(other: Other) -> None:
    compiled = torch.compile(other.call, backend="aot_eager", fullgraph=True)
    own = gradient(other.call, other.x)
    for convention in ("left", "right", "torch", "mean", "left"):
        with subgrad.use(convention):
            found = gradient(compiled, other.x)
        near(found, own if convention == "torch" else other.slopes()[convention])


@pytest.mark.parametrize(
    ("convention", "one", "other", "alone"),
    [("min-norm", 0.5, 0.5, 0.0), ("left", 0.0, 1.0, 0.0), ("right", 1.0, 0.0, 1.0), ("mean", 0.5, 0.5, 0.5)],
)
def test_ties_between_tensors_are_shared(convention: str, one: float, other: float, alone: float) -> None:
    x, y = (torch.ones(5, dtype=torch.float64, requires_grad=True) for _ in range(2))
    with subgrad.use(convention):
        out = torch.ops.door.larger(x, y, lift=0.5)
        constant = torch.ops.door.larger(x, y.detach(), lift=0.5)
    found = [each / COTANGENT for each in torch.autograd.grad(out, (x, y), COTANGENT)]
    assert [set(each.tolist()) for each in found] == [{one}, {other}]
    assert set((torch.autograd.grad(constant, x, COTANGENT)[0] / COTANGENT).tolist()) == {alone}


def test_ties_may_be_broadcast() -> None:
    x, y = torch.ones(3, 1, dtype=torch.float64), torch.ones(2, dtype=torch.float64)
    x, y = x.requires_grad_(), y.requires_grad_()
    weights = torch.tensor([[1.0, 2.0], [-3.0, 4.0], [5.0, 0.5]], dtype=torch.float64)
    with subgrad.use("min-norm"):
        out = torch.ops.door.larger(x, y)
    found = torch.autograd.grad(out, (x, y), weights)
    assert torch.equal(found[0], weights.sum(1, keepdim=True) / 2)
    assert torch.equal(found[1], weights.sum(0) / 2)


def test_the_survey_lists_it() -> None:
    found = [each for each in survey("right") if each.overload.startswith("door::")]
    assert {each.operator for each in found} == set(ROWS)
    limits = [each for each in found if each.operator == "softclip" and each.place == "self == limit"]
    assert [each.arguments for each in limits] == [{"limit": 1.0}, {"limit": 2.5}]
    assert all(each.reverse == {"self": 1.0} and each.chosen == {"self": 0.0} for each in limits)
    assert all(each.forward is None and each.keeps_rule is False for each in limits)
    (bent,) = (each for each in found if each.operator == "bend" and each.arguments == {"slope": 2.0})
    assert bent.reverse == bent.forward == {"self": 2.0}
    assert bent.chosen == bent.chosen_forward == {"self": 1.0}


@pytest.mark.parametrize("other", OTHERS, ids=str)
def test_an_audit_counts_its_hits_at_their_line_and_what_they_do(other: Other) -> None:
    x = other.x.requires_grad_()
    with subgrad.audit(compare=["left", "right"]) as audit:
        out = other.call(x)
        (out * COTANGENT).sum().backward()
    rows = [row for row in audit.rows if row.operator == other.name]
    assert sum(row.total.hits for row in rows) == 2
    assert {(row.site.file, row.site.line) for row in rows} == {_line_of(other.call)}
    assert not any("backward of its own" in note for note in audit.notes)
    (effect,) = audit.effects
    assert [change.differ for change in effect.changes] == [2]
    near(x.grad / COTANGENT, gradient(other.call, other.x))  # type: ignore[operator]


def test_an_audit_counts_ties_of_an_operator_with_an_autograd_function() -> None:
    x = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64, requires_grad=True)
    with subgrad.audit() as audit:
        torch.ops.door.larger(x, x.detach().flip(0)).sum().backward()
    (row,) = audit.rows
    assert (row.operator, row.kind, row.total.hits) == ("larger", "tie", 1)
    assert not any("backward of its own" in note for note in audit.notes)


def _line_of(function: Callable[..., Any]) -> tuple[str, int]:
    return __file__, inspect.getsourcelines(function)[1]


def program_slopes(program: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """The gradient of a program that is smooth, by its values."""
    steps = STEP * torch.eye(len(x), dtype=x.dtype)
    return torch.stack([(program(x + step) - program(x - step)) / (2 * STEP) for step in steps])


@pytest.mark.parametrize(
    "program",
    [
        lambda x: (torch.ops.door.softclip(x, 2.0) + torch.ops.door.softclip(-x, 2.0) + x**2) @ COTANGENT,
        lambda x: (torch.ops.door.softclip(x, 2.0) * 2 - torch.ops.door.softclip(2 * x, 4.0) + x.sin()) @ COTANGENT,
        lambda x: (torch.ops.door.hinge(x, 2.0) - torch.ops.door.hinge(-x, -2.0)) @ COTANGENT,
        lambda x: (torch.ops.door.larger(x, x.abs()) - torch.ops.door.larger(-x, -x.abs())) @ x.new_tensor([1.0] * 5),
        lambda x: torch.ops.door.larger(x, x.flip(0)) @ COTANGENT.abs() - torch.maximum(x, x.flip(0)) @ COTANGENT.abs(),
    ],
    ids=["odd", "rescaled", "mirrored", "largest and smallest", "against torch's own"],
)
def test_the_gradient_of_a_program_in_which_kinks_cancel_is_that_of_its_values(
    program: Callable[[Tensor], Tensor],
) -> None:
    x = torch.tensor([2.0, -2.0, 0.5, -2.0, 2.0], dtype=torch.float64)
    wanted = program_slopes(program, x)
    found = torch.stack([subgrad.grad(program)(x) for _ in range(3)])
    near(found, wanted.expand_as(found))
    direction = torch.tensor([1.0, -1.0, 0.5, 2.0, -3.0], dtype=torch.float64)
    near(subgrad.jvp(program, (x,), (direction,))[1], wanted @ direction)


def test_the_gradient_of_a_program_without_hits_is_torchs_own() -> None:
    x = torch.tensor([0.5, -3.0, 1.0, 2.5, 0.1], dtype=torch.float64)

    def program(x: Tensor) -> Tensor:
        return ((torch.ops.door.softclip(x, 2.0) * COTANGENT) ** 2).sum()

    leaf = x.clone().requires_grad_()
    assert torch.equal(subgrad.grad(program)(x), torch.autograd.grad(program(leaf), leaf)[0])


def test_the_directional_derivative_takes_the_side_it_points_to() -> None:
    other = OTHERS[0]
    sides = other.slopes()
    for sign, side in ((1.0, "right"), (-1.0, "left")):
        found = subgrad.jvp(lambda x: other.call(x) @ COTANGENT, (other.x,), (torch.full_like(other.x, sign),))[1]
        near(found, sign * (sides[side] @ COTANGENT))


def test_the_same_rows_once_more_are_nothing_and_others_an_error() -> None:
    kinks = list(KINKS)
    add_operator(*ROWS["softclip"], calls=[{"limit": 1.0}, {"limit": 2.5}])
    with pytest.raises(ValueError, match=r"door::softclip has other rows"):
        add_operator(Kink("door::softclip", "0", Slopes(1.0, 1.0)))
    assert list(KINKS) == kinks


# What cannot be added.


def _define(name: str, schema: str, function: Callable[..., Any], *keys: str) -> None:
    LIBRARY.define(f"{name}{schema}")
    for key in keys:
        LIBRARY.impl(name, function, key)


@torch.library.custom_op("door::undifferentiated", mutates_args=())
def undifferentiated(x: Tensor) -> Tensor:
    return x.clamp(min=0)


_define("relu", "(Tensor x) -> Tensor", torch.relu, "CompositeImplicitAutograd")
_define("ramp", "(Tensor x, float at) -> Tensor", lambda x, at: torch.relu(x - at), "CompositeImplicitAutograd")
_define("bare", "(Tensor x) -> Tensor", lambda x: x.clamp(min=0), "CPU")
_define("pair", "(Tensor x) -> (Tensor, Tensor)", lambda x: (x.relu(), x.abs()), "CompositeImplicitAutograd")
_define("centred", "(Tensor x) -> Tensor", lambda x: torch.relu(x - x.mean()), "CompositeImplicitAutograd")
_define("rounds", "(Tensor x) -> Tensor", lambda x: x + (x.relu() - x).detach(), "CompositeImplicitAutograd")
_define("single", "(Tensor x) -> Tensor", lambda x: _only_single(x), "CompositeImplicitAutograd")


def _only_single(x: Tensor) -> Tensor:
    if x.dtype != torch.float32:
        raise TypeError("single precision, please")
    return x.relu()


RAMP = Slopes(0.0, 1.0)


@pytest.mark.parametrize(
    ("rows", "calls", "message"),
    [
        ((), ({},), "no rows"),
        ((Kink("relu", "0", RAMP),), ({},), "write the namespace"),
        ((Kink("aten::relu", "0", RAMP),), ({},), "write the namespace"),
        ((Kink("door::nothing", "0", RAMP),), ({},), "no operator door::nothing"),
        ((Kink("door::ramp", "at", RAMP), Kink("door::bare", "0", RAMP)), ({},), "one operator at a time"),
        ((Kink("door::bare", "0", RAMP),), ({},), "door::bare has no derivative"),
        ((Kink("door::undifferentiated", "0", RAMP),), ({},), "door::undifferentiated has no derivative"),
        ((Kink("door::pair", "0", RAMP),), ({},), "only operators that return one tensor"),
        ((Kink("door::ramp", "where", RAMP),), ({"at": 1.0},), "unknown argument 'where'"),
        ((Kink("door::ramp", "x", RAMP),), ({"at": 1.0},), "The first tensor, x, is self in rows"),
        ((Kink("door::ramp", "at +", RAMP),), ({"at": 1.0},), "no expression of the operator's arguments"),
        ((Kink("door::ramp", "at", Slopes(0.0, "self")),), ({"at": 1.0},), "not of self"),
        ((Kink("door::ramp", "at", RAMP, "left"),), ({"at": 1.0},), "leave torch='left' out"),
        ((Kink("door::ramp", "tied(self)", Joint("simplex")),), ({"at": 1.0},), "entry by entry; not Joint"),
        ((Kink("door::ramp", "self == 0", Ball(("self",))),), ({"at": 1.0},), "entry by entry; not Ball"),
        ((Kink("door::ramp", "self == at", Ties.largest("self", "at")),), ({"at": 1.0},), "between two tensors"),
        ((Kink("door::ramp", "at", RAMP),), ({},), "at is missing"),
        ((Kink("door::ramp", "at", RAMP),), ({"on": 1.0},), "unknown argument 'on'"),
        ((Kink("door::ramp", "1 / at", RAMP),), ({"at": 0.0},), "cannot be evaluated"),
        ((Kink("door::ramp", "at", RAMP, when="at > 2"),), ({"at": 1.0},), "bends where none of the rows"),
        ((Kink("door::ramp", "at", RAMP),), (), "no call meets the kink at self == at"),
        ((Kink("door::ramp", "at", Slopes(1.0, 0.0)),), ({"at": 1.0},), "by the row the left slope in self is 1"),
        ((Kink("door::ramp", "at", Slopes(0.0, 0.5)),), ({"at": 1.0},), "by the operator's values 1,"),
        ((Kink("door::larger", "self == y", Ties.smallest("self", "y")),), ({},), "has other rows"),
        ((Kink("door::relu", "0", RAMP),), ({},), "relu is the name of another operator"),
        ((Kink("door::centred", "0", RAMP),), ({},), "does not work entry by entry"),
        ((Kink("door::rounds", "0", RAMP),), ({},), "has another derivative than its values"),
        ((Kink("door::single", "0", RAMP),), ({},), "single precision, please"),
    ],
)
def test_what_cannot_be_added_is_refused_and_nothing_is_changed(
    rows: tuple[Kink, ...], calls: tuple[Mapping[str, Any], ...], message: str
) -> None:
    before, called = list(KINKS), dict(CALLS)
    with pytest.raises(ValueError, match=message):
        add_operator(*rows, calls=calls)
    assert list(KINKS) == before
    assert called == CALLS


def test_a_name_that_is_taken_can_be_replaced() -> None:
    add_operator(Kink("door::relu", "0", RAMP), name="door_relu")
    zeros = torch.zeros(5, dtype=torch.float64)
    with subgrad.use(Convention("left", door_relu=0.25)):
        assert set(gradient(torch.ops.door.relu, zeros).tolist()) == {0.25}
        assert set(gradient(torch.relu, zeros).tolist()) == {0.0}


IN_FORCE = """
import torch, subgrad
torch.library.define("fresh::ramp", "(Tensor x) -> Tensor")
torch.library.impl("fresh::ramp", "CompositeImplicitAutograd", lambda x: torch.where(x > 0, x, x * 0))
ramp = torch.ops.fresh.ramp
x = torch.zeros(3, requires_grad=True)
c = torch.tensor([3.0, -0.5, 2.0])
slope = lambda f: set((torch.autograd.grad(f(x), x, c)[0] / c).abs().tolist())
compiled = torch.compile(ramp, backend="aot_eager")
{before}
print(slope(ramp), slope(compiled))
subgrad.add_operator(subgrad.Kink("fresh::ramp", "0", subgrad.Slopes(0.0, 1.0)))
{after}
print(slope(ramp), slope(compiled))
import subgrad.functional
"""


@pytest.mark.parametrize(
    ("before", "after"),
    [("", "subgrad.set_default('mean')"), ("subgrad.set_default('mean')", "")],
    ids=["before a convention", "while one is in force"],
)
def test_it_can_be_added_at_any_time(before: str, after: str) -> None:
    script = IN_FORCE.format(before=before, after=after)
    done = run_fresh(script, imported=COMPILER)
    assert done.stdout.splitlines() == ["{0.0} {0.0}", "{0.5} {0.5}"], done.stderr
