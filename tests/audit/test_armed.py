"""Armed in an unchanged loop: the run is untouched to the bit, and the step that goes wrong is explained."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import subgrad
from audit.test_untouched import Net, nothing_left, trained
from subgrad.audit import Nonfinite
from subgrad.audit.nonfinite import armed, known_graphs
from subgrad.audit.nonfinite.poles import NOTED, POLES
from subgrad.torch_internals.autograd import saved_values


class Steep(nn.Module):
    """Norms, quotients and masks, which are infinitely steep where a batch has a row of zeros."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        x = self.linear(x)
        norm = (x * x).sum(-1, keepdim=True).sqrt()
        unit = torch.where(norm > 0, x / norm, 0.0)
        return F.cross_entropy(unit, torch.arange(len(x)) % 4)


def batches(steps: int, bad: int | None) -> list[Tensor]:
    torch.manual_seed(1)
    found = [torch.randn(6, 4) for _ in range(steps)]
    if bad is not None:
        found[bad][2] = 0.0
    return found


def steep_training(around: Callable[[nn.Module], Any], steps: int = 6, bad: int | None = None) -> list[Tensor]:
    torch.manual_seed(0)
    model = Steep()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    losses = []
    with around(model):
        for batch in batches(steps, bad):
            optimizer.zero_grad()
            loss = model(batch)
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
    return [*losses, model.linear.weight.detach()]


def same(one: Tensor, other: Tensor) -> bool:
    """To the bit, NaN included."""
    return torch.equal(*(each.reshape(-1).contiguous().view(torch.uint8) for each in (one, other)))


@pytest.mark.parametrize("bad", [None, 0, 3])
def test_losses_and_weights_are_the_same_to_the_bit_nan_included(bad: int | None) -> None:
    plain = steep_training(lambda _: nullcontext(), bad=bad)
    with nothing_left():
        watched = steep_training(lambda model: subgrad.audit(model, nonfinite=True), bad=bad)
    assert all(map(same, plain, watched))
    assert plain[-1].isfinite().all() == (bad is None)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_network_is_untouched_to_the_bit_with_kinks_counted_beside_it(dtype: torch.dtype) -> None:
    found = []

    def around(model: nn.Module) -> Any:
        found.append(subgrad.audit(model, nonfinite=True, compare=("torch-2.13", "torch-2.14"), every=3))
        return found[0]

    plain, watched = trained(lambda _: nullcontext(), dtype, 20), trained(around, dtype, 20)
    for one, other in zip(plain, watched, strict=True):
        assert all(map(same, one, other))
    assert found[0].recorded == tuple(range(0, 20, 3))
    assert not found[0].nonfinite
    assert not found[0].notes


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_nothing_is_left_whatever_is_raised(error: type[BaseException]) -> None:
    x = torch.tensor([0.0, 1.0], requires_grad=True)

    def fail(gradient: Tensor) -> None:
        raise error

    def run() -> None:
        with subgrad.audit(nonfinite=True):
            y = x.sqrt()
            y.register_hook(fail)
            y.sum().backward()

    with nothing_left(), pytest.raises(error):
        run()


# What is found, and when.


def loop(step: Callable[[int], Tensor], steps: int, **settings: Any) -> subgrad.Audit:
    with subgrad.audit(nonfinite=True, **settings) as audit:
        for number in range(steps):
            step(number).backward()
            audit.step()
    return audit.result


def guilty(found: Nonfinite) -> tuple[str, str]:
    assert found.guilty is not None
    return found.guilty.site.source.partition("  #")[0].strip(), found.guilty.operator


def test_the_step_is_explained_in_which_it_happens_with_lines_noted_in_another() -> None:
    with_names = []

    def around(model: nn.Module) -> Any:
        with_names.append(subgrad.audit(model, nonfinite=True))
        return with_names[0]

    steep_training(around, bad=3)
    first = with_names[0].nonfinite[0]
    assert (first.step, first.kind, first.became) == (3, "slope", "NaN")
    assert guilty(first) == ("unit = torch.where(norm > 0, x / norm, 0.0)", "div")
    assert first.guilty is not None
    assert first.guilty.module == "Steep"
    assert first.mask is not None
    assert first.mask.operator == "where"
    assert [each.parameter for each in first.reached] == ["linear.weight"]


def test_what_happens_again_is_one_finding_with_the_number_of_its_steps() -> None:
    x = torch.tensor([0.0, 4.0], requires_grad=True)

    def step(number: int) -> Tensor:
        x.grad = None
        return x.sqrt().sum() if number else (x * 2).sum()

    (found,) = loop(step, 5).nonfinite
    assert (found.step, found.steps, found.last) == (1, 4, 4)
    assert "Step 1 and 3 more" in str(found)


