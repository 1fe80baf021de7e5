"""Strong zeros on programs reduced from public threads: dead branches come out, in every mode; nothing else changes."""

from __future__ import annotations

import copy
import math
import pickle
from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor

import subgrad
from subgrad.kinks import KINKS
from subgrad.kinks.samples import samples
from subgrad.kinks.sets import Jump

Program = Callable[[Tensor], Tensor]


def at(*entries: float) -> Tensor:
    return torch.tensor(entries, dtype=torch.float64)


ZERO_ONE = at(0, 1)
MASK = torch.tensor([[-math.inf, -math.inf], [0.0, 0.0]], dtype=torch.float64)
DEAD: dict[str, tuple[Program, Tensor, Sequence[float]]] = {
    "pytorch#187297": (lambda x: torch.where(x > 0, x.sqrt(), x).sum(), at(-1, -4), [1, 1]),
    "pytorch#68425": (lambda x: torch.where(x <= 0, x.exp(), 1 + x).sum(), at(1000, 2), [1, 1]),
    "pytorch#10729": (lambda x: x.exp().clamp(max=1).sum(), at(1000, -1), [0, math.exp(-1)]),
    "pytorch#108618": (lambda x: torch.where(x > 2, x.log2(), 2 * x).sum(), at(0, 1), [2, 2]),
    "pytorch#4132": (lambda x: (x / ZERO_ONE)[1:].sum(), at(1, 1), [0, 1]),
    "keras#23063": (lambda x: torch.where(ZERO_ONE == 0, 0.0, x / ZERO_ONE).sum(), at(1, 1), [0, 1]),
    "a factor": (lambda x: torch.where(x > 5, x * math.inf, x).sum(), at(1, 2), [1, 1]),
    "a masked row of attention": (
        lambda x: (torch.softmax(x.view(2, 2) + MASK, -1).nan_to_num(0.0) * at(1, 2)).sum(),
        at(1, 1, 1, 1),
        [0, 0, -0.25, 0.25],
    ),
}
# A cotangent of 0 is no sign of a dead branch here: the true slope is 1, and 0 is a surrogate.
LIVE_ZERO = (lambda x: (x.sqrt() ** 2).sum(), at(0, 4), [0, 1])


def eager(function: Program, x: Tensor) -> Tensor:
    leaf = x.clone().requires_grad_()
    return torch.autograd.grad(function(leaf), leaf)[0]


def compiled(function: Program, x: Tensor) -> Tensor:
    torch.compiler.reset()
    return eager(torch.compile(function, backend="aot_eager", fullgraph=True), x)


def forward(function: Program, x: Tensor) -> Tensor:
    units = torch.eye(len(x), dtype=x.dtype)
    return torch.stack([torch.func.jvp(function, (x,), (unit,))[1] for unit in units])


def batched(function: Program, x: Tensor) -> Tensor:
    return torch.func.vmap(torch.func.grad(function))(torch.stack([x, x]))[1]


MODES = {"eager": eager, "grad": lambda f, x: torch.func.grad(f)(x), "compiled": compiled, "forward": forward}
MODES |= {"vmap": batched}


@pytest.mark.parametrize("base", ["min-norm", "torch", "torch-2.13"])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", DEAD)
def test_dead_branches_contribute_nothing(name: str, mode: str, base: str) -> None:
    if mode == "compiled" and base != "min-norm":
        pytest.skip("one base is compiled")
    if mode == "forward" and name == "a masked row of attention":
        pytest.skip("the tangent of a row that is nan is nan, and not 0")
    function, x, wanted = DEAD[name]
    assert not torch.func.grad(function)(x).isfinite().all()  # torch's own
    with subgrad.use(base, strong_zero=True):
        found = MODES[mode](function, x)
    torch.testing.assert_close(found, at(*wanted))


def test_a_live_zero_has_a_surrogate() -> None:
    function, x, wanted = LIVE_ZERO
    with subgrad.use("min-norm", strong_zero=True):
        assert eager(function, x).tolist() == wanted
    assert math.isclose(float(subgrad.grad(function)(x)[0]), 1, rel_tol=1e-6)  # what the program does


