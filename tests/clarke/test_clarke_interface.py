"""`subgrad.grad` is called as `torch.func.grad` is, and leaves everything as it was."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_map

import subgrad
from clarke.known import CASES, Case

DTYPES = (torch.float16, torch.bfloat16, torch.float32)  # float64 is that of all other tests


def bent(x: Tensor, y: Tensor) -> Tensor:
    """x y + 3 y^2, with kinks at 0 that it does not have."""
    return ((F.relu(x) - F.relu(-x)) * y + 3 * y.abs() ** 2).sum()


def plain(x: Tensor, y: Tensor) -> Tensor:
    return (x * y + 3 * y**2).sum()


def pair() -> tuple[Tensor, Tensor]:
    return torch.tensor([0.0, 1.0, 0.0]), torch.tensor([2.0, 0.0, -1.0])


def assert_same(found: object, wanted: object) -> None:
    (mine, spec), (theirs, other) = tree_flatten(found), tree_flatten(wanted)
    assert spec == other
    for one, two in zip(mine, theirs, strict=True):
        torch.testing.assert_close(one, two)


@pytest.mark.parametrize("argnums", [0, 1, (0,), (0, 1), (1, 0), -1])
def test_argnums_are_those_of_torch(argnums: int | tuple[int, ...]) -> None:
    assert_same(subgrad.grad(bent, argnums=argnums)(*pair()), torch.func.grad(plain, argnums=argnums)(*pair()))


def test_has_aux_is_that_of_torch() -> None:
    def with_aux(x: Tensor, y: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        return bent(x, y), {"sum": x + y}

    gradient, aux = subgrad.grad(with_aux, has_aux=True)(*pair())
    assert_same(gradient, torch.func.grad(plain)(*pair()))
    assert_same(aux, {"sum": sum(pair())})
    assert not aux["sum"].requires_grad
    (value, again), gradient = subgrad.value_and_grad(with_aux, has_aux=True)(*pair())
    assert_same((value, again, gradient), (bent(*pair()), aux, torch.func.grad(plain)(*pair())))


def test_keywords_reach_the_function() -> None:
    gradient = subgrad.grad(lambda x, *, y: bent(x, y))(pair()[0], y=pair()[1])
    assert_same(gradient, torch.func.grad(plain)(*pair()))


def test_trees_of_tensors_come_back_as_they_went() -> None:
    x, y = pair()
    tree = {"x": x, "rest": [y, (x.clone(),)]}

    def function(tree: dict) -> Tensor:
        return bent(tree["x"], tree["rest"][0]) + bent(tree["rest"][1][0], tree["rest"][0])

    wanted = torch.func.grad(
        lambda tree: plain(tree["x"], tree["rest"][0]) + plain(tree["rest"][1][0], tree["rest"][0])
    )
    assert_same(subgrad.grad(function)(tree), wanted(tree))


def head() -> nn.Module:
    """A model whose zero-initialised head puts all logits on the kink of a softplus written by hand."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
    nn.init.zeros_(model[2].weight)
    nn.init.zeros_(model[2].bias)
    return model


def loss_by_hand(logits: Tensor, targets: Tensor) -> Tensor:
    return (F.relu(logits) - logits * targets + torch.log1p(torch.exp(-logits.abs()))).mean()


def batch() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(5, 3, generator=generator), torch.tensor([[1.0], [0.0], [1.0], [1.0], [0.25]])


def test_modules_by_functional_call() -> None:
    model, (inputs, targets) = head(), batch()
    parameters = dict(model.named_parameters())

    def of(loss: Callable[[Tensor, Tensor], Tensor]) -> Callable[[dict[str, Tensor]], Tensor]:
        return lambda parameters: loss(torch.func.functional_call(model, parameters, (inputs,)), targets)

    smooth = torch.func.grad(of(F.binary_cross_entropy_with_logits))(parameters)
    assert_same(subgrad.grad(of(loss_by_hand))(parameters), smooth)
    wrong = torch.func.grad(of(loss_by_hand))(parameters)
    assert (wrong["2.bias"] - smooth["2.bias"]).abs() > 0.1


