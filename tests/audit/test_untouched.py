"""The run is untouched: losses and weights are those without the audit, to the bit, and nothing is left behind."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules import module as modules
from torch.optim import optimizer as optimizers
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset

import subgrad
from subgrad.apply.current_pass import here
from subgrad.audit.attribution import _repeatable


class Net(nn.Module):
    """Kinks in place and not, ties in windows and lines, statistics, random numbers, half of it zeros."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4)
        self.act, self.drop = nn.ReLU(inplace=True), nn.Dropout(0.25)
        self.head = nn.Linear(4 * 16, 3)
        nn.init.zeros_(self.head.bias)
        nn.init.zeros_(self.head.weight[0])

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(self.act(self.norm(self.conv(x))), 2)
        x = F.elu_(self.drop(x.flatten(1)).clamp(0, 1), 2.0)
        return self.head(x).clamp_(min=0).maximum(x.amax(1, keepdim=True).detach() * 0)


def trained(around: Callable[[nn.Module], Any], dtype: torch.dtype, steps: int) -> tuple[list[Tensor], list[Tensor]]:
    torch.manual_seed(0)
    model = Net()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    losses = []
    with around(model):
        for _ in range(steps):
            x = torch.randn(8, 1, 8, 8).round().relu()
            with torch.autocast("cpu", dtype, enabled=dtype is not torch.float32):
                out = model(x)
            loss = F.cross_entropy(out.float(), torch.randint(0, 3, (8,)))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
    return losses, [each.detach() for each in model.state_dict().values()]


