"""Jumps and cuts that no operator's rule sees: casts, sets, bins, branch cuts, lists of tensors, numbers and copies.

What has a gradient is held against the values of the program nearby; what has none is refused with its line.
"""

from __future__ import annotations

import copy
import gc
import inspect
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import subgrad
from subgrad.apply.current_pass import running
from subgrad.clarke import Refused
from subgrad.clarke.engine.function_mode import Watch
from subgrad.clarke.engine.passes import Look

Function = Callable[[Tensor], Tensor]
TRUTH = torch.tensor(True)
WEIGHTS = torch.tensor([2.0, 3.0], dtype=torch.float64)  # so that no sum is alike in its entries


def numbers(*entries: float) -> Tensor:
    return torch.tensor(entries, dtype=torch.float64)


@pytest.fixture(autouse=True)
def quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # torch.tensor(x) and others advise against themselves
        yield


def gradients_nearby(function: Function, point: Tensor, radius: float = 1e-5) -> list[Tensor]:
    """Central differences at random points close by, where the program is smooth."""
    generator = torch.Generator().manual_seed(0)
    step, found = radius * 1e-3, []
    for _ in range(40):
        x = point + radius * torch.randn(point.shape, generator=generator, dtype=point.dtype)
        moves = step * torch.eye(point.numel(), dtype=point.dtype)
        found.append(torch.stack([(value(function, x + e) - value(function, x - e)) / (2 * step) for e in moves]))
    return found


def value(function: Function, x: Tensor) -> Tensor:
    torch.default_generator.manual_seed(5)  # torch.manual_seed takes a stack trace for each kind of device
    return torch.as_tensor(function(x), dtype=torch.float64).detach()


def assert_found_nearby(function: Function, point: Tensor) -> None:
    nearby = gradients_nearby(function, point)
    for seed in range(6):
        torch.manual_seed(5)
        found = subgrad.grad(function, seed=seed)(point)
        assert min((found - each).abs().max() for each in nearby) < 1e-3, (found, nearby[:3])


def where_not_zero(truth: Function) -> Function:
    """The identity, written with truth values of the numbers."""
    return lambda x: (torch.where(truth(x), x, 0 * x) * WEIGHTS).sum()


TRUTHS: dict[str, Function] = {
    "to a type": lambda x: x.to(torch.bool),
    "to a type by keyword": lambda x: x.to(dtype=torch.bool),
    "to another tensor": lambda x: x.to(TRUTH),
    "to a device and a type": lambda x: x.to("cpu", torch.bool),
    "type": lambda x: x.type(torch.bool),
    "type by name": lambda x: x.type("torch.BoolTensor"),
    "type_as": lambda x: x.type_as(TRUTH),
    "bool": lambda x: x.bool(),
    "is_nonzero": lambda x: torch.stack([torch.tensor(torch.is_nonzero(each)) for each in x]),
    "if": lambda x: torch.stack([torch.tensor(bool(each)) for each in x]),
    "operator": lambda x: torch.ops.aten.to.dtype(x, torch.bool),
    "copy": lambda x: torch.ops.aten._to_copy.default(x, dtype=torch.bool),
    "copy_": lambda x: torch.zeros(2, dtype=torch.bool).copy_(x),
    "isin": lambda x: ~torch.isin(x, numbers(0.0)),
    "isin, inverted": lambda x: torch.isin(x, torch.zeros(1, dtype=torch.float64), invert=True),
    "isin a number": lambda x: ~torch.isin(x, 0.0),
    "isin by keyword": lambda x: ~torch.isin(elements=x, test_elements=numbers(0.0)),
    "isin what moves": lambda x: torch.stack([~torch.isin(torch.zeros_like(each), each) for each in x]),
    "isclose": lambda x: ~torch.isclose(x, torch.zeros_like(x), atol=0.0),
    "equal": lambda x: torch.tensor([not torch.equal(each, torch.zeros_like(each)) for each in x]),
    "equal, as a method": lambda x: torch.tensor([not each.equal(torch.zeros_like(each)) for each in x]),
    "allclose": lambda x: torch.tensor([not torch.allclose(each, torch.zeros_like(each), atol=0.0) for each in x]),
    "in": lambda x: torch.tensor([0.0 not in each for each in x.split(1)]),
}


@pytest.mark.parametrize("kind", TRUTHS)
def test_numbers_that_are_asked_whether_they_are_0_answer_as_a_little_further_on(kind: str) -> None:
    function = where_not_zero(TRUTHS[kind])
    assert_found_nearby(function, numbers(0.0, 0.0))
    assert_found_nearby(function, numbers(0.0, 0.7))