@pytest.mark.parametrize(
    ("function", "x"),
    [
        (lambda x: (2 * x.sqrt()).sum(), at(0, 4)),  # infinite
        (lambda x: (2 * x.sqrt()).sum(), at(-1, 4)),  # nan
        (lambda x: (x.log() * at(1, 0)).sum(), at(0, 4)),
        (lambda x: (x / at(0, 1)).sum(), at(0, 1)),
    ],
)
def test_live_branches_stay_as_torch_has_them(function: Program, x: Tensor) -> None:
    wanted = eager(function, x)
    with subgrad.use("torch", strong_zero=True):
        torch.testing.assert_close(eager(function, x), wanted, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("op", KINKS.entrywise)
def test_finite_gradients_are_the_same_to_the_bit(op: str) -> None:
    from subgrad.kinks.overloads import overload

    for call in samples(op):
        if op == "rrelu_with_noise" or any(isinstance(kink.set, Jump) for kink in KINKS.of_overload(op)):
            continue
        names = [name for name, each in call.items() if isinstance(each, Tensor)]
        found = []
        for strong in (False, True):
            leaves = {name: call[name].clone().requires_grad_() for name in names}
            with subgrad.use("min-norm", strong_zero=strong):
                out = overload(op)(**{**call, **leaves})
            cotangent = torch.arange(out.numel(), dtype=out.dtype).reshape(out.shape) % 5 - 2
            found.append(torch.autograd.grad(out, list(leaves.values()), cotangent, materialize_grads=True))
        for one, other in zip(*found, strict=True):
            assert torch.equal(one, other)


BROADCAST = {
    **{name: getattr(torch, name) for name in ("mul", "div", "pow", "atan2", "hypot", "logaddexp", "fmod", "ldexp")},
    **{name: getattr(torch, name) for name in ("xlogy", "copysign", "remainder", "logaddexp2")},
    "addcdiv": lambda a, b: torch.addcdiv(a, a, b, value=0.7),
    "lerp": lambda a, b: torch.lerp(b, a, 0.3),
}


@pytest.mark.parametrize("flipped", [False, True])
@pytest.mark.parametrize("dead", [math.inf, -math.inf, math.nan, 0.0, -1.0])
@pytest.mark.parametrize("name", BROADCAST)
def test_operands_that_are_broadcast_get_what_the_live_entries_send(name: str, dead: float, flipped: bool) -> None:
    def gradient(entry: float, strong_zero: bool) -> Tensor:
        x, other = at(0.6, 1.2, 0.9, entry, 1.4).requires_grad_(), at(0.7).requires_grad_()
        with subgrad.use("torch", strong_zero=strong_zero):
            out = BROADCAST[name](*((other, x) if flipped else (x, other)))
        return torch.autograd.grad(out, (x, other), at(0.5, 1.5, 2.5, 0.0, 4.5))[1]

    torch.testing.assert_close(gradient(dead, True), gradient(0.8, False))


def test_normalisation_of_nothing_is_as_in_torch_under_vmap() -> None:
    def normal(x: Tensor) -> Tensor:
        return torch.nn.functional.group_norm(x, 1).sum()

    x = torch.zeros(2, 0, 4, 3, dtype=torch.float64)
    wanted = torch.func.vmap(torch.func.grad(normal))(x)
    with subgrad.use("torch", strong_zero=True):
        assert torch.equal(torch.func.vmap(torch.func.grad(normal))(x), wanted)


def test_a_convention_says_that_it_has_strong_zeros() -> None:
    made = subgrad.Convention("min-norm", relu=1.0, strong_zero=True)
    assert eval(repr(made), {"Convention": subgrad.Convention}) == made
    assert made != subgrad.Convention("min-norm", relu=1.0)
    assert copy.deepcopy(made) == pickle.loads(pickle.dumps(made)) == made
    assert subgrad.Convention(made, abs=0.5).strong_zero


def test_compiled_graphs_are_tied_to_strong_zeros() -> None:
    function, x, wanted = DEAD["pytorch#187297"]
    graph = torch.compile(function, backend="aot_eager", fullgraph=True)
    for strong in (True, False, True):
        with subgrad.use("min-norm", strong_zero=strong):
            found = eager(graph, x).tolist()
        assert (found == wanted) == strong


def test_afterwards_torch_is_as_before() -> None:
    function, x, _ = DEAD["pytorch#187297"]
    with subgrad.use("min-norm", strong_zero=True):
        eager(function, x)
    assert eager(function, x).isnan().all()


def test_numbers_times_what_torch_knows_to_be_zero_are_zero_afterwards() -> None:
    """The derivative of a sign is a tensor that torch never fills, and meets overloads that have no kernel for it."""
    with subgrad.use("min-norm", strong_zero=True):
        eager(*DEAD["pytorch#187297"][:2])
    x, weights = torch.tensor([-1.0, 0.5, 2.0], requires_grad=True), torch.tensor([2.0, 3.0, -1.0], requires_grad=True)
    for convention in ("torch", "min-norm", subgrad.Convention("min-norm", strong_zero=True)):
        with subgrad.use(convention):
            (first,) = torch.autograd.grad((x * 1).abs(), x, weights, create_graph=True)
            in_weights, in_x = torch.autograd.grad((first * first).sum(), (weights, x))
        assert in_weights.tolist() == [4.0, 6.0, -2.0]
        assert (in_x + torch.zeros(3)).tolist() == [0.0, 0.0, 0.0]  # which fills it
