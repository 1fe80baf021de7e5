"""`Convention`: a value with a name, what it refuses, and the elements that the presets pick."""

from __future__ import annotations

import copy
import pickle
import re
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from subgrad import Convention, kinks, use
from subgrad.conventions import NAMES
from subgrad.kinks.frameworks import FRAMEWORKS

COTANGENT = torch.tensor([3.0, -0.5, 2.0], dtype=torch.float64)
Operator = Callable[..., Tensor]


def gradients(convention: str | Convention, operator: Operator, *at: float) -> tuple[Tensor, ...]:
    """The gradients of an operator of tensors that hold the same number in each entry, all differentiated."""
    leaves = [torch.full_like(COTANGENT, number).requires_grad_() for number in at]
    with use(convention):
        out = operator(*leaves)
    return torch.autograd.grad(out, leaves, COTANGENT)


def assert_element(gradients: tuple[Tensor, ...], *weights: float) -> None:
    expected = tuple(weight * COTANGENT for weight in weights)
    torch.testing.assert_close(gradients, expected, rtol=1e-15, atol=0, equal_nan=True)


def constant(number: float) -> Tensor:
    return torch.full_like(COTANGENT, number)


PLACES: dict[str, tuple[Operator, tuple[float, ...]]] = {
    "relu": (torch.relu, (0.0,)),
    "clamp, lower bound": (lambda x: torch.clamp(x, -1, 2), (-1.0,)),
    "clamp, upper bound": (lambda x: torch.clamp(x, -1, 2), (2.0,)),
    "relu6, lower bound": (F.relu6, (0.0,)),
    "relu6, upper bound": (F.relu6, (6.0,)),
    "hardtanh, lower bound": (F.hardtanh, (-1.0,)),
    "hardtanh, upper bound": (F.hardtanh, (1.0,)),
    "maximum(x, constant)": (lambda x: torch.maximum(x, constant(2.0)), (2.0,)),
    "maximum(x, y)": (torch.maximum, (2.0, 2.0)),
    "clamp(x, min=y)": (lambda x, y: torch.clamp(x, min=y), (2.0, 2.0)),
    "abs": (torch.abs, (0.0,)),
    "leaky_relu(.01)": (F.leaky_relu, (0.0,)),
    "elu(2)": (lambda x: F.elu(x, 2.0), (0.0,)),
    "selu": (torch.selu, (0.0,)),
    "hypot(x, y)": (torch.hypot, (0.0, 0.0)),
}
BELOW, ABOVE = 1.7580993408473766, 1.0507009873554805  # selu: alpha * scale, scale (Klambauer et al. 2017)
MIDDLE = (BELOW + ABOVE) / 2
HALVES, NEITHER, NAN = (0.5, 0.5), (0, 0), (float("nan"), float("nan"))
PRESETS: tuple[str, ...] = ("min-norm", "documented", "torch-2.13", "torch-2.14", "left", "right", "mean")
# fmt: off
# The weight of each differentiated argument, by preset.
ELEMENTS: dict[str, tuple[float | tuple[float, float], ...]] = {
    "relu":                  (0,       0,       0,       0,       0,       1,       0.5),
    "clamp, lower bound":    (0,       0,       1,       0,       0,       1,       0.5),
    "clamp, upper bound":    (0,       0,       1,       0,       1,       0,       0.5),
    "relu6, lower bound":    (0,       0,       0,       0,       0,       1,       0.5),
    "relu6, upper bound":    (0,       0,       0,       0,       1,       0,       0.5),
    "hardtanh, lower bound": (0,       0,       0,       0,       0,       1,       0.5),
    "hardtanh, upper bound": (0,       0,       0,       0,       1,       0,       0.5),
    "maximum(x, constant)":  (0,       0.5,     0.5,     0.5,     0,       1,       0.5),
    "maximum(x, y)":         (HALVES,  HALVES,  HALVES,  HALVES,  (0, 1),  (1, 0),  HALVES),
    "clamp(x, min=y)":       (HALVES,  HALVES,  (1, 0),  HALVES,  (0, 1),  (1, 0),  HALVES),
    "abs":                   (0,       0,       0,       0,       -1,      1,       0),
    "leaky_relu(.01)":       (0.01,    0.01,    0.01,    0.01,    0.01,    1,       0.505),
    "elu(2)":                (1,       1,       2,       2,       2,       1,       1.5),
    "selu":                  (ABOVE,   ABOVE,   BELOW,   BELOW,   BELOW,   ABOVE,   MIDDLE),
    "hypot(x, y)":           (NEITHER, NEITHER, NAN,     NAN,     (-1, 0), (1, 0),  NEITHER),
}
# Of other frameworks, as they were measured: see tests/test_frameworks.py for all there is.
OF_FRAMEWORKS: dict[str, tuple[float | tuple[float, float], ...]] = {
    #                         jax      tensorflow  mlx       paddle
    "relu":                  (0,       0,          0,        0),
    "clamp, lower bound":    (0.5,     1,          0,        1),
    "clamp, upper bound":    (0.5,     1,          0,        1),
    "relu6, lower bound":    (0,       0,          0,        0),
    "relu6, upper bound":    (0,       0,          0,        0),
    "hardtanh, lower bound": (1,       1,          0,        0),
    "hardtanh, upper bound": (1,       1,          0,        0),
    "maximum(x, constant)":  (0.5,     1,          0,        0.5),
    "maximum(x, y)":         (HALVES,  (1, 0),     (0, 1),   HALVES),
    "clamp(x, min=y)":       (HALVES,  (1, 0),     (0, 1),   HALVES),
    "abs":                   (1,       0,          0,        0),
    "leaky_relu(.01)":       (1,       0.01,       1,        1),
    "elu(2)":                (2,       2,          2,        2),
    "selu":                  (BELOW,   ABOVE,      BELOW,    BELOW),
    "hypot(x, y)":           (HALVES,  NEITHER,    NAN,      NAN),
}
# fmt: on
PRESETS += FRAMEWORKS
ELEMENTS = {place: (*elements, *OF_FRAMEWORKS[place]) for place, elements in ELEMENTS.items()}


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("place", PLACES)
def test_autograd_returns_the_element_of_the_preset(place: str, preset: str) -> None:
    operator, at = PLACES[place]
    element = ELEMENTS[place][PRESETS.index(preset)]
    assert_element(gradients(preset, operator, *at), *(element if isinstance(element, tuple) else (element,)))