INTEGERS: dict[str, Function] = {
    **{name: (lambda x, name=name: getattr(x, name)().long()) for name in ("byte", "char", "short", "int", "long")},
    "to": lambda x: x.to(torch.long),
    "to another tensor": lambda x: x.to(torch.tensor(1)),
    "type": lambda x: x.type(torch.long),
    "copy_": lambda x: torch.zeros(2, dtype=torch.long).copy_(x),
    "copy_, not waiting": lambda x: torch.zeros(2, dtype=torch.long).copy_(x, True),
    "copy_ by name": lambda x: torch.zeros(2, dtype=torch.long).copy_(other=x),
    "floor_divide": lambda x: torch.floor_divide(x, 1.0).detach().long(),
    "//": lambda x: (x // 1).long(),
    "bucketize": lambda x: torch.bucketize(x, numbers(1.0, 2.0, 3.0), right=True),
    "searchsorted": lambda x: torch.searchsorted(numbers(1.0, 2.0, 3.0), x, side="right"),
    "new_tensor": lambda x: torch.tensor(1).new_tensor(x),
    "searchsorted, unsorted": lambda x: torch.searchsorted(
        numbers(2.0, 1.0, 3.0), x, right=True, sorter=torch.tensor([1, 0, 2])
    ),
}


def assigned(x: Tensor) -> Tensor:
    found = torch.zeros(2, dtype=torch.long)
    found[:] = x
    return found


@pytest.mark.parametrize("kind", [*INTEGERS, "assignment"])
def test_numbers_that_are_rounded_are_so_as_a_little_further_on(kind: str) -> None:
    rounded = {**INTEGERS, "assignment": assigned}[kind]
    slopes, starts = numbers(0.0, 1.0, 4.0), numbers(0.0, 0.0, 1.0)

    def interpolated(x: Tensor) -> Tensor:
        places = rounded(x)
        return ((starts[places] + (x - places) * slopes[places]) * WEIGHTS).sum()

    assert_found_nearby(interpolated, numbers(1.0, 1.0))
    assert_found_nearby(lambda x: interpolated(x) - interpolated(2 - x), numbers(1.0, 0.5))


MOVING_BOUNDARIES: dict[str, Callable[[Tensor], Tensor]] = {
    "searchsorted": lambda edges: torch.searchsorted(edges, numbers(1.0)),
    "searchsorted a number": lambda edges: torch.searchsorted(edges, 1.0),
    "searchsorted in rows": lambda edges: torch.searchsorted(edges.expand(2, 3), numbers(1.0, 1.0)[:, None])[0],
    "bucketize": lambda edges: torch.bucketize(numbers(1.0), edges),
    "bucketize a number": lambda edges: torch.bucketize(1.0, edges, right=True),
}


@pytest.mark.parametrize("kind", MOVING_BOUNDARIES)
def test_boundaries_may_move(kind: str) -> None:
    def function(x: Tensor) -> Tensor:
        place = MOVING_BOUNDARIES[kind](torch.stack([x[0] - 1, x[0], x[0] + 1]))
        return torch.where(place <= 1, 2 * (1 - x[0]), 5 * (1 - x[0])).sum() + x[1]

    assert_found_nearby(function, numbers(1.0, 0.0))


@pytest.mark.parametrize("how", ["quantile", "nanquantile"])
def test_levels_of_quantiles_have_the_slopes_of_their_two_sides(how: str) -> None:
    entries = numbers(0.0, 1.0, 3.0, 7.0, 8.0)
    quantile = getattr(torch, how)
    assert_found_nearby(lambda q: quantile(entries, q[0]), numbers(0.5))
    assert_found_nearby(lambda q: (quantile(entries, q) * WEIGHTS).sum(), numbers(0.25, 0.6))
    assert_found_nearby(
        lambda q: (quantile(torch.stack([entries, -entries], 1), q, 0) * WEIGHTS).sum(), numbers(0.5, 0.3)
    )
    assert_found_nearby(lambda q: quantile(entries.outer(q), q, 0, True).diagonal().sum(), numbers(0.75, 0.1))
    away = numbers(0.3)
    torch.testing.assert_close(
        subgrad.grad(lambda q: quantile(entries, q[0]))(away), torch.func.grad(lambda q: quantile(entries, q[0]))(away)
    )


@pytest.mark.parametrize("how", ["lower", "higher", "nearest", "midpoint"])
def test_quantiles_that_jump_in_their_level_are_refused(how: str) -> None:
    level = numbers(0.25, 0.25, 0.25, 0.25) if how == "nearest" else numbers(0.5, 0.5, 0.5, 0.5)
    with pytest.raises(Refused, match="jumps"):
        subgrad.grad(lambda q: torch.quantile(numbers(0.0, 1.0, 3.0), q, interpolation=how).sum())(level)


CUT: dict[str, tuple[Function, complex]] = {
    **{name: (getattr(torch, name), -2.0) for name in ("angle", "log", "log2", "log10", "sqrt", "rsqrt", "log1p")},
    **{name: (getattr(torch, name), -2.0) for name in ("acos", "arccos", "asin", "acosh", "atanh")},
    **{f"{name} to the right": (getattr(torch, name), 3.0) for name in ("acos", "asin", "atanh")},
    "acosh inside": (torch.acosh, 0.5),
    "pow": (lambda z: z**0.5, -2.0),
    "pow of a tensor": (lambda z: torch.pow(z, torch.full_like(z.real, 1.5)), -2.0),
    "in place": (lambda z: z.clone().log_(), -2.0),
    **{name: (getattr(torch, name), 2j) for name in ("atan", "asinh")},
    **{f"{name} below": (getattr(torch, name), -2j) for name in ("atan", "asinh")},
}


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("kind", CUT)
def test_branch_cuts_are_taken_on_the_side_that_is_moved_to(kind: str, dtype: torch.dtype) -> None:
    """Times what vanishes there a jump becomes a kink."""
    function, centre = CUT[kind]

    def program(x: Tensor) -> Tensor:
        moved, other = x, torch.full_like(x, centre.real or centre.imag)
        z = torch.complex(moved, other) if centre.imag else torch.complex(other, moved)
        found = function(z)
        return ((found.real + 2 * found.imag) * x).sum() if found.is_complex() else (found * x * WEIGHTS.to(x)).sum()

    nearby = gradients_nearby(program, numbers(0.0, 0.0))
    for seed in range(4):
        found = subgrad.grad(program, seed=seed)(torch.zeros(2, dtype=dtype)).double()
        assert min((found - each).abs().max() for each in nearby) < 1e-3, (found, nearby[:3])


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", ["log", "sqrt", "acos", "atan", "asinh below"])
def test_so_they_are_where_no_values_are_asked(kind: str, seed: int) -> None:
    """With a tolerance."""
    function, centre = CUT[kind]

    def program(x: Tensor) -> Tensor:
        other = torch.full_like(x, centre.real or centre.imag)
        found = function(torch.complex(x, other) if centre.imag else torch.complex(other, x))
        return ((found.real + 2 * found.imag) * x * WEIGHTS).sum()

    found = subgrad.element(program, seed=seed, tol=1e-9)(numbers(0.0, 0.0))
    further = torch.func.grad(program)(1e-7 * found.direction)
    torch.testing.assert_close(found.gradient, further, rtol=1e-5, atol=1e-5)


def test_branch_cuts_may_be_met_beside_numbers_of_the_same_size() -> None:
    function: Function = lambda x: torch.log1p(torch.complex(x, 0 * x)).real.sum() + x.abs().sum()  # noqa: E731
    found = subgrad.grad(function, tol=1e-9)(numbers(-2.0, 1.0))
    torch.testing.assert_close(found, numbers(-1 - 1, 1 / 2 + 1))


def test_branch_cuts_are_refused_where_they_end_and_where_the_program_jumps() -> None:
    with pytest.raises(Refused, match=r"log\(\) at .*test_unseen.py"):
        subgrad.grad(lambda x: torch.complex(x, x).log().real.sum())(numbers(0.0))
    with pytest.raises(Refused, match="jumps"):
        subgrad.grad(lambda x: torch.angle(torch.complex(-torch.ones_like(x), x)).sum())(numbers(0.0, 0.0, 0.0))


def test_powers_whose_exponent_is_a_tensor_warn_of_nothing(recwarn: pytest.WarningsRecorder) -> None:
    def program(x: Tensor) -> Tensor:
        return (torch.complex(-torch.ones_like(x), x) ** torch.tensor([2.0, 3.0])).imag.sum() + x.abs().sum()

    found = subgrad.element(program)(numbers(0.0, 0.0))
    torch.testing.assert_close(found.gradient, numbers(-2.0, 3.0) + found.direction.sign())
    assert not [each for each in recwarn if issubclass(each.category, UserWarning)]


def test_along_a_branch_cut_nothing_jumps() -> None:
    def function(x):
        return (torch.sqrt(torch.complex(x, torch.zeros_like(x))).imag * WEIGHTS).sum() + x.abs().sum()

    found = subgrad.grad(function)(numbers(-4.0, -1.0))
    torch.testing.assert_close(found, torch.func.grad(function)(numbers(-4.0, -1.0)))


LISTS: dict[str, Function] = {
    "abs": lambda x: torch._foreach_abs([x, x[:1]])[0],
    "clamps": lambda x: torch._foreach_clamp_min([x], 0.0)[0] + torch._foreach_clamp_max([x], [0.0])[0],
    "in place": lambda x: in_place(torch._foreach_abs_, x),
    "maximum of tensors": lambda x: torch._foreach_maximum([x], [torch.zeros_like(x)])[0],
    "maximum of numbers": lambda x: torch._foreach_maximum([x, x], 0.0)[1],
    "minimum in place": lambda x: in_place(torch._foreach_minimum_, x, [0.0]),
    "sign": lambda x: torch._foreach_mul(torch._foreach_sign([x]), [x])[0],
    "norm": lambda x: torch._foreach_norm([x - 1, x], ord=1)[1] + x,
    "max": lambda x: torch._foreach_max([x])[0] + x,
    "powsum": lambda x: torch._foreach_powsum([x], 1)[0] + x if hasattr(torch, "_foreach_powsum") else x,
    "addcmul": lambda x: torch._foreach_addcmul([x], [x.abs()], [x + 1], [2.0])[0],
    "addcdiv with a tensor": lambda x: torch._foreach_addcdiv([x], [x.abs()], [x + 1], numbers(2.0))[0],
    "lerp": lambda x: torch._foreach_lerp([x], [x.abs()], 0.25)[0],
    "add with alpha": lambda x: torch._foreach_add([x], [x.abs()], alpha=3)[0],
    "public": lambda x: torch.foreach.abs([x])[0] if hasattr(torch, "foreach") else x.abs(),
    "public, in place": lambda x: in_place(torch.foreach.abs_, x) if hasattr(torch, "foreach") else x.abs(),
}


def in_place(function: Callable[..., object], x: Tensor, *others: object) -> Tensor:
    copied = x * 1
    function([copied], *others)
    return copied


@pytest.mark.parametrize("kind", LISTS)
def test_lists_of_tensors_are_what_their_tensors_are(kind: str) -> None:
    assert_found_nearby(lambda x: (LISTS[kind](x) * WEIGHTS).sum(), numbers(0.0, 0.0))


@pytest.mark.skipif(not hasattr(torch, "_foreach_powsum"), reason="this torch has no sums of powers")
def test_sums_of_powers_are_in_the_dtype_that_is_asked_for() -> None:
    x = torch.tensor([0.0, -1.0, 2.0])
    value, slope = subgrad.jvp(
        lambda x: torch._foreach_powsum([x.abs()], 3, dtype=torch.float64)[0], (x,), (torch.tensor([1.0, 0.25, -0.5]),)
    )
    assert (value.dtype, value.item()) == (torch.float64, 9.0)
    assert (slope.dtype, slope.item()) == (torch.float64, -6.75)


@pytest.mark.parametrize("name", [name for name in dir(torch) if name.startswith("_foreach_")])
def test_every_function_of_lists_has_the_value_of_torch_and_its_slope(name: str) -> None:
    """Where it is smooth; torch has no derivative of some of them."""
    other, third = [numbers(0.4, 0.2), numbers(0.9)], [numbers(1.1, 1.2), numbers(1.3)]

    def program(x: Tensor) -> Tensor:
        given, others = [x[:2] * 1, x[2:] * 1], other
        if name == "_foreach_mm":
            given, others = ([each.outer(each) for each in several] for several in (given, other))
        out = run(name, given, others, third)
        found = given if name.endswith("_") else list(out)  # type: ignore[call-overload]
        return torch.stack([(number + 2) * (each * (each + 1)).sum() for number, each in enumerate(found)]).sum()

    point = numbers(0.3, 0.6, 0.7)
    reached, found = subgrad.value_and_grad(program)(point)
    assert torch.equal(reached, program(point))
    expected = torch.stack([(program(point + e) - program(point - e)) / 2e-6 for e in 1e-6 * torch.eye(3).double()])
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6)


