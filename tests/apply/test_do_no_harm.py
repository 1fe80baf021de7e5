"""Forward values never change by a bit, gradients only at kinks: any dtype, layout, shape and special value."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, note, settings
from hypothesis import strategies as st
from torch import Tensor

import subgrad

DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
BITS = {torch.float16: torch.int16, torch.bfloat16: torch.int16, torch.float32: torch.int32, torch.float64: torch.int64}
CONVENTIONS = ("min-norm", "left", "right", "mean")
SPECIAL = (0.0, -0.0, float("nan"), float("inf"), float("-inf"), 5e-324, -1e-45, 6e-8, 1e-39, 65504.0, 3e38)

Weights = Mapping[str, float]


def by_convention(*weights: float) -> Weights:
    return dict(zip(CONVENTIONS, weights, strict=True))


@dataclass(frozen=True)
class Corners:
    """A function of one tensor, its corners, and the slope that each convention takes there."""

    name: str
    function: Callable[[Tensor], Tensor]
    places: tuple[tuple[float, Weights], ...]
    in_place: Callable[[Tensor], Tensor] | None = None

    def __str__(self) -> str:
        return self.name


CORNERS = (
    Corners("relu", torch.relu, ((0.0, by_convention(0, 0, 1, 0.5)),), torch.relu_),
    Corners("abs", torch.abs, ((0.0, by_convention(0, -1, 1, 0)),), torch.abs_),
    Corners(
        "clamp(-1, 2)",
        lambda x: x.clamp(-1, 2),
        ((-1.0, by_convention(0, 0, 1, 0.5)), (2.0, by_convention(0, 1, 0, 0.5))),
        lambda x: x.clamp_(-1, 2),
    ),
    Corners(
        "clip(min=0.1)", lambda x: x.clip(min=0.1), ((0.1, by_convention(0, 0, 1, 0.5)),), lambda x: x.clip_(min=0.1)
    ),
    Corners(
        "clamp_min(0.7)", lambda x: x.clamp_min(0.7), ((0.7, by_convention(0, 0, 1, 0.5)),), lambda x: x.clamp_min_(0.7)
    ),
    Corners(
        "clamp_max(0.3)", lambda x: x.clamp_max(0.3), ((0.3, by_convention(0, 1, 0, 0.5)),), lambda x: x.clamp_max_(0.3)
    ),
    Corners(
        "hardtanh(-0.7, 0.7)",
        lambda x: F.hardtanh(x, -0.7, 0.7),
        ((-0.7, by_convention(0, 0, 1, 0.5)), (0.7, by_convention(0, 1, 0, 0.5))),
        lambda x: F.hardtanh_(x, -0.7, 0.7),
    ),
    Corners(
        "relu6",
        F.relu6,
        ((0.0, by_convention(0, 0, 1, 0.5)), (6.0, by_convention(0, 1, 0, 0.5))),
        lambda x: F.relu6(x, inplace=True),
    ),
    Corners(
        "leaky_relu(2)",
        lambda x: F.leaky_relu(x, 2.0),
        ((0.0, by_convention(1, 2, 1, 1.5)),),
        lambda x: F.leaky_relu_(x, 2.0),
    ),
    Corners("leaky_relu(-0.2)", lambda x: F.leaky_relu(x, -0.2), ((0.0, by_convention(0, -0.2, 1, 0.4)),)),
    Corners("prelu(2)", lambda x: F.prelu(x, x.new_tensor(2.0)), ((0.0, by_convention(1, 2, 1, 1.5)),)),
    Corners("elu(2)", lambda x: F.elu(x, 2.0), ((0.0, by_convention(1, 2, 1, 1.5)),), lambda x: F.elu_(x, 2.0)),
    Corners(
        "hardswish",
        F.hardswish,
        ((-3.0, by_convention(0, 0, -0.5, -0.25)), (3.0, by_convention(1, 1.5, 1, 1.25))),
        lambda x: F.hardswish(x, inplace=True),
    ),
    Corners(
        "hardsigmoid",
        F.hardsigmoid,
        ((-3.0, by_convention(0, 0, 1 / 6, 1 / 12)), (3.0, by_convention(0, 1 / 6, 0, 1 / 12))),
        lambda x: F.hardsigmoid(x, inplace=True),
    ),
    Corners(
        "softshrink(0.5)",
        lambda x: F.softshrink(x, 0.5),
        ((-0.5, by_convention(0, 1, 0, 0.5)), (0.5, by_convention(0, 0, 1, 0.5))),
    ),
    Corners(
        "threshold(0.5, 0.5)",
        lambda x: F.threshold(x, 0.5, 0.5),
        ((0.5, by_convention(0, 0, 1, 0.5)),),
        lambda x: F.threshold_(x, 0.5, 0.5),
    ),
)

LARGEST, SMALLEST = by_convention(0.5, 0, 1, 0.5), by_convention(0.5, 1, 0, 0.5)
LARGEST_OF_CONSTANT, SMALLEST_OF_CONSTANT = by_convention(0, 0, 1, 0.5), by_convention(0, 1, 0, 0.5)
# Selections between two tensors: the weight of the first, where both are differentiated and where it is the only one.
TIES = {
    "maximum": (torch.maximum, LARGEST, LARGEST_OF_CONSTANT),
    "minimum": (torch.minimum, SMALLEST, SMALLEST_OF_CONSTANT),
    "max": (torch.max, LARGEST, LARGEST_OF_CONSTANT),
    "fmax": (torch.fmax, LARGEST, LARGEST_OF_CONSTANT),
    "fmin": (torch.fmin, SMALLEST, SMALLEST_OF_CONSTANT),
    "clamp_min": (torch.clamp_min, LARGEST, LARGEST_OF_CONSTANT),
    "clamp(max=tensor)": (lambda x, y: torch.clamp(x, max=y), SMALLEST, SMALLEST_OF_CONSTANT),
}

LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "contiguous": lambda x: x,
    "transposed": lambda x: x.mT.contiguous().mT if x.ndim > 1 else x,
    "channels last": lambda x: x.contiguous(memory_format=torch.channels_last) if x.ndim == 4 else x,
    "every second": lambda x: x.repeat_interleave(2, dim=-1)[..., ::2] if x.ndim else x,
    "expanded": lambda x: x[:1].expand_as(x) if x.ndim and len(x) else x,
}
NAMES_OF_LAYOUTS = st.sampled_from(list(LAYOUTS))
WRITABLE = st.sampled_from([layout for name, layout in LAYOUTS.items() if name != "expanded"])
SHAPES = ((), (0,), (1,), (5,), (3, 4), (2, 0, 3), (2, 3, 2, 3))
BROADCAST = (((4,), (3, 4)), ((3, 1), (1, 4)), ((), (5,)), ((2, 3), (2, 3)), ((0,), (1,)), ((3, 4), ()))


@cache  # what is made anew is checked anew, for every example
def tensors(shape: tuple[int, ...], dtype: torch.dtype, pool: tuple[float, ...]) -> st.SearchStrategy[Tensor]:
    """Tensors of some layout with entries at the places, beside them, special, and ordinary."""
    entry = st.sampled_from([*pool, *SPECIAL]) | st.floats(-10, 10, width=16)
    count = torch.Size(shape).numel()
    made = st.lists(entry, min_size=count, max_size=count).map(lambda e: torch.tensor(e, dtype=dtype).reshape(shape))
    return st.builds(lambda tensor, layout: LAYOUTS[layout](tensor), made, NAMES_OF_LAYOUTS)


def cotangents(like: Tensor) -> Tensor:
    """Never constant: both signs, both zeros, something large."""
    pattern = torch.tensor([1.0, -2.5, 0.75, -0.0, 3.0, 0.0, -0.125, 1e4])
    return pattern.repeat(like.numel() // 8 + 1)[: like.numel()].reshape(like.shape).to(like.dtype)


def beside(place: float, dtype: torch.dtype) -> tuple[float, ...]:
    at = torch.tensor(place, dtype=dtype)
    return (
        place,
        *(torch.nextafter(at, torch.tensor(side, dtype=dtype)).item() for side in (float("-inf"), float("inf"))),
    )


def same_bits(one: Tensor, other: Tensor) -> Tensor:
    """Entry by entry, to the bit; any nan equals any other."""
    bits = BITS[one.dtype]
    return (one.contiguous().view(bits) == other.contiguous().view(bits)) | (one.isnan() & other.isnan())


def assert_same_forward(one: Tensor, other: Tensor) -> None:
    # The stride of a dimension with one entry or none means nothing.
    assert [one.stride(i) for i in range(one.ndim) if one.shape[i] > 1] == [
        other.stride(i) for i in range(other.ndim) if other.shape[i] > 1
    ]
    assert_same_values(one, other)


def assert_same_values(one: Tensor, other: Tensor) -> None:
    assert one.dtype == other.dtype
    assert torch.equal(
        one.detach().contiguous().view(BITS[one.dtype]), other.detach().contiguous().view(BITS[one.dtype])
    )


def leaf(tensor: Tensor) -> Tensor:
    return tensor.detach().requires_grad_()


def expected(native: Tensor, cotangent: Tensor, hits: list[tuple[Tensor, float]]) -> Tensor:
    """The native gradient with weight times cotangent at the hits; 0 blocks, whatever comes in."""
    for hit, weight in hits:
        native = torch.where(hit, cotangent * weight if weight else torch.zeros_like(cotangent), native)
    return native


def assert_gradient(found: Tensor, wanted: Tensor, hit: Tensor) -> None:
    # At hits values decide, not signs of zeros: 0 times a cotangent has whatever sign.
    assert bool((same_bits(found, wanted) | (hit & (found == wanted))).all()), (found, wanted)


@st.composite
def inputs_of(draw: Any, corners: Corners) -> Tensor:
    dtype = draw(st.sampled_from(DTYPES))
    pool = tuple(entry for place, _ in corners.places for entry in beside(place, dtype))
    return draw(tensors(draw(st.sampled_from(SHAPES)), dtype, pool))


def hits_of(corners: Corners, x: Tensor, convention: str) -> tuple[list[tuple[Tensor, float]], Tensor]:
    """The hits of each corner with its slope, and of any."""
    hits = [(x == place, weights[convention]) for place, weights in corners.places]
    return hits, torch.stack([each for each, _ in hits]).any(dim=0)


# To draw an example takes longer than to check it: each is checked under all conventions.


@pytest.mark.parametrize("corners", CORNERS, ids=str)
@settings(max_examples=60, deadline=None, derandomize=True)
@given(data=st.data())
def test_functions_with_corners(corners: Corners, data: Any) -> None:
    x = data.draw(inputs_of(corners))
    # Torch's own gradient depends on layouts, the cotangent's too, at nan and in the last bit of elu.
    cotangent = LAYOUTS[data.draw(NAMES_OF_LAYOUTS)](cotangents(x))
    plain_input = leaf(x)
    plain = corners.function(plain_input)
    (native,) = torch.autograd.grad(plain, plain_input, cotangent)
    for convention in CONVENTIONS:
        note(f"under {convention}")
        with subgrad.use(convention):
            chosen_input = leaf(x)
            chosen = corners.function(chosen_input)
        assert_same_forward(chosen, plain)
        (gradient,) = torch.autograd.grad(chosen, chosen_input, cotangent)
        hits, hit = hits_of(corners, x, convention)
        assert_gradient(gradient, expected(native, cotangent, hits), hit)


@pytest.mark.parametrize("corners", [corners for corners in CORNERS if corners.in_place], ids=str)
@settings(max_examples=45, deadline=None, derandomize=True)
@given(data=st.data())
def test_functions_with_corners_in_place(corners: Corners, data: Any) -> None:
    x = data.draw(inputs_of(corners))
    cotangent = LAYOUTS[data.draw(NAMES_OF_LAYOUTS)](cotangents(x))
    writable = data.draw(WRITABLE)

    def written() -> tuple[Tensor, Tensor]:
        start = leaf(x.clone())
        out = writable(start.clone())
        assert corners.in_place(out) is out
        return out, torch.autograd.grad(out, start, cotangent)[0]

    plain, native = written()
    for convention in CONVENTIONS:
        note(f"under {convention}")
        with subgrad.use(convention):
            chosen, gradient = written()
        hits, hit = hits_of(corners, x, convention)
        assert_same_forward(chosen, plain)
        assert_gradient(gradient, expected(native, cotangent, hits), hit)


@pytest.mark.parametrize("constant", [False, True], ids=["both", "constant"])
@pytest.mark.parametrize("name", TIES)
@settings(max_examples=60, deadline=None, derandomize=True)
@given(data=st.data())
def test_selections_between_tensors(name: str, constant: bool, data: Any) -> None:
    function, *weights = TIES[name]
    dtypes = data.draw(st.tuples(st.sampled_from(DTYPES), st.sampled_from(DTYPES)))
    shapes = data.draw(st.sampled_from(BROADCAST))
    x, y = (data.draw(tensors(shape, dtype, (1.0, 2.0))) for shape, dtype in zip(shapes, dtypes, strict=True))
    plain = function(x, y)
    cotangent = cotangents(plain)

    # Natively and entry by entry: expanded and promoted beforehand, so that nothing is summed or rounded yet.
    wide = [leaf(each.to(plain.dtype).expand_as(plain).clone()) for each in (x, y)]
    native = torch.autograd.grad(function(*wide), wide[:1] if constant else wide, cotangent)
    hit = wide[0] == wide[1]

    for convention, weight in weights[constant].items():
        note(f"under {convention}")
        with subgrad.use(convention):
            inputs = [leaf(x)] if constant else [leaf(x), leaf(y)]
            chosen = function(inputs[0], y if constant else inputs[1])
        assert_same_forward(chosen, plain)
        found = torch.autograd.grad(chosen, inputs, cotangent)
        for each, plain_gradient, gradient, share in zip(inputs, native, found, (weight, 1 - weight), strict=False):
            wanted = expected(plain_gradient, cotangent, [(hit, share)])
            # A sum may come out as either zero once its terms do.
            summed = wanted.sum_to_size(each.shape).to(each.dtype)
            assert_gradient(gradient, summed, (summed == 0) if summed.shape != wanted.shape else hit)


@pytest.mark.parametrize("convention", ["torch", *CONVENTIONS])
def test_writing_over_an_input_that_backward_needs_is_an_error_as_in_plain_torch(convention: str) -> None:
    x = leaf(torch.tensor([0.0, 1.0, 2.0])) * 1
    with subgrad.use(convention):
        out = F.hardtanh(x)
    x.mul_(2)
    with pytest.raises(RuntimeError, match=r"modified (by an )?inplace"):
        out.sum().backward()