def test_two_lines_that_make_the_same_graph_are_not_taken_for_each_other() -> None:
    x = torch.tensor([0.0, 4.0], requires_grad=True)

    def one() -> Tensor:
        return torch.where(x > 9, x.sqrt(), 0.0).sum()  # the first

    def other() -> Tensor:
        return torch.where(x > 9, x.sqrt(), 0.0).sum()  # the other

    def step(number: int) -> Tensor:
        x.grad = None
        return (one, other)[number % 2]()

    found = loop(step, 2 * armed.MOST).nonfinite
    lines = {each.guilty.site.line for each in found if each.guilty}
    starts = {each.__code__.co_firstlineno + 1 for each in (one, other)}
    assert lines <= {*starts, 0}


LARGE = known_graphs.SMALL // 2  # entries of a graph that backward does not leave as it is


def test_an_overflow_is_explained_when_it_happens_or_if_it_happens_again_where_a_graph_is_large() -> None:
    def overflowing(count: int) -> list[Nonfinite]:
        x = torch.full((count,), 1e-30, requires_grad=True)

        def step(number: int) -> Tensor:
            x.grad = None
            return ((x * 1e30) * torch.full((count,), 1e20 if number else 1e2)).sum()

        return [*loop(step, 4).nonfinite]

    (once,) = overflowing(2)
    assert (once.step, once.steps, once.kind, once.became) == (1, 3, "overflow", "infinite")
    first, again = overflowing(LARGE)
    assert (first.step, first.kind, first.became) == (1, "unknown", "infinite")
    assert (again.step, again.kind) == (2, "overflow")
    assert guilty(once)[1] == guilty(again)[1] == "mul"


@pytest.mark.parametrize("shares", [False, True], ids=["the same loss", "a loss that shares a part"])
def test_a_graph_that_is_walked_twice_without_being_kept_is_an_error_as_in_torch(shares: bool) -> None:
    x = torch.tensor([1.0, 4.0], requires_grad=True)
    with subgrad.audit(nonfinite=True) as audit:
        for number in range(4):
            root = x.sqrt()
            loss, other = (root * 2).sum(), (root * 3).sum()
            loss.backward()
            if number == 3:
                with pytest.raises(RuntimeError, match="backward through the graph a second time"):
                    (other if shares else loss).backward()
            audit.step()


def test_hooks_are_called_once_where_gradients_are_finite() -> None:
    x, called = torch.tensor([1.0, 4.0], requires_grad=True), []
    with subgrad.audit(nonfinite=True) as audit:
        for _ in range(4):
            root = x.sqrt()
            root.register_hook(lambda gradient: called.append(gradient))
            (root * 2).sum().backward()
            audit.step()
    assert len(called) == 4


def test_losses_of_two_optimizers_in_one_step_are_each_looked_at() -> None:
    x, y = (torch.tensor([1.0, 4.0], requires_grad=True) for _ in range(2))
    with subgrad.audit(nonfinite=True) as audit:
        for number in range(6):
            x.grad = y.grad = None
            (x * (number != 4)).sqrt().sum().backward()
            (y * (number != 5)).sqrt().sum().backward()
            audit.step()
    assert [(each.step, each.reached[0].parameter, guilty(each)[1]) for each in audit.nonfinite] == [
        (4, audit.nonfinite[0].reached[0].parameter, "sqrt"),
        (5, audit.nonfinite[1].reached[0].parameter, "sqrt"),
    ]


def test_accumulated_gradients_are_reported_once() -> None:
    x = torch.tensor([0.0, 4.0], requires_grad=True)

    def step(number: int) -> Tensor:
        return x.sqrt().sum() if number == 1 else (x * 2).sum()

    found = loop(step, 4).nonfinite
    assert [(each.step, each.steps) for each in found] == [(1, 1)]


def test_gradients_that_are_asked_for_are_looked_at_as_well() -> None:
    x = torch.tensor([0.0, 4.0], requires_grad=True)
    with subgrad.audit(nonfinite=True) as audit:
        torch.autograd.grad((x * x).sum().sqrt() * 0 + x.sqrt().sum(), x)
    (found,) = audit.nonfinite
    assert [each.parameter for each in found.reached] == ["x"]
    assert guilty(found)[1] == "sqrt"


def test_checkpoints_and_functions_are_looked_at_as_they_run() -> None:
    x = torch.tensor([0.0, 4.0], requires_grad=True)

    def step(number: int) -> Tensor:
        x.grad = None
        return checkpoint(lambda x: (x * x).sqrt(), x, use_reentrant=False).sum()

    (found,) = loop(step, 2).nonfinite
    assert guilty(found)[1] == "sqrt"
    assert not found.is_whole
    assert found.nan_line is not None
    assert found.nan_line.operator == "mul"