def run(name: str, given: list[Tensor], other: list[Tensor], third: list[Tensor]) -> object:
    function = getattr(torch, name)
    for args in ((given, other, third), (given, other), (given,)):
        try:
            return function(*args)
        except TypeError:
            continue
    raise AssertionError(f"{name} was called in no way that torch knows")


# Each on one line, with a part that torch takes for a constant: the line that is named.
LEAKS: dict[str, tuple[str, Function]] = {
    "detach_": ("detach_", lambda x: (x + (x.round() - x).detach_()).sum()),
    "no_grad with a list": ("cat under no_grad", lambda x: (x * torch.no_grad()(torch.cat)([x, x])[:2]).sum()),
    "no_grad with keywords": (
        "mul under no_grad",
        lambda x: (x * torch.no_grad()(torch.mul)(input=x, other=1.0)).sum(),
    ),
    "no_grad with a handled call": ("log under no_grad", lambda x: (x * torch.no_grad()(torch.log)(x)).sum()),
    "no_grad with a cast": (
        "to under no_grad",
        lambda x: (x * torch.no_grad()(lambda y: y.to(torch.complex128))(x).real).sum(),
    ),
    "no_grad in place": ("mul_ under no_grad", lambda x: torch.no_grad()(lambda y: y.mul_(x))(x * 1).sum()),
    "inference_mode": ("mul", lambda x: (x * torch.inference_mode()(lambda y: y * 1)(x).clone()).sum()),
    "inference_mode with a handled call": ("log", lambda x: (x * torch.inference_mode()(torch.log)(x).clone()).sum()),
    "tensor": ("tensor", lambda x: (x * torch.tensor(x)).sum()),
    "tensor of a list": ("stack", lambda x: (x * torch.tensor([x[0], x[1]])).sum()),
    "as_tensor of a list": ("stack", lambda x: (x * torch.as_tensor([x[0], 1.0])).sum()),
    "new_tensor": ("new_tensor", lambda x: (x * x.new_tensor(x)).sum()),
    "new_tensor of another": ("new_tensor", lambda x: (x * torch.ones(1).double().new_tensor(data=x)).sum()),
    "data": ("data", lambda x: (x * x.data).sum()),
    "operator": ("detach", lambda x: (x * torch.ops.aten.detach.default(x)).sum()),
    "detach_copy": ("detach_copy", lambda x: (x * torch.detach_copy(x)).sum()),
    "deepcopy": ("detach", lambda x: (x * copy.deepcopy(x.detach())).sum()),
    "deepcopy of a leaf": ("__deepcopy__", lambda x: (x * x.__deepcopy__({})).sum()),
    "numpy": ("detach", lambda x: (x * torch.from_numpy(x.detach().numpy())).sum()),
    "dlpack": ("detach", lambda x: (x * torch.from_dlpack(x.detach())).sum()),
    "complex number": ("__complex__", lambda x: (x * complex(x[0]).real).sum()),
    "item inside a list": ("item", lambda x: (x * torch.tensor([x[0].item(), 1.0]).double()).sum()),
    "tolist": ("tolist", lambda x: (x * torch.tensor(x.tolist())).sum()),
    "linspace": ("linspace", lambda x: (x * torch.linspace(x[0], x[1], 2, dtype=torch.float64)).sum()),
    "other numbers": ("view", lambda x: (x * x.view(torch.int64).view(torch.float64)).sum()),
    "requires_grad_": ("requires_grad_", lambda x: (x.requires_grad_(False) * x).sum()),
    "normal": ("randn_like", lambda x: torch.normal(x, 1.0).sum()),
    "no derivative in torch": ("special_airy_ai", lambda x: torch.special.airy_ai(x).sum()),
    "in place truth": ("logical_not_", lambda x: (x * 1).logical_not_().sum()),
    "dropped zeros": ("to_sparse", lambda x: (x - x.detach()).to_sparse().values().sum()),
    "clamped variance": ("gaussian_nll_loss", lambda x: F.gaussian_nll_loss(x, x * 2, 5e-7 * x.abs())),
    "histc": ("histc", lambda x: x.sum() * torch.histc(x - x[0] + 1, 2, 0, 2)[0]),
    "histogram": ("histogram", lambda x: x.sum() * torch.histogram(x - x[0] + 1, 2, range=(0.0, 2.0)).hist[0]),
    "histogram by edges": ("histogram", lambda x: x.sum() * torch.histogram(x, numbers(0.0, 0.3, 1.0))[0][0]),
    "histogramdd": (
        "histogramdd",
        lambda x: x.sum() * torch.histogramdd(x[None], [2, 2], range=[0.3, 1.0] * 2)[0].sum(),
    ),
    "histogram's weights": ("histogram", lambda x: torch.histogram(x.detach(), 2, weight=x).hist.sum()),
    "unique rows": ("unique", lambda x: x[None].unique(dim=0).sum()),
}


