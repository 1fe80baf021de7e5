"""What makes small programs cheap changes nothing: what is kept, what is done at once, what is not watched again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from kernels.windows import POOLINGS, integers, pooled
from torch import Tensor
from torch._subclasses import FakeTensorMode

import subgrad
from subgrad.clarke.engine import program
from subgrad.clarke.engine.directions import known_direction, random_direction
from subgrad.clarke.engine.function_mode import Watch
from subgrad.clarke.engine.passes import Replay
from subgrad.clarke.rules import max_pool
from subgrad.kinks import pooling_windows
from subgrad.kinks.pooling_windows import Windows, adaptive, regular

IMAGE = torch.zeros(1, 1, 4, 4)
MAKE: dict[str, Callable[[Tensor], Windows]] = {
    "regular": lambda x: regular(x, [2, 2]),
    "adaptive": lambda x: adaptive(x, [2, 3]),
}


@pytest.fixture
def nothing_kept() -> Iterator[None]:
    pooling_windows._kept.cache_clear()
    yield
    pooling_windows._kept.cache_clear()


@pytest.mark.parametrize("make", MAKE.values(), ids=MAKE)
def test_windows_of_one_geometry_are_made_once(make: Callable[[Tensor], Windows], nothing_kept: None) -> None:
    assert make(IMAGE) is make(torch.ones(2, 3, 4, 4, dtype=torch.float64, requires_grad=True))
    assert make(IMAGE) is not make(torch.ones(1, 1, 4, 5))


def under_fake_tensors(make: Callable[[Tensor], Windows]) -> None:
    with FakeTensorMode():
        make(torch.zeros(1, 1, 4, 4))


def under_inference_mode(make: Callable[[Tensor], Windows]) -> None:
    with torch.inference_mode():
        make(torch.zeros(1, 1, 4, 4))


def traced(make: Callable[[Tensor], Windows]) -> None:
    def function(x: Tensor) -> Tensor:
        make(x)
        return x.sum()

    torch.jit.trace(function, IMAGE, check_trace=False)  # which would run it outside of the trace


def transformed(transform: Callable[..., Any], make: Callable[[Tensor], Windows]) -> None:
    def function(x: Tensor) -> Tensor:
        make(x)
        return x.sum()

    transform(function)(IMAGE)


ELSEWHERE: dict[str, Callable[[Callable[[Tensor], Windows]], None]] = {
    "fake tensors": under_fake_tensors,
    "inference mode": under_inference_mode,
    "trace": traced,
    "meta": lambda make: make(IMAGE.to("meta")) and None,
    "vmap": lambda make: transformed(torch.func.vmap, make),
    "grad": lambda make: transformed(torch.func.grad, make),
    "functionalize": lambda make: transformed(torch.func.functionalize, make),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("run", ELSEWHERE.values(), ids=ELSEWHERE)
@pytest.mark.parametrize("make", MAKE.values(), ids=MAKE)
def test_windows_that_are_not_plain_memory_are_not_kept(
    make: Callable[[Tensor], Windows], run: Callable[..., None], nothing_kept: None
) -> None:
    run(make)
    assert pooling_windows._kept.cache_info().currsize == 0


def test_windows_of_large_images_are_not_kept(nothing_kept: None) -> None:
    regular(torch.zeros(1, 1, 512, 512), [3, 3])
    adaptive(torch.zeros(1, 1, 512, 512), [200, 200])
    assert pooling_windows._kept.cache_info().currsize == 0


@pytest.mark.parametrize("name", POOLINGS)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("tol", [0.0, 0.5])
def test_few_windows_take_what_many_take(name: str, seed: int, tol: float, monkeypatch: pytest.MonkeyPatch) -> None:
    x = integers(torch.float64, "cpu")  # with nan
    gradient = subgrad.grad(lambda x: (pooled(x, POOLINGS[name]).nan_to_num() ** 2).sum(), seed=seed, tol=tol)
    few = [gradient(x) for _ in range(2)]
    monkeypatch.setattr(max_pool, "_FEW", 0)
    for one in few:
        assert torch.equal(one, gradient(x))


def test_few_windows_whose_derivatives_tie_are_decided_a_little_further_on() -> None:
    def indices(x: Tensor) -> Tensor:
        _, found = F.max_pool2d(x * x, 2, return_indices=True)
        return x.flatten()[found].sum()

    found = subgrad.element(indices)(IMAGE)
    nearby = IMAGE + 1e-3 * found.direction
    assert torch.equal(found.gradient, torch.func.grad(indices)(nearby))


def test_a_program_that_writes_into_its_argument_is_given_copies_every_time() -> None:
    def function(x: Tensor) -> Tensor:
        x.add_(1)
        return (x - 1).abs().sum()

    x, gradient = torch.zeros(3), subgrad.grad(function)
    first = gradient(x)
    assert all(torch.equal(gradient(x), first) for _ in range(3))
    assert x.tolist() == [0, 0, 0]


WATCHED: dict[str, tuple[bool, Callable[[Tensor], Tensor]]] = {
    "plain": (False, lambda x: x.abs().sum()),
    "asks for zero": (True, lambda x: (x if bool((x + 1).prod()) else -x).abs().sum()),
    "rounds": (True, lambda x: (x.abs() * (x + 1.5).long()).sum()),
}


@pytest.mark.parametrize(("is_watched", "function"), WATCHED.values(), ids=WATCHED)
def test_a_replay_is_watched_where_the_program_needs_it(
    is_watched: bool, function: Callable[[Tensor], Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    replays, watching = [], program._watching

    def noted(current: Any) -> Any:
        found = watching(current)
        if isinstance(current, Replay):
            replays.append(isinstance(found, Watch))
        return found

    monkeypatch.setattr(program, "_watching", noted)
    assert subgrad.grad(function)(torch.zeros(3)).abs().tolist() == [1, 1, 1]
    assert set(replays) == {is_watched}


CONVOLUTIONS = {
    "1d": (F.conv1d, (2, 3, 7), (4, 3, 2), {}),
    "2d": (F.conv2d, (2, 3, 6, 5), (4, 3, 3, 2), {"stride": 2, "padding": 1}),
    "2d, one image": (F.conv2d, (3, 6, 5), (4, 3, 3, 2), {"dilation": 2}),
    "2d, same": (F.conv2d, (2, 3, 6, 5), (4, 3, 3, 2), {"padding": "same"}),
    "2d, groups": (F.conv2d, (2, 4, 6, 5), (4, 2, 3, 2), {"groups": 2}),
    "3d": (F.conv3d, (1, 2, 4, 4, 3), (3, 2, 2, 2, 2), {}),
}


@pytest.mark.filterwarnings("ignore:Using padding='same'")
@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions_move_as_torchs_do(name: str, with_bias: bool) -> None:
    convolution, data, kernel, given = CONVOLUTIONS[name]
    torch.manual_seed(0)
    shapes = [data, kernel, *([kernel[:1]] if with_bias else [])]
    primals, tangents = (tuple(torch.randn(each, dtype=torch.float64) for each in shapes) for _ in range(2))

    def function(*args: Tensor) -> Tensor:
        return convolution(*args, **given)

    for found, wanted in zip(
        subgrad.jvp(function, primals, tangents), torch.func.jvp(function, primals, tangents), strict=True
    ):
        torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("seed", range(8))
def test_zeros_of_either_sign_stay_what_torch_makes_of_them(seed: int) -> None:
    """Entries of a window that tie, and are not the same to the bit."""

    def function(x: Tensor) -> Tensor:
        return F.max_pool2d(x, 2).reshape(())

    x = torch.tensor([[[[-0.0, 0.0], [0.0, -0.0]]]])
    found = subgrad.value_and_grad(function, seed=seed)
    for _ in range(2):  # the second time nothing is looked for
        value, gradient = found(x)
        assert torch.signbit(value) == torch.signbit(function(x))
        assert sorted(gradient.flatten().tolist()) == [0, 0, 0, 1]


def test_the_same_direction_is_drawn_for_the_same_seed_and_another_for_another() -> None:
    def function(x: dict[str, Tensor]) -> Tensor:
        return (x["a"].abs() * torch.arange(1.0, 9)).sum() + x["b"].abs().sum()

    x = {"a": torch.zeros(8), "b": torch.zeros(3, 2)}
    kept = [subgrad.grad(function, seed=seed) for seed in range(4)]
    for _ in range(3):
        found = [gradient(x)["a"].tolist() for gradient in kept]
        assert found == [subgrad.grad(function, seed=seed)(x)["a"].tolist() for seed in range(4)]
    assert len({tuple(each) for each in found}) > 1
    assert kept[0]({"a": torch.zeros(8), "b": torch.zeros(2, 3)})["b"].shape == (2, 3)
    assert kept[0]({"a": torch.zeros(8).double(), "b": torch.zeros(2)})["a"].dtype is torch.float64


@pytest.mark.parametrize("part", ["a leaf's", "a factor"])
def test_a_direction_that_was_written_into_is_drawn_again(part: str) -> None:
    leaves = [torch.zeros(3), torch.zeros(70, 70)]
    kept = known_direction(leaves, 5, products=True)
    assert known_direction(leaves, 5, products=True) is kept
    assert known_direction(leaves, 6, products=True) is not kept
    (pair,) = filter(None, kept.pairs)
    (kept[0] if part == "a leaf's" else pair[1]).zero_()
    again = known_direction(leaves, 5, products=True)
    for found, wanted in zip(again, random_direction(leaves, 5, products=True), strict=True):
        assert torch.equal(found, wanted)