def test_backward_fills_and_adds_gradients_as_the_loss_does() -> None:
    model, (inputs, targets) = head(), batch()
    F.binary_cross_entropy_with_logits(model(inputs), targets).backward()
    wanted = [2 * each.grad for each in model.parameters()]
    model.zero_grad()
    for _ in range(2):
        loss = subgrad.backward(lambda: loss_by_hand(model(inputs), targets), model.parameters())
    assert torch.equal(loss, loss_by_hand(model(inputs), targets))
    assert not loss.requires_grad
    for parameter, each in zip(model.parameters(), wanted, strict=True):
        torch.testing.assert_close(parameter.grad, each)
        assert parameter.requires_grad


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_dtype_gives_an_element(case: Case, dtype: torch.dtype) -> None:
    x = case.tensor(dtype)
    try:
        case(x)
    except (RuntimeError, NotImplementedError):
        pytest.skip(f"torch has no kernel of it for {dtype}")
    element = subgrad.grad(case.function)(x)
    assert element.dtype is dtype
    assert case.distance(element) < 40 * torch.finfo(dtype).eps


def kinked(x: Tensor) -> Tensor:
    return (x.abs() + torch.maximum(x, x.flip(0)) - F.relu(x.sum())).sum() + x.sort().values[1] + x.norm()


def test_a_seed_decides_and_nothing_else_does() -> None:
    x = torch.zeros(4)
    found = []
    for _ in range(2):
        torch.manual_seed(len(found))
        found.append([subgrad.grad(kinked, seed=seed)(x) for seed in range(8)])
    assert_same(*found)
    assert len({tuple(each.tolist()) for each in found[0]}) > 4