def hooked(x: Tensor, hook: Callable[[Tensor], Tensor]) -> Tensor:
    if x.requires_grad:  # which the values nearby are computed without
        x.register_hook(hook)
    return x


def data_set(x: Tensor) -> Tensor:
    y = x * 1
    y.data = x.detach() ** 3
    return (y * x).sum()


@pytest.mark.parametrize("kind", LEAKS)
def test_what_is_cut_off_is_refused_with_its_line(kind: str) -> None:
    name, function = LEAKS[kind]
    with pytest.raises(Refused) as raised:
        subgrad.grad(function)(numbers(0.3, 0.7))
    assert name in str(raised.value)
    assert f"{Path(__file__).name}:{inspect.getsourcelines(function)[1]}" in str(raised.value)


def test_hooks_that_change_gradients_are_refused_with_their_line() -> None:
    with pytest.raises(Refused, match=r"register_hook at .*test_unseen.py"):
        subgrad.grad(lambda x: hooked(x * 2, lambda g: 3 * g).sum())(numbers(0.3, 0.7))


def test_replaced_numbers_are_refused_with_their_line() -> None:
    with pytest.raises(Refused, match=r"data= at .*test_unseen.py:\d+ puts other numbers"):
        subgrad.grad(data_set)(numbers(0.3, 0.7))