def test_closures_of_optimizers_are_watched() -> None:
    x = torch.tensor([0.0, 4.0], requires_grad=True)
    optimizer = torch.optim.LBFGS([x], max_iter=2)

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = x.sqrt().sum()
        loss.backward()
        return loss

    with subgrad.audit(nonfinite=True) as audit:
        optimizer.step(closure)
    assert guilty(audit.nonfinite[0])[1] == "sqrt"


def test_a_scaler_that_skips_steps_goes_on_and_its_overflow_is_said() -> None:
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**126)
    with subgrad.audit(model, nonfinite=True) as audit:
        for _ in range(3):
            optimizer.zero_grad()
            scaler.scale((model(torch.ones(1, 2)) * 1e3).sum()).backward()
            scaler.step(optimizer)
            scaler.update()
    assert audit.nonfinite
    assert audit.nonfinite[0].became == "infinite"
    assert all(each.isfinite().all() for each in model.parameters())


def test_sparse_and_complex_gradients() -> None:
    table = nn.Embedding(4, 2, sparse=True)
    with torch.no_grad():
        table.weight[0] = 0.0
    z = torch.tensor([0j, 1 + 1j], requires_grad=True)
    with subgrad.audit(table, nonfinite=True) as audit:
        table(torch.tensor([0, 1])).pow(2).sum(-1).sqrt().sum().backward()
        z.abs().sqrt().sum().backward()
    assert [(each.reached[0].parameter, guilty(each)[1]) for each in audit.nonfinite] == [
        ("weight", "sqrt"),
        ("z", "sqrt"),
    ]


def test_parameters_of_another_branch_are_looked_at_though_its_graph_looks_the_same() -> None:
    model = nn.ParameterDict({name: nn.Parameter(torch.tensor([1.0, 4.0])) for name in ("one", "other")})
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    with subgrad.audit(model, nonfinite=True) as audit:
        for number in range(6):
            with torch.no_grad():
                model["other"][0] = 0.0 if number == 5 else 1.0
            optimizer.zero_grad()
            model["other" if number % 2 else "one"].sqrt().sum().backward()
            optimizer.step()
    (found,) = audit.nonfinite
    assert (found.step, [each.parameter for each in found.reached]) == (5, ["other"])


# What is left alone.


def test_transforms_and_whole_program_gradients_go_through() -> None:
    x = torch.tensor([0.0, 4.0])
    with subgrad.audit(nonfinite=True) as audit:
        torch.func.vmap(torch.func.grad(torch.sqrt))(x)
        torch.func.hessian(lambda x: (x**3).sum())(x)
        assert subgrad.grad(lambda x: (x * x).sum().sqrt())(x + 1).isfinite().all()
        with pytest.raises(Exception, match="sqrt"):
            subgrad.grad(lambda x: x.sqrt().sum())(x)
    assert not audit.nonfinite
    assert not audit.unseen


def test_a_graph_is_kept_no_longer_than_torch_keeps_it() -> None:
    class Mark:
        pass

    x = torch.tensor([1.0, 4.0], requires_grad=True)
    with subgrad.audit(nonfinite=True):
        for _ in range(3):
            x.grad = None
            y = x * 2
            mark = Mark()
            y.grad_fn.metadata["mark"] = mark  # type: ignore[union-attr]
            alive = weakref.ref(mark)
            del mark
            loss = y.sqrt().sum()
            loss.backward()
            del y, loss
            gc.collect()
            assert alive() is None


def test_other_threads_are_left_alone() -> None:
    def other() -> None:
        torch.zeros(2, requires_grad=True).sqrt().sum().backward()

    with subgrad.audit(nonfinite=True) as audit:
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    assert not audit.nonfinite


@pytest.mark.compiled
def test_compiled_functions_go_on_as_they_are() -> None:
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    model = Steep()
    compiled = torch.compile(model, backend="aot_eager")
    with subgrad.audit(model, nonfinite=True) as audit:
        for number, batch in enumerate(batches(4, 2)):
            model.zero_grad()
            compiled(batch).backward()
            audit.step()
            assert (number < 2) == (not audit.nonfinite)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] <= 2
    assert audit.nonfinite[0].became == "NaN"