EXAMPLES = (
    Convention("min-norm"),
    Convention("torch", relu=0.25),
    Convention("left", clamp="pass-through", abs="right"),
    Convention("mean", relu=3.5, surrogate=True),
    Convention("torch-2.13", surrogate=True),
)
every_example = pytest.mark.parametrize("convention", EXAMPLES, ids=repr)


class TestValue:
    @every_example
    def test_its_repr_rebuilds_an_equal_one(self, convention: Convention) -> None:
        rebuilt = eval(repr(convention), {"Convention": Convention})
        assert (rebuilt, hash(rebuilt)) == (convention, hash(convention))

    @every_example
    def test_a_pickle_is_an_equal_one(self, convention: Convention) -> None:
        assert pickle.loads(pickle.dumps(convention)) == convention

    @every_example
    def test_a_deep_copy_is_an_equal_one(self, convention: Convention) -> None:
        assert copy.deepcopy(convention) == convention

    def test_a_pickle_picks_the_same_element(self) -> None:
        convention = pickle.loads(pickle.dumps(Convention("min-norm", relu=0.25)))
        assert_element(gradients(convention, torch.relu, 0.0), 0.25)

    def test_its_repr_reads_as_it_is_written(self) -> None:
        assert repr(Convention("min-norm", relu=1, clip="pass-through", surrogate=True)) == (
            "Convention('min-norm', clamp='pass-through', relu=1.0, surrogate=True)"
        )

    def test_its_str_is_the_name_where_that_says_all(self) -> None:
        assert (str(Convention("left")), str(Convention("left", relu=1))) == ("left", "Convention('left', relu=1.0)")

    def test_the_order_of_overrides_does_not_matter(self) -> None:
        one, other = Convention("left", relu=1.0, abs="mean"), Convention("left", abs="mean", relu=1)
        assert (one, hash(one)) == (other, hash(other))

    def test_all_that_differ_are_unequal(self) -> None:
        assert len({*EXAMPLES, Convention("torch"), Convention("torch", relu=0.5), Convention("torch", abs=0.25)}) == 8

    def test_it_cannot_be_changed(self) -> None:
        with pytest.raises(AttributeError):
            Convention("left").base = "right"  # type: ignore[misc]