# What only the values of the program can tell about: noted, with its line, so that it is held against them.
NOTED: dict[str, tuple[str, Function]] = {
    "written into data": ("data", lambda x: torch.zeros(2).data.copy_(x).sum()),
    "storage": ("untyped_storage", lambda x: x.sum() * len(x.untyped_storage())),
    "nonzero_static": ("nonzero_static", lambda x: x.nonzero_static(size=2).sum() + x.sum()),
    "matrix_rank": ("linalg_matrix_rank", lambda x: torch.linalg.matrix_rank(torch.diag(x)) + x.sum()),
    "quantised": (
        "quantize_per_tensor",
        lambda x: torch.quantize_per_tensor(x.float(), 0.1, 0, torch.quint8).dequantize().sum(),
    ),
    "scaled rows": ("embedding", lambda x: F.embedding(torch.tensor([0]), 1 * x[None], max_norm=0.5).sum()),
    "saved mean": ("native_layer_norm", lambda x: torch.native_layer_norm(x, (2,), None, None, 1e-5)[1].sum()),
    "ctc_loss of other numbers": (
        "ctc_loss",
        lambda x: F.ctc_loss(x.expand(3, 1, 2), torch.ones(1, 1).long(), (3,), (1,)),
    ),
}


@pytest.mark.parametrize("kind", NOTED)
def test_what_only_the_values_can_tell_about_is_noted_with_its_line(kind: str) -> None:
    name, function = NOTED[kind]
    current = Look(0.0)
    with running(current), Watch(current):
        function(numbers(0.3, 0.7).requires_grad_())
    lines = [f"{name} at {__file__}:{inspect.getsourcelines(function)[1]}"]
    assert current.leaks[:1] == lines