@pytest.mark.parametrize("convention", ["torch", "min-norm"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_losses_and_weights_are_the_same_to_the_bit_after_100_steps(dtype: torch.dtype, convention: str) -> None:
    found = []

    def around(model: nn.Module) -> Any:
        found.append(subgrad.audit(model, compare=("torch-2.13", "torch-2.14"), every=5, compare_every=25, ulps=2))
        return found[0]

    with subgrad.use(convention):
        plain, audited = trained(lambda _: nullcontext(), dtype, 100), trained(around, dtype, 100)
    for one, other in zip(plain, audited, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))
    assert found[0].recorded == tuple(range(0, 100, 5))
    assert {row.operator for row in found[0].rows if row.total.hits} >= {"max_pool2d", "clamp", "elu", "maximum"}
    assert [effect.step for effect in found[0].effects] == [0, 25, 50, 75]
    assert found[0].effects[0].differing > 0
    assert not found[0].notes


def hooks() -> tuple[Any, ...]:
    return (
        dict(modules._global_forward_hooks),
        dict(modules._global_forward_pre_hooks),
        dict(optimizers._global_optimizer_post_hooks),
        torch.autograd.backward,
        here.current,
        torch.are_deterministic_algorithms_enabled(),
        torch.backends.cudnn.deterministic,
        torch.backends.cudnn.enabled,
    )


@contextmanager
def nothing_left() -> Iterator[None]:
    before = hooks()
    yield
    assert hooks() == before


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_nothing_is_left_whatever_is_raised_and_what_was_recorded_is_kept(error: type[BaseException]) -> None:
    x = torch.zeros(3, requires_grad=True)
    audit = subgrad.audit(compare=("torch", "mean"))

    def run() -> None:
        with audit:
            torch.relu(x)
            raise error

    with nothing_left(), pytest.raises(error):
        run()
    assert audit.hits == 3


def test_kernels_that_repeat_are_asked_for_and_taken_back() -> None:
    with nothing_left(), _repeatable():
        assert (torch.backends.cudnn.deterministic, torch.backends.cudnn.enabled) == (True, True)
        assert torch.are_deterministic_algorithms_enabled()


def test_an_audit_inside_another_is_refused() -> None:
    with nothing_left(), subgrad.audit(every=2) as audit:
        for _ in range(2):  # recorded and not
            with pytest.raises(RuntimeError, match="one at a time"), subgrad.audit():
                pass
            audit.step()


def test_other_threads_are_left_alone() -> None:
    def other() -> None:
        torch.relu(torch.zeros(5, requires_grad=True)).sum().backward()

    with subgrad.audit() as audit:
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        torch.relu(torch.zeros(2, requires_grad=True))
    assert audit.hits == 2


def test_data_loaders_with_workers_go_on() -> None:
    data = DataLoader(TensorDataset(torch.zeros(8, 2)), batch_size=4, num_workers=1)
    weight = torch.ones(2, requires_grad=True)
    with subgrad.audit() as audit:
        for (x,) in data:
            torch.relu(x * weight).sum().backward()
    assert audit.hits == 16


@pytest.mark.parametrize("reentrant", [False, True])
def test_what_a_checkpoint_recomputes_is_counted_once(reentrant: bool) -> None:
    x = torch.zeros(3, requires_grad=True)
    with subgrad.audit(compare=("torch-2.13", "torch-2.14")) as audit:
        y = checkpoint(lambda x: torch.relu(x * 2).clamp(max=0), x, use_reentrant=reentrant)
        (y * torch.tensor([1.0, 2.0, 3.0])).sum().backward()
    assert {row.operator: (row.total.calls, row.total.hits) for row in audit.rows} == {"relu": (1, 3), "clamp": (1, 3)}
    assert x.grad is not None
    if reentrant:  # which refuses to be differentiated in other ways than by backward
        assert "could not be compared" in audit.notes[0]
    else:
        assert not audit.notes


def test_second_derivatives_go_through() -> None:
    def penalty() -> Tensor:
        x = torch.tensor([0.0, 2.0, -1.0], requires_grad=True)
        (gradient,) = torch.autograd.grad((x.clamp(min=0) ** 3).sum() + F.elu(x).sum(), x, create_graph=True)
        (gradient**2 * torch.tensor([1.0, 2.0, 3.0])).sum().backward()
        return x.grad  # type: ignore[return-value]

    plain = penalty()
    with subgrad.audit(compare=("torch-2.13", "torch-2.14")):
        assert torch.equal(penalty(), plain)


def test_whole_program_gradients_and_transforms_go_through() -> None:
    x = torch.tensor([0.0, 1.0])
    f = lambda x: (torch.relu(x) - torch.relu(-x)).sum()  # noqa: E731
    with subgrad.audit() as audit:
        assert subgrad.grad(f)(x).tolist() == [1.0, 1.0]
        torch.func.vmap(torch.func.grad(f))(x[:, None])
    assert any("not looked at" in note for note in audit.notes)


def test_steps_not_recorded_have_nothing_in_force() -> None:
    x = torch.zeros(2, requires_grad=True)
    found = []
    with subgrad.audit(every=2) as audit:
        for _ in range(3):
            torch.relu(x)
            found.append(here.current is not None)
            audit.step()
        torch.relu(x)
    assert found == [True, False, True]
    assert [(count.step, count.calls) for count in audit.rows[0].series] == [(0, 1), (2, 1)]
    assert (audit.steps, audit.recorded) == (3, (0, 2))


@pytest.mark.compiled
def test_compiled_functions_go_on_as_they_are_and_are_not_seen() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    with subgrad.audit(model, every=2) as audit:
        for _ in range(4):
            torch.relu(compiled(torch.zeros(2, 3))).sum().backward()
            audit.step()
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1
    assert {row.module for row in audit.rows} == {""}


def test_modules_are_named_by_their_path_in_the_model_or_after_the_outermost_one() -> None:
    class Inner(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.clamp(min=0)

    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.parts = nn.ModuleList([Inner(), nn.ReLU()])

        def forward(self, x: Tensor) -> Tensor:
            return self.parts[1](self.parts[0](x)).abs()

    model, x = Outer(), torch.zeros(2, requires_grad=True)
    named = []
    for given in (model, None):
        with subgrad.audit(given) as audit:
            model(x)
            F.hardtanh(x)
        named.append({row.operator: row.module for row in audit.rows})
    assert named == [
        {"clamp": "parts.0", "relu": "parts.1", "abs": "Outer", "hardtanh": ""},
        {"clamp": "Outer.parts.0", "relu": "Outer.parts.1", "abs": "Outer", "hardtanh": ""},
    ]


@pytest.mark.parametrize("given", [{"every": 0}, {"every": 1.5}, {"ulps": -1}, {"compare_every": 0}])
def test_numbers_that_mean_nothing_are_refused(given: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="give a whole number"):
        subgrad.audit(**given)
