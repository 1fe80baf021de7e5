"""`functional.fake_quantize`: torch's own values to the bit, and the gradient of a convention on every torch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

import subgrad
from subgrad import Convention
from subgrad.functional import fake_quantize

DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
GRIDS = {  # scale, zero point, first and last level
    "int4": (0.1, 0, -8, 7),
    "uint8": (0.037, 3, 0, 255),
    "two bits": (1 / 3, -1, -2, 1),
    "one bit": (0.25, 0, -1, 0),
    "one level": (0.25, 0, 0, 0),
    "zero point at an end": (0.5, 7, -8, 7),
}


def entries(scale: float, first: int, last: int, dtype: torch.dtype) -> Tensor:
    """On every level and between, beyond both ends, and what is no number."""
    halves = torch.arange(2 * first - 9, 2 * last + 10, dtype=torch.float64) / 2
    odd = torch.tensor([torch.nan, torch.inf, -torch.inf, 0.0, -0.0, 1e30], dtype=torch.float64)
    noise = torch.randn(200, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * (last - first + 1) / 2
    return torch.cat([halves * scale, odd, noise * scale]).to(dtype).requires_grad_()


def cotangent(like: Tensor) -> Tensor:
    return ((torch.arange(like.numel()) % 9 - 3.5) / 4).reshape(like.shape).to(like.dtype)


def same(one: Tensor, other: Tensor) -> bool:
    return one.dtype is other.dtype and torch.equal(one.nan_to_num(nan=77.0), other.nan_to_num(nan=77.0))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("grid", GRIDS.values(), ids=GRIDS)
def test_values_are_torchs_own_and_so_is_the_gradient_under_pass_through(
    grid: tuple[float, int, int, int], dtype: torch.dtype
) -> None:
    x = entries(grid[0], *grid[2:], dtype)
    plain = torch.fake_quantize_per_tensor_affine(x, *grid)
    (wanted,) = torch.autograd.grad(plain, x, cotangent(x))
    for convention in ("min-norm", "mean", "left", "straight-through", "pass-through", "torch", "torch-2.14"):
        out = fake_quantize(x, *grid, convention=convention)
        assert same(out, plain)
    if grid[2] < grid[3]:
        for convention in ("pass-through", "torch", "torch-2.13", "torch-2.14", "tensorflow"):
            out = fake_quantize(x, *grid, convention=convention)
            assert same(torch.autograd.grad(out, x, cotangent(x))[0], wanted)
    tensors = (torch.tensor([grid[0]]), torch.tensor(grid[1]), *grid[2:])
    assert same(fake_quantize(x, *tensors), plain)
    assert same(fake_quantize(x.detach(), *grid), plain)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_channels_are_torchs_own(axis: int, dtype: torch.dtype) -> None:
    x = entries(0.1, -8, 7, dtype).detach()[:240].reshape(4, 12, 5).requires_grad_()
    count = x.shape[axis]
    scale, zero_point = torch.arange(1, count + 1) / 40, torch.arange(count, dtype=torch.int32) - 2
    plain = torch.fake_quantize_per_channel_affine(x, scale, zero_point, axis % 3, -8, 10)
    (wanted,) = torch.autograd.grad(plain, x, cotangent(x))
    out = fake_quantize(x, scale, zero_point, -8, 10, axis % 3)
    assert same(out, plain)
    assert same(torch.autograd.grad(out, x, cotangent(x))[0], wanted)
    assert same(fake_quantize(x, scale, zero_point.long(), -8, 10, axis % 3, convention="mean"), plain)


# One entry beyond the first level, on it, between, on the last, and beyond.
X = torch.tensor([-1.2, -0.8, 0.34, 0.7, 0.9])
SLOPES = {
    "min-norm": [0, 0, 1, 0, 0],
    "documented": [0, 0, 1, 0, 0],
    "left": [0, 0, 1, 1, 0],
    "right": [0, 1, 1, 0, 0],
    "mean": [0, 0.5, 1, 0.5, 0],
    "jax": [0, 0.5, 1, 0.5, 0],
    "mlx": [0, 0, 1, 0, 0],
    "paddle": [0, 1, 1, 1, 0],
    "pass-through": [0, 1, 1, 1, 0],
    "straight-through": [1, 1, 1, 1, 1],
    Convention("min-norm", clamp=0.25): [0, 0.25, 1, 0.25, 0],
    Convention("min-norm", clamp="pass-through"): [0, 1, 1, 1, 0],
    Convention("min-norm", clamp="torch"): [0, 1, 1, 1, 0],
}
GIVEN = torch.tensor([2.0, -3.0, 5.0, 0.5, -7.0])


@pytest.mark.parametrize(("convention", "slopes"), SLOPES.items(), ids=map(str, SLOPES))
def test_every_mode_has_the_slope_of_clamp_on_the_outer_levels(convention: Any, slopes: list[float]) -> None:
    def function(x: Tensor) -> Tensor:
        return fake_quantize(x, 0.1, 0, -8, 7, convention=convention)

    x, wanted = X.clone().requires_grad_(), torch.tensor(slopes) * GIVEN
    assert torch.equal(torch.autograd.grad(function(x), x, GIVEN)[0], wanted)
    assert torch.equal(torch.func.grad(lambda x: (function(x) * GIVEN).sum())(X), wanted)
    if convention != Convention("min-norm", clamp="torch"):  # torch has no forward mode, and no rule for batches
        assert torch.equal(torch.func.jvp(function, (X,), (GIVEN,))[1], wanted)
        assert torch.equal(torch.func.vmap(torch.func.grad(lambda x, v: function(x) * v))(X, GIVEN), wanted)
    (first,) = torch.autograd.grad(function(x) ** 2, x, GIVEN, create_graph=True)
    assert torch.allclose(torch.autograd.grad(first.sum(), x)[0], 2 * torch.tensor(slopes) ** 2 * GIVEN)


def test_a_slope_of_zero_stops_what_is_not_finite() -> None:
    x = X.clone().requires_grad_()
    given = torch.tensor([torch.inf, torch.nan, 1.0, torch.inf, torch.nan])
    out = fake_quantize(x, 0.1, 0, -8, 7, convention="min-norm")
    assert torch.autograd.grad(out, x, given)[0].tolist() == [0, 0, 1, 0, 0]


def test_what_is_in_force_around_it_does_not_count() -> None:
    x = X.clone().requires_grad_()
    with subgrad.use("straight-through"):
        out = fake_quantize(x, 0.1, 0, -8, 7, convention="min-norm")
    assert torch.autograd.grad(out.sum(), x)[0].tolist() == SLOPES["min-norm"]


LEARNED = [(first, last, zero_point) for first, last in ((-8, 7), (0, 15)) for zero_point in (0.0, 2.0, 2.4)]


def leaves(*tensors: Tensor) -> list[Tensor]:
    return [each.detach().clone().requires_grad_() for each in tensors]


@pytest.mark.parametrize(("first", "last", "zero_point"), LEARNED)
def test_learned_steps_are_torchs_own(first: int, last: int, zero_point: float) -> None:
    given = entries(0.1, first, last, torch.float32).detach()
    given = given[given.isfinite() & (given.abs() < 100)]
    tensors = leaves(given, torch.tensor([0.1]), torch.tensor([zero_point]))
    plain = torch._fake_quantize_learnable_per_tensor_affine(*tensors, first, last, 0.25)
    wanted = torch.autograd.grad(plain, tensors, cotangent(given))
    out = fake_quantize(*tensors, first, last, grad_factor=0.25)
    assert same(out, plain)
    for found, expected in zip(torch.autograd.grad(out, tensors, cotangent(given)), wanted, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


def test_learned_channels_are_torchs_own() -> None:
    """Off the halves between levels: there torch's backward rounds otherwise than its forward."""
    x = entries(0.1, -8, 7, torch.float32).detach() + 0.003
    x = x[x.isfinite() & (x.abs() < 100)][:220].reshape(11, 4, 5)
    tensors = leaves(x, torch.tensor([0.05, 0.1, 0.15, 0.2]), torch.tensor([-3.0, 0.0, 2.6, 7.0]))
    plain = torch._fake_quantize_learnable_per_channel_affine(*tensors, 1, -8, 7, 0.5)
    wanted = torch.autograd.grad(plain, tensors, cotangent(x))
    out = fake_quantize(*tensors, -8, 7, 1, grad_factor=0.5)
    assert same(out, plain)
    for found, expected in zip(torch.autograd.grad(out, tensors, cotangent(x)), wanted, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


def test_zero_points_below_zero_are_one_in_value_and_gradient() -> None:
    """In torch's own backward for a whole tensor they are one level off: its value is cut off at 0.9, and its slope
    from 0.85 on is 0 and its gradient of the scale 8 where it is 9."""
    tensors = leaves(torch.tensor([0.9, 2.0]), torch.tensor([0.1]), torch.tensor([-2.0]))
    plain = torch._fake_quantize_learnable_per_tensor_affine(*tensors, -8, 7, 1.0)
    out = fake_quantize(*tensors, -8, 7)
    assert same(out, plain)
    assert torch.autograd.grad(plain, tensors[0], torch.tensor([2.0, -3.0]))[0].tolist() == [0, 0]
    of_x, of_scale, of_zero_point = torch.autograd.grad(out, tensors, torch.tensor([2.0, -3.0]))
    assert of_x.tolist() == [2, 0]
    torch.testing.assert_close(of_scale, torch.tensor([-3.0 * 9]))
    torch.testing.assert_close(of_zero_point, torch.tensor([3.0 * 0.1]))


def by_formula(x: Tensor, scale: float, zero_point: int, given: Tensor, slopes: Tensor) -> tuple[float, float]:
    """The gradients of scale and zero point, entry by entry, in double precision."""
    of_scale = of_zero_point = 0.0
    for entry, weight, cotangent in zip(x.tolist(), slopes.tolist(), given.tolist(), strict=True):
        level = min(max(round(entry / scale) + zero_point, -8), 7)
        of_scale += cotangent * ((level - zero_point) - weight * entry / scale)
        of_zero_point += cotangent * (weight - 1) * scale
    return of_scale, of_zero_point


@pytest.mark.parametrize("zero_point", [0.0, 1.0, -2.0])
@pytest.mark.parametrize("convention", ["min-norm", "mean", "left", "pass-through", "straight-through"])
def test_learned_steps_follow_the_formula(convention: str, zero_point: float) -> None:
    shifted = X - zero_point * 0.1
    x, scale, zero = tensors = leaves(shifted, torch.tensor([0.1]), torch.tensor([zero_point]))
    found = torch.autograd.grad(fake_quantize(*tensors, -8, 7, convention=convention), tensors, GIVEN)
    assert torch.equal(found[0], torch.tensor(SLOPES[convention]) * GIVEN)
    wanted = by_formula(x, 0.1, int(zero_point), GIVEN, torch.tensor(SLOPES[convention]))
    torch.testing.assert_close(torch.stack([each.sum() for each in found[1:]]), torch.tensor(wanted))

    def along(v: Tensor, t: Tensor, u: Tensor) -> Tensor:
        return torch.func.jvp(
            lambda x, s, z: fake_quantize(x, s, z, -8, 7, convention=convention),
            tuple(each.detach() for each in tensors),
            (v, t, u),
        )[1]

    tangents = (torch.zeros(5), torch.ones(1), torch.tensor([0.5]))
    torch.testing.assert_close((along(*tangents) * GIVEN).sum(), torch.tensor(wanted[0] + 0.5 * wanted[1]))
    (of_scale,) = torch.autograd.grad(
        fake_quantize(*tensors, -8, 7, convention=convention), scale, GIVEN, create_graph=True
    )
    if convention == "straight-through":  # linear in all three
        assert not of_scale.requires_grad
        return
    (twice,) = torch.autograd.grad(of_scale, zero)
    torch.testing.assert_close(twice, ((torch.tensor(SLOPES[convention]) - 1) * GIVEN).sum().reshape(1))


def test_entries_that_are_no_numbers_do_not_reach_the_scale() -> None:
    x = torch.tensor([torch.nan, -torch.inf, 3e38, 0.34], requires_grad=True)
    scale = torch.tensor([1e-3], requires_grad=True)
    out = fake_quantize(x, scale, torch.tensor([0.0]), -8, 7)
    of_x, of_scale = torch.autograd.grad(out, (x, scale), torch.tensor([2.0, -3.0, 5.0, 7.0]))
    assert of_x.tolist() == [0, 0, 0, 0]
    assert of_scale.tolist() == [-8 * 2 + 8 * 3 + 7 * 5 + 7 * 7]


def test_only_the_scale_may_be_learned() -> None:
    x, scale = X.clone().requires_grad_(), torch.tensor([0.1], requires_grad=True)
    out = fake_quantize(x, scale, 0, -8, 7)
    assert same(out, fake_quantize(X, 0.1, 0, -8, 7))
    of_x, of_scale = torch.autograd.grad(out, (x, scale), GIVEN)
    assert torch.equal(of_x, torch.tensor(SLOPES["pass-through"]) * GIVEN)
    wanted, _ = by_formula(x, 0.1, 0, GIVEN, torch.tensor(SLOPES["pass-through"]))
    torch.testing.assert_close(of_scale, torch.tensor([wanted]))
    with torch.no_grad():
        assert same(fake_quantize(x, scale, 0, -8, 7), out)


def kept(out: Tensor) -> Iterator[Tensor]:
    assert out.grad_fn is not None
    yield from out.grad_fn.saved_tensors


def test_a_mask_is_kept_and_nothing_straight_through() -> None:
    x = entries(0.1, -8, 7, torch.float32)
    assert [each.dtype for each in kept(fake_quantize(x, 0.1, 0, -8, 7))] == [torch.bool]
    assert [each.dtype for each in kept(fake_quantize(x, 0.1, 0, -8, 7, convention="min-norm"))] == [torch.bool]
    assert [*kept(fake_quantize(x, 0.1, 0, -8, 7, convention="straight-through"))] == []


@pytest.mark.compiled
def test_compiled_with_learned_steps_in_one_graph() -> None:
    tensors = leaves(X, torch.tensor([0.1]), torch.tensor([1.0]))

    def function(x: Tensor, scale: Tensor, zero_point: Tensor) -> Tensor:
        first = fake_quantize(x * 1.0, 0.1, 0, -8, 7, convention="min-norm")
        second = fake_quantize(x * 1.0, 0.1, 0, -8, 7, convention="straight-through")
        return torch.stack([first, second, fake_quantize(x, scale, zero_point, -8, 7)])

    given = torch.stack([GIVEN, 2 * GIVEN, -GIVEN])
    out, plain = torch.compile(function, fullgraph=True, backend="aot_eager")(*tensors), function(*tensors)
    assert same(out, plain)
    pairs = zip(*(torch.autograd.grad(each, tensors, given) for each in (out, plain)), strict=True)
    for found, wanted in pairs:
        torch.testing.assert_close(found, wanted)


WRONG: dict[str, tuple[tuple[Any, ...], str]] = {
    "levels in the wrong order": ((0.1, 0, 7, -8), "should be less than or"),
    "zero point outside": ((0.1, 9, -8, 7), "must be between"),
}


@pytest.mark.parametrize(("given", "said"), WRONG.values(), ids=WRONG)
def test_torch_says_what_is_wrong(given: tuple[Any, ...], said: str) -> None:
    for convention in ("min-norm", "straight-through"):
        with pytest.raises(RuntimeError, match=said):
            fake_quantize(X.clone().requires_grad_(), *given, convention=convention)


def test_whole_programs_refuse_it_by_name() -> None:
    with pytest.raises(subgrad.clarke.Refused, match="straight-through slope"):
        subgrad.grad(lambda x: fake_quantize(x, 0.1, 0, -8, 7).sum())(X)


def test_an_unknown_convention_is_refused() -> None:
    with pytest.raises(ValueError, match="Did you mean 'straight-through'"):
        fake_quantize(X, 0.1, 0, -8, 7, convention="straight-thru")


def test_fx_records_it_with_its_convention() -> None:
    function: Callable[[Tensor], Tensor] = lambda x: fake_quantize(x * 1.0, 0.1, 0, -8, 7, convention="min-norm")  # noqa: E731
    traced = torch.fx.symbolic_trace(function)
    x = X.clone().requires_grad_()
    assert torch.equal(torch.autograd.grad(traced(x), x, GIVEN)[0], torch.tensor(SLOPES["min-norm"]) * GIVEN)


def test_without_gradients_an_exported_program_holds_torchs_own_operator() -> None:
    class Module(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return fake_quantize(x, 0.1, 0, -8, 7, convention="min-norm")

    with torch.no_grad():
        graph = torch.export.export(Module(), (X,)).graph
    called = [node.target for node in graph.nodes if node.op == "call_function"]
    assert called == [torch.ops.aten.fake_quantize_per_tensor_affine.default]