@pytest.mark.parametrize("shift", [torch.zeros_like, lambda x: x.detach().max()], ids=["plain", "beside detach"])
def test_ctc_loss_moves_as_its_values_do(shift: Function) -> None:
    """With a tolerance, by which its rule is not held against them."""

    def program(x: Tensor) -> Tensor:
        scores = (x - shift(x)).view(3, 1, 2).log_softmax(-1)
        return F.ctc_loss(scores, torch.ones(1, 1).long(), (3,), (1,)) + x[2:].abs().sum()

    x = numbers(0.3, 0.1, 0.0, 0.7, -0.2, 0.4)
    found = subgrad.element(program, tol=1e-9)(x)
    further, step = x + 1e-6 * found.direction, 1e-6 * torch.eye(6).double()
    wanted = torch.stack([(value(program, further + e / 2) - value(program, further - e / 2)) / 1e-6 for e in step])
    torch.testing.assert_close(found.gradient, wanted, rtol=1e-4, atol=1e-4)
    assert found.slope == pytest.approx(float(wanted @ found.direction), rel=1e-4)


def test_ctc_loss_of_log_softmax_is_not() -> None:
    current = Look(0.0)
    with running(current), Watch(current):
        scores = numbers(0.3, 0.7).requires_grad_().expand(1, 3, 2).log_softmax(-1).transpose(0, 1)
        F.ctc_loss(scores, torch.ones(1, 1).long(), (3,), (1,))
    assert not current.leaks


def nearly_long_rows() -> tuple[Tensor, float]:
    """A row and a length between the row's own and that to which torch rounds it, by which torch scales it."""
    for seed in range(100):
        row = torch.randn(1, 8, generator=torch.Generator().manual_seed(seed))
        most = (float(row.double().norm()) + float(row.norm())) / 2
        scaled = row.clone()
        F.embedding(torch.tensor([0]), scaled, max_norm=most)
        if float(row.double().norm()) < most and not torch.equal(scaled, row):
            return row, most
    raise AssertionError("torch rounds no length upwards")