def test_kinks_are_counted_beside_it_only_if_that_is_asked_for() -> None:
    x = torch.zeros(3, requires_grad=True)
    with subgrad.audit(nonfinite=True) as alone:
        torch.relu(x).sum().backward()
    with subgrad.audit(nonfinite=True, every=1) as both:
        (torch.relu(x) + torch.where(x > 0, x.sqrt(), 0.0)).sum().backward()
    assert (alone.rows, alone.every) == ((), 0)
    assert {row.operator for row in both.rows} >= {"relu"}
    (found,) = both.nonfinite
    assert found.mask is not None
    assert found.mask.site.file == __file__


# Devices that are not waited for: held to the same on the CPU, where a pole may be taken for one on such a device.


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is read before a step has ended, as on a GPU."""
    monkeypatch.setattr(armed, "is_on_host", lambda tensor: False)


@pytest.mark.usefixtures("elsewhere")
def test_on_other_devices_the_line_is_named_one_step_later_from_what_backward_kept() -> None:
    x = torch.tensor([0.0, 4.0], requires_grad=True)
    seen = []
    with subgrad.audit(nonfinite=True) as audit:
        for number in range(4):
            x.grad = None
            (torch.where(x > 0, x.sqrt(), 0.0) if number == 1 else x * 2).sum().backward()
            audit.step()
            seen.append(len(audit.nonfinite))
    assert seen == [0, 0, 1, 1]
    (found,) = audit.nonfinite
    assert (found.step, found.kind, found.became, found.is_whole) == (1, "slope", "NaN", False)
    assert guilty(found)[1] == "sqrt"
    assert found.guilty is not None
    assert (found.guilty.entry, found.guilty.inputs, found.cotangent) == ((0,), (("self", "0"),), "0")
    assert [(each.parameter, each.became, each.nan) for each in found.reached] == [("x", "NaN", None)]


@pytest.mark.usefixtures("elsewhere")
def test_on_other_devices_large_tensors_are_not_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("subgrad.audit.nonfinite.walks.LARGE", 1)
    x = torch.tensor([0.0, 4.0], requires_grad=True)
    with subgrad.audit(nonfinite=True) as audit:
        x.sqrt().sum().backward()
    (found,) = audit.nonfinite
    assert guilty(found)[1] == "sqrt"
    assert found.guilty is not None
    assert (found.guilty.inputs, found.cotangent) == ((), "")


# The operators that are asked.


def test_every_operator_that_is_noted_or_asked_exists() -> None:
    from subgrad.apply.operators import exists

    assert all(map(exists, NOTED))
    known = {"Backward0", "Backward1", "Backward2"}
    assert all(any(kind.endswith(each) for each in known) for kind in POLES)


def test_networks_have_no_nodes_that_are_steep() -> None:
    out = Net()(torch.randn(8, 1, 8, 8)).sum()
    ahead, asked = [out.grad_fn], 0
    while ahead:
        node = ahead.pop()
        pole = POLES.get(type(node).__name__)
        if pole is not None and saved_values(node):
            asked += 1
            assert not pole.test(pole.read(node), node)
        ahead += [each for each, _ in getattr(node, "next_functions", ()) if each is not None]


# Gradients that are compared beside it, in backwards of ours within those of the program.


def root_training(start: list[float], **settings: Any) -> subgrad.Audit:
    """Of a root, whose slope is infinite at 0, of a clamp, which two conventions differentiate in two ways there."""
    weight = torch.tensor(start, requires_grad=True)
    with subgrad.audit(nonfinite=True, every=1, compare_every=1, **settings) as audit:
        for _ in range(3):
            weight.grad = None
            (weight.clamp(min=0).sqrt() * torch.tensor([1.0, -2.0, 3.0])).sum().backward()
            (weight - 1).clamp(min=0).sum().backward()
            audit.step()
    return audit.result


@pytest.mark.parametrize("compared", [("right", "left"), ("left", "right")])
def test_gradients_are_looked_at_as_they_are_and_not_as_another_convention_has_them(compared: tuple[str, str]) -> None:
    with subgrad.use("right"):
        (alone,) = root_training([1.0, 0.0, 4.0]).nonfinite
        (found,) = root_training([1.0, 0.0, 4.0], compare=compared).nonfinite
    assert (found.step, found.steps, found.line) == (alone.step, alone.steps, alone.line) == (0, 3, found.line)
    assert found.line is not None
    assert found.line.site.source.startswith("(weight.clamp(min=0).sqrt()")
    with subgrad.use("left"):
        assert root_training([1.0, 0.0, 4.0], compare=compared).nonfinite == ()


def test_an_audit_after_one_that_compares_sees_all() -> None:
    for _ in range(2):
        audit = root_training([1.0, 2.0, 4.0], compare=("left", "right"))
        assert (audit.recorded, audit.unseen) == ((0, 1, 2), ())
        assert [effect.differing for effect in audit.effects] == [0, 1] * 3