def test_the_generators_of_torch_are_where_one_run_leaves_them() -> None:
    def noisy(x: Tensor) -> Tensor:
        return F.relu(F.dropout(x, 0.5) + torch.randn(6)).sum() + F.relu(x).sum()

    torch.manual_seed(0)
    value, after = noisy(torch.zeros(6)), torch.get_rng_state()
    torch.manual_seed(0)
    found, gradient = subgrad.value_and_grad(noisy)(torch.zeros(6))
    assert torch.equal(found, value)
    assert torch.equal(torch.get_rng_state(), after)
    assert gradient.isfinite().all()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_direction_and_certificate_are_there(case: Case) -> None:
    found = subgrad.element(case.function, seed=3)(case.tensor())
    torch.testing.assert_close(found.gradient, subgrad.grad(case.function, seed=3)(case.tensor()), rtol=0, atol=0)
    along = (found.gradient * found.direction).sum()
    assert found.product == pytest.approx(along.item(), rel=1e-12, abs=1e-12)
    assert found.slope == pytest.approx(along.item(), rel=1e-9, abs=1e-9)
    _, derivative = subgrad.jvp(case.function, (case.tensor(),), (found.direction,))
    torch.testing.assert_close(derivative.reshape(()), along, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_values_are_those_of_the_function_to_the_bit(case: Case) -> None:
    x = case.tensor()
    wanted = case(x)
    for value, _ in (
        subgrad.value_and_grad(case.function)(x),
        subgrad.jvp(case.function, (x,), (torch.ones_like(x),)),
    ):
        assert torch.equal(value, wanted)
        assert torch.equal(value.signbit(), wanted.signbit())


def test_jvp_is_one_sided_and_takes_vectors() -> None:
    x, v = torch.zeros(3), torch.tensor([1.0, -2.0, 0.0])
    value, derivative = subgrad.jvp(lambda x: (x.abs(), x.max(), x.norm()), (x,), (v,))
    assert_same(value, (x, torch.tensor(0.0), torch.tensor(0.0)))
    assert_same(derivative, (v.abs(), v.max(), v.norm()))


def test_inputs_are_left_as_they_were() -> None:
    x, y = pair()
    y.requires_grad_()
    before = x.clone()
    subgrad.grad(bent, argnums=(0, 1))(x, y)
    assert torch.equal(x, before)
    assert not x.requires_grad
    assert x.grad is None
    assert y.requires_grad
    assert y.grad is None


def test_an_error_of_the_function_comes_through_and_leaves_nothing_behind() -> None:
    class Mine(Exception):  # noqa: N818
        pass

    def failing(x: Tensor) -> Tensor:
        F.relu(x).abs()
        if x[0] >= 0:
            raise Mine("on the way")
        return x.sum()

    state = torch.get_rng_state()
    for call in (subgrad.grad(failing), subgrad.min_norm(failing), lambda x: subgrad.jvp(failing, (x,), (x + 1,))):
        with pytest.raises(Mine, match="on the way"):
            call(torch.zeros(2))
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.func.grad(lambda x: F.relu(x).sum())(torch.zeros(2)).tolist() == [0.0, 0.0]
    assert (torch.zeros(2) > 0).tolist() == [False, False]
    assert torch.func.jvp(lambda x: x.abs(), (torch.zeros(1),), (torch.ones(1),))[1].tolist() == [0.0]
    assert_same(subgrad.grad(bent)(*pair()), torch.func.grad(plain)(*pair()))


def test_outer_no_grad_is_ignored_as_by_torch() -> None:
    with torch.no_grad():
        assert_same(subgrad.grad(bent)(*pair()), torch.func.grad(plain)(*pair()))


@pytest.mark.parametrize("convention", ["min-norm", "left", "mean", "pass-through", "torch-2.13"])
def test_conventions_in_force_do_not_matter(convention: str) -> None:
    x = torch.zeros(4)
    wanted = subgrad.grad(kinked, seed=5)(x)
    with subgrad.use(convention):
        assert_same(subgrad.grad(kinked, seed=5)(x), wanted)
    assert_same(subgrad.grad(kinked, seed=5)(x), wanted)


def test_threads_do_not_see_each_other() -> None:
    x = torch.zeros(4)
    wanted = [subgrad.grad(kinked, seed=seed)(x) for seed in range(4)]
    found: dict[int, list[Tensor]] = {}
    plain_ones: list[Tensor] = []

    def work(seed: int) -> None:
        found[seed] = [subgrad.grad(kinked, seed=seed)(x) for _ in range(10)]

    def without_us() -> None:
        for _ in range(100):
            leaf = torch.zeros(2, requires_grad=True)
            (leaf.clamp(min=0) + F.relu(leaf) + leaf * (leaf > 0)).sum().backward()
            plain_ones.append(leaf.grad)

    own = torch.zeros(2, requires_grad=True)
    (own.clamp(min=0) + F.relu(own) + own * (own > 0)).sum().backward()
    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)] + [threading.Thread(target=without_us)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for seed in range(4):
        for each in found[seed]:
            assert_same(each, wanted[seed])
    assert len(plain_ones) == 100
    assert all(torch.equal(each, own.grad) for each in plain_ones)


def test_what_torch_refuses_is_refused() -> None:
    with pytest.raises((RuntimeError, TypeError, ValueError)):
        subgrad.grad(lambda x: x.abs())(torch.zeros(3))  # not a scalar
    with pytest.raises((RuntimeError, TypeError, ValueError)):
        subgrad.grad(lambda x: (x * 2).sum())(torch.zeros(3, dtype=torch.int64))
    with pytest.raises((RuntimeError, TypeError, ValueError, IndexError)):
        subgrad.grad(bent, argnums=2)(*pair())


def test_constants_have_no_gradient() -> None:
    assert subgrad.grad(lambda x: torch.tensor(1.0) + 0 * x.sum())(torch.zeros(3)).tolist() == [0.0] * 3


def test_the_least_element_says_how_it_was_found() -> None:
    x = torch.zeros(3, dtype=torch.float64)
    least = subgrad.min_norm(lambda x: x.abs().sum() + x.max())(x)
    assert least.norm < 1e-9
    assert least.convex
    assert least.used >= 2
    assert least.gap < 1e-9
    concave = subgrad.min_norm(lambda x: -x.abs().sum() + 3 * x[0])(x)
    assert not concave.convex
    halves = subgrad.min_norm(lambda x: x.amax())(x).element
    torch.testing.assert_close(halves, torch.full_like(x, 1 / 3))


def test_the_distinct_elements_that_were_found() -> None:
    found = subgrad.elements(lambda x: x.abs().sum())(torch.zeros(2))
    assert {tuple(each.gradient.tolist()) for each in found} == {(a, b) for a in (-1.0, 1.0) for b in (-1.0, 1.0)}
    (only,) = subgrad.elements(bent)(*pair())
    assert_same(only.gradient, torch.func.grad(plain)(*pair()))


def test_tol_counts_what_is_close_as_tied() -> None:
    x = torch.tensor([1e-9, -1e-9], dtype=torch.float64)

    def found(tol: float) -> set[tuple[float, ...]]:
        return {tuple(subgrad.grad(lambda x: F.relu(x).sum(), seed=seed, tol=tol)(x).tolist()) for seed in range(30)}

    assert found(0.0) == {(1.0, 0.0)}
    assert found(1e-6) == {(a, b) for a in (0.0, 1.0) for b in (0.0, 1.0)}


def test_gradients_of_a_tree_are_as_if_it_were_one_vector() -> None:
    tree = {"a": torch.zeros(2), "b": torch.zeros(())}
    least = subgrad.min_norm(lambda tree: torch.maximum(tree["a"].max(), tree["b"]))(tree)
    assert_same(tree_map(lambda x: x.sum(), least.element), {"a": torch.tensor(2 / 3), "b": torch.tensor(1 / 3)})