@pytest.mark.parametrize("indices", [[[0, 1], [1, 0]], 0], ids=["a matrix of indices", "one index"])
def test_rows_that_are_scaled_are_not_those_of_the_argument(indices: list[list[int]] | int) -> None:
    table = torch.full((2, 4), 0.4)
    with pytest.raises(Refused):
        subgrad.grad(lambda x: F.embedding(torch.tensor(indices), x, max_norm=0.7).exp().sum())(table)
    assert torch.equal(table, torch.full((2, 4), 0.4))


def test_rows_that_are_scaled_by_rounding_are_not_those_of_the_argument() -> None:
    table, most = nearly_long_rows()
    before = table.clone()
    found = subgrad.grad(lambda x: F.embedding(torch.tensor([0]), x, max_norm=most).exp().sum())(table)
    torch.testing.assert_close(found, before.exp())
    assert torch.equal(table, before)


HARMLESS: dict[str, Function] = {
    "shown": lambda x: (f"{x[0]:.3f} {x}", x.abs())[1],
    "asked for shapes": lambda x: x.abs() * x.dim() * x.shape[0] * len(x) * x.numel() * x.stride(0),
    "factories": lambda x: (
        x.abs() + torch.zeros_like(x) + x.new_ones(2) + torch.full_like(x, 3.0) + x.new_full((2,), 2.0)
    ),
    "metric": lambda x: (torch.no_grad()(lambda y: (y > 0).double().mean())(x), x.abs())[1],
    "metric in inference_mode": lambda x: (torch.inference_mode()(lambda y: (y * 2 > 0).double().mean())(x), x.abs())[
        1
    ],
    "stable softmax": lambda x: (x - x.max().detach()).exp().sum().log() + x.max().detach() + x.abs(),
    "broadcast": lambda x: torch.broadcast_tensors(x.abs(), torch.ones(2))[0],
    "constants": lambda x: torch.tensor([1.0, 2.0]) * torch.as_tensor([3.0, 4.0]) * x.abs() * torch.full((2,), 2.0),
    "unbind": lambda x: torch.stack([number * each.abs() for number, each in enumerate(x.unbind(), 1)]),
    "iteration": lambda x: torch.stack([number * each.abs() for number, each in enumerate(x, 1)]),
    "//": lambda x: torch.arange(2) // 2 * x + x.abs() + x.abs().add(0.5) // 1,
    "unique labels": lambda x: x.abs() * torch.tensor([1, 1, 2]).unique().sum(),
    "unique numbers": lambda x: torch.cat([x, x + 1]).unique()[1:3].pow(2).sum() + x.abs(),
    "counts": lambda x: torch.bincount(torch.tensor([1, 0]), weights=x.abs()),
    "retained": lambda x: (x.retain_grad() if x.requires_grad else None, x.abs())[1],
    "hook that looks": lambda x: hooked(x * 2, lambda g: g).abs(),
    "vmap": lambda x: torch.vmap(lambda v: torch.relu(v) - 2 * torch.relu(-v))(x),
    "vmap of a layer": lambda x: torch.vmap(lambda v: F.linear(v.relu(), WEIGHTS[:, None], WEIGHTS))(x[:, None]).sum(1),
    "vmap of where": lambda x: torch.vmap(lambda v: torch.where(v > 0, v, -v))(x),
    "gumbel_softmax": lambda x: F.gumbel_softmax(x, hard=False) + x.abs(),
    "checkpoint": lambda x: torch.utils.checkpoint.checkpoint(lambda y: y.abs(), x * 2, use_reentrant=False),
    "packed": lambda x: padded(pack_padded_sequence(torch.stack([x.abs(), x + 2])[..., None], [2, 1])),
    "packed, unsorted": lambda x: padded(
        pack_padded_sequence(torch.stack([x.abs(), x + 2])[..., None], [1, 2], enforce_sorted=False)
    ),
}


def padded(packed: object) -> Tensor:
    found, lengths = pad_packed_sequence(packed)  # type: ignore[arg-type]
    return found[..., 0].sum(0) * lengths


@pytest.mark.parametrize("kind", HARMLESS)
def test_ordinary_programs_are_not_refused(kind: str) -> None:
    assert_found_nearby(
        lambda x: (HARMLESS[kind](x) * WEIGHTS).sum(), numbers(0.0, 0.0) if "unique" not in kind else numbers(0.0, 0.5)
    )