class TestOverrides:
    def test_by_name_take_another_conventions_element_for_that_operator_alone(self) -> None:
        convention = Convention("min-norm", relu="right")
        assert_element(gradients(convention, torch.relu, 0.0), 1.0)
        assert_element(gradients(convention, F.relu6, 0.0), 0.0)

    def test_by_number_take_that_slope_at_a_corner(self) -> None:
        assert_element(gradients(Convention("left", abs=-0.25), torch.abs, 0.0), -0.25)

    def test_by_number_take_that_weight_for_the_first_of_two_tied(self) -> None:
        assert_element(gradients(Convention("left", maximum=0.75), torch.maximum, 2.0, 2.0), 0.75, 0.25)

    @pytest.mark.parametrize(
        "convention", [Convention("left", prelu=1.0), Convention("left", surrogate=True, prelu=0.5)]
    )
    def test_by_number_hold_for_every_slope_of_a_tensor_of_them(self, convention: Convention) -> None:
        weights = torch.tensor([0.25, 0.0, -0.5], dtype=torch.float64)
        (gradient,) = gradients(convention, lambda x: F.prelu(x.unsqueeze(0), weights).squeeze(0), 0.0)
        assert_element((gradient,), dict(convention.overrides)["prelu"])

    def test_by_number_are_taken_where_a_tensor_of_slopes_has_them_inside(self) -> None:
        weights = torch.tensor([0.25, 0.5, -0.5], dtype=torch.float64)
        (gradient,) = gradients(
            Convention("left", prelu=0.5), lambda x: F.prelu(x.unsqueeze(0), weights).squeeze(0), 0.0
        )
        assert_element((gradient,), 0.5)

    def test_by_number_are_taken_where_rounding_of_the_slope_alone_puts_them_outside(self) -> None:
        x = torch.zeros(2, requires_grad=True)
        with use(Convention("min-norm", prelu=0.1)):
            out = F.prelu(x, torch.tensor([0.1]))  # a little more than 0.1, in float32
        (gradient,) = torch.autograd.grad(out, x, torch.tensor([1.0, -2.0]))
        torch.testing.assert_close(gradient, torch.tensor([0.1, -0.2]))

    def test_by_number_are_refused_at_the_entries_where_they_are_outside(self) -> None:
        x = torch.tensor([[0.0, 1.0]], requires_grad=True)  # only the first channel is on the kink
        inside, outside = torch.tensor([0.25, 2.0]), torch.tensor([2.0, 0.25])
        with use(Convention("min-norm", prelu=0.5)):
            out = F.prelu(x, inside)
            with pytest.raises(ValueError, match=r"0\.5 is not .* prelu at self == 0: the set there is \[1, 2\]"):
                F.prelu(x, outside)
        (gradient,) = torch.autograd.grad(out, x, torch.tensor([[3.0, -1.0]]))
        assert gradient.tolist() == [[1.5, -1.0]]

    @pytest.mark.parametrize("transform", ["grad", "jvp"])
    def test_by_number_are_judged_under_transforms_too(self, transform: str) -> None:
        x, one = torch.zeros(1), torch.tensor([3.0])

        def slope(weight: float) -> float:
            def f(x: torch.Tensor) -> torch.Tensor:
                return F.prelu(x, torch.tensor([weight])).sum()

            return float(torch.func.grad(f)(x) if transform == "grad" else torch.func.jvp(f, (x,), (one,))[1] / 3)

        with use(Convention("min-norm", prelu=0.5)):
            assert slope(0.25) == 0.5
            with pytest.raises(ValueError, match=r"the set there is \[1, 2\]"):
                slope(2.0)

    def test_by_number_are_refused_where_the_slopes_cannot_be_read(self) -> None:
        def slope(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
            return torch.func.grad(lambda x: F.prelu(x, weight).sum())(x)

        with (
            use(Convention("min-norm", prelu=0.5)),
            pytest.raises(ValueError, match="cannot be read in compiled code, under vmap"),
        ):
            torch.func.vmap(slope, (0, None))(torch.zeros(2, 1), torch.tensor([0.25]))

    def test_by_number_are_held_against_the_slopes_that_rrelu_drew(self) -> None:
        x = torch.zeros(5, requires_grad=True)
        with use(Convention("min-norm", rrelu=0.5)):
            out = F.rrelu(x, 0.125, 0.375, training=True)
            with pytest.raises(ValueError, match=r"0\.5 is not .* rrelu at self == 0: the set there is \[0\.[6-9]"):
                F.rrelu(x, 0.6, 0.9, training=True)
        (gradient,) = torch.autograd.grad(out, x, torch.arange(5.0))
        assert gradient.tolist() == [0.0, 0.5, 1.0, 1.5, 2.0]

    def test_reach_every_overload_of_the_operator(self) -> None:
        convention = Convention("min-norm", clamp="pass-through")
        assert_element(gradients(convention, lambda x: torch.clamp(x, -1, 2), -1.0), 1.0)
        assert_element(gradients(convention, lambda x, low: torch.clamp(x, min=low), 2.0, 2.0), 1.0, 0.0)

    @pytest.mark.parametrize(("alias", "name"), [("clip", "clamp"), ("absolute", "abs")])
    def test_know_an_alias_as_its_operator(self, alias: str, name: str) -> None:
        assert Convention("min-norm", **{alias: "right"}) == Convention("min-norm", **{name: "right"})

    def test_given_as_pairs_are_the_same(self) -> None:
        pairs = [("relu", 0.25), ("clip", "pass-through")]
        assert Convention("min-norm", pairs) == Convention("min-norm", relu=0.25, clamp="pass-through")

    def test_extend_those_of_a_convention_to_start_from(self) -> None:
        base = Convention("left", relu=0.25, abs=0.0)
        assert Convention(base, relu="mean") == Convention("left", relu="mean", abs=0.0)
        assert Convention(base) == base

    def test_leave_the_convention_they_start_from_as_it_was(self) -> None:
        base = Convention("left", relu=0.25)
        assert_element(gradients(Convention(base, relu=0.75), torch.relu, 0.0), 0.75)
        assert_element(gradients(base, torch.relu, 0.0), 0.25)

    def test_keep_the_surrogate_of_the_convention_they_start_from(self) -> None:
        assert Convention(Convention("left", relu=2.0, surrogate=True), abs=0.0).surrogate


CONVENTIONS = ", ".join(NAMES)
OPERATORS = ", ".join(kinks.names)
SURROGATE_HINT = "\nPick a value inside it, or pass surrogate=True if you want a slope that is not a subgradient."
REFUSED = {
    "unknown convention with a near one": (
        lambda: Convention("min_norm"),
        f"unknown convention 'min_norm'. Did you mean 'min-norm'? Known: {CONVENTIONS}.",
    ),
    "unknown convention with none near": (
        lambda: Convention("zzz"),
        f"unknown convention 'zzz'. Known: {CONVENTIONS}.",
    ),
    "no name at all": (
        lambda: Convention(None),  # type: ignore[arg-type]
        f"unknown convention None. Known: {CONVENTIONS}.",
    ),
    "unknown convention in an override": (
        lambda: Convention("min-norm", relu="rihgt"),
        f"unknown convention 'rihgt'. Did you mean 'right'? Known: {CONVENTIONS}.",
    ),
    "unknown operator": (
        lambda: Convention("min-norm", leakyrelu=1.0),
        f"unknown operator 'leakyrelu'. Did you mean 'leaky_relu'? Known: {OPERATORS}.",
    ),
    "unknown operator in a pair": (
        lambda: Convention("min-norm", [("zzz", 1.0)]),
        f"unknown operator 'zzz'. Known: {OPERATORS}.",
    ),
    "number outside an interval": (
        lambda: Convention("min-norm", relu=2.0),
        "2.0 is not a generalised derivative of relu at self == 0: the set there is [0, 1]." + SURROGATE_HINT,
    ),
    "number outside a simplex": (
        lambda: Convention("min-norm", maximum=-0.5),
        "-0.5 is not a generalised derivative of maximum at self == other: the set there is simplex over self, other."
        + SURROGATE_HINT,
    ),
    "number outside a ball": (
        lambda: Convention("min-norm", hypot=1.5),
        "1.5 is not a generalised derivative of hypot at (self == 0) & (other == 0): "
        "the set there is unit ball over self, other." + SURROGATE_HINT,
    ),
    "not a number": (
        lambda: Convention("min-norm", relu=float("nan")),
        "nan is not a generalised derivative of relu at self == 0: the set there is [0, 1]." + SURROGATE_HINT,
    ),
    "bool": (
        lambda: Convention("min-norm", relu=True),
        "relu=True: give the name of a convention or a number, the element to take.",
    ),
    "None": (
        lambda: Convention("min-norm", relu=None),  # type: ignore[arg-type]
        "relu=None: give the name of a convention or a number, the element to take.",
    ),
}


@pytest.mark.parametrize(("construct", "message"), REFUSED.values(), ids=REFUSED)
def test_construction_refuses(construct: Callable[[], Convention], message: str) -> None:
    with pytest.raises(ValueError, match=rf"\A{re.escape(message)}\Z"):
        construct()


class TestNumberOutsideTheSetOfOneCall:
    convention = Convention("right", leaky_relu=0.5)

    def test_is_refused_when_called(self) -> None:
        with pytest.raises(ValueError, match="leaky_relu") as error:
            gradients(self.convention, lambda x: F.leaky_relu(x, 2.0), 0.0)
        assert str(error.value) == (
            "0.5 is not a generalised derivative of leaky_relu at self == 0: the set there is [1, 2]." + SURROGATE_HINT
        )

    def test_serves_the_calls_whose_set_holds_it(self) -> None:
        assert_element(gradients(self.convention, lambda x: F.leaky_relu(x, 0.25), 0.0), 0.5)

    def test_refused_leaves_torch_and_the_convention_working(self) -> None:
        with use(self.convention):
            with pytest.raises(ValueError, match="leaky_relu"):
                F.leaky_relu(constant(0.0).requires_grad_(), 2.0)
            assert_element(gradients(self.convention, torch.relu, 0.0), 1.0)
            assert_element(gradients(self.convention, F.leaky_relu, 0.0), 0.5)
        assert_element(gradients("torch", lambda x: F.leaky_relu(x, 2.0), 0.0), 2.0)
        assert_element(gradients("torch", torch.relu, 0.0), 0.0)


SURROGATES: dict[str, tuple[float, Operator]] = {
    "relu": (2.0, torch.relu),
    "abs": (-3.0, torch.abs),
    "leaky_relu": (7.5, F.leaky_relu),
    "clamp": (-0.5, lambda x: torch.clamp(x, min=0)),
}


@pytest.mark.parametrize("name", SURROGATES)
def test_a_surrogate_takes_exactly_that_slope_at_the_kink(name: str) -> None:
    slope, operator = SURROGATES[name]
    assert_element(gradients(Convention("min-norm", [(name, slope)], surrogate=True), operator, 0.0), slope)


def test_a_surrogate_leaves_the_slope_beside_the_kink() -> None:
    assert_element(gradients(Convention("min-norm", relu=2.0, surrogate=True), torch.relu, 0.25), 1.0)