def test_conditions_and_loops_of_torch_are_followed() -> None:
    import torch._dynamo  # which torch.cond loads

    assert torch._dynamo
    ahead: Function = lambda x: torch.cond(  # noqa: E731
        x.sum() > 0, lambda y: (y.abs() * WEIGHTS).sum(), lambda y: (2 * y.abs() * WEIGHTS).sum(), (x,)
    )
    for point in (numbers(0.0, 1.0), numbers(0.0, -1.0), numbers(0.0, 0.0)):
        nearby = [
            torch.func.grad(lambda x: (x.abs() * WEIGHTS).sum() * (1 if x.sum() > 0 else 2))(point + 1e-6 * each)
            for each in torch.randn(40, 2, dtype=torch.float64)
        ]
        for seed in range(4):
            found = subgrad.grad(ahead, seed=seed)(point)
            assert min((found - each).abs().max() for each in nearby) < 1e-9


def test_a_run_that_ends_early_leaves_no_state_of_torch_behind() -> None:
    """To show a tensor switches transforms off as long as its frame lives, which the error of a run may hold."""
    gc.collect()
    gc.disable()
    try:
        subgrad.grad(lambda x: (repr(x), x.abs())[1].sum())(numbers(0.0, 0.0))
        assert torch.func.grad(lambda x: (x.abs() * WEIGHTS).sum())(numbers(1.0, 1.0)).tolist() == WEIGHTS.tolist()
    finally:
        gc.enable()


def test_handlers_and_conventions_leave_nothing_behind() -> None:
    for _, function in LEAKS.values():
        with pytest.raises(Refused):
            subgrad.grad(function)(numbers(0.3, 0.7))
    assert torch.is_grad_enabled()
    assert not torch.is_inference_mode_enabled()
    assert torch.overrides._get_current_function_mode() is None


def test_what_lists_are_written_into_is_as_after_one_run() -> None:
    buffer = torch.zeros(2, dtype=torch.float64)

    def program(x: Tensor) -> Tensor:
        torch._foreach_add_([buffer], 1.0)
        torch.nn.init.uniform_(buffer[1:], 7.0, 8.0)
        return (x.abs() * buffer).sum()

    torch.manual_seed(3)
    subgrad.grad(program)(numbers(0.0, 0.0))
    after = buffer.clone()
    buffer.zero_()
    torch.manual_seed(3)
    program(numbers(0.0, 0.0))
    assert torch.equal(after, buffer)


def test_signs_that_tie_twice_are_those_of_what_is_ahead() -> None:
    x = torch.zeros(2).double()
    weights = torch.tensor([2.0, 3.0]).double()
    found = subgrad.grad(lambda x: (torch.where(torch.signbit(x * x), 5 * x, x) * weights).sum())(x)
    assert found.tolist() == [2.0, 3.0]
    found = subgrad.grad(lambda x: (torch.where(torch.signbit(-x * x), 5 * x, x) * weights).sum())(x)
    assert found.tolist() == [10.0, 15.0]


def test_hooks_that_are_taken_away_again_change_nothing() -> None:
    def program(x: Tensor) -> Tensor:
        y = x.abs() * 3
        y.register_hook(lambda cotangent: 2 * cotangent).remove()
        return y[0] + 2 * y[1] - y[2]

    assert subgrad.grad(program)(torch.tensor([-1.0, 2.0, 4.0])).tolist() == [-3.0, 6.0, -3.0]
    found = subgrad.element(program)(torch.zeros(3))
    assert found.direction is not None
    assert found.gradient.tolist() == (torch.tensor([3.0, 6.0, -3.0]) * found.direction.sign()).tolist()


@pytest.mark.parametrize("jump", [torch.frac, lambda x: torch.remainder(x, 1)], ids=["frac", "remainder"])
def test_what_ties_with_the_limit_of_a_jump_ties_exactly(jump: Callable[[Tensor], Tensor]) -> None:
    def program(x: Tensor) -> Tensor:
        return (torch.relu(jump(x) + torch.floor(x) - 3) * torch.tensor([2.0, 5.0])).sum()

    for seed in range(6):
        found = subgrad.element(program, seed=seed)(torch.tensor([3.0, 3.0]))
        assert found.direction is not None
        assert found.gradient.tolist() == torch.where(found.direction > 0, torch.tensor([2.0, 5.0]), 0.0).tolist()


def test_what_is_scattered_beyond_the_rows_of_the_index_ties_there() -> None:
    index = torch.tensor([3, 3])

    def program(x: Tensor) -> Tensor:
        return (torch.zeros(4).scatter_reduce(0, index, x, "amax") * torch.tensor([1.0, 2.0, 3.0, 4.0])).sum()

    for seed in range(6):
        found = subgrad.element(program, seed=seed)(torch.zeros(2))
        assert found.direction is not None
        first, second = found.direction.tolist()
        wins = [4.0 * (first > max(second, 0)), 4.0 * (second > max(first, 0))]
        assert found.gradient.tolist() == wins
