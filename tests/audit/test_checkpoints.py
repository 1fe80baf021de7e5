"""Under checkpoints a run is what it is without the audit, to the bit, and no code of it runs more often."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.torch_version import TorchVersion
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    checkpoint_sequential,
    create_selective_checkpoint_contexts,
    set_checkpoint_early_stop,
)

import subgrad
from audit.families import FAMILIES

Compared = tuple[str, ...]
COMPARED: list[Compared] = [(), ("left", "min-norm"), ("torch-2.13", "torch-2.14"), ("torch", "right", "mean")]
reentrant, kept = partial(checkpoint, use_reentrant=True), partial(checkpoint, use_reentrant=False)


class Counting(nn.Module):
    """Does what no buffer shows and nobody can take back: counts its calls."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return x * 1


class Extremes(nn.Module):
    """Kinks of several operands, in place and in windows."""

    def forward(self, x: Tensor) -> Tensor:
        x = torch.maximum(x, x.detach() * 0).clamp(-1, 2)
        x = (x * 1).clamp_(min=0) + F.max_pool1d(x[None], 3, 1, 1)[0]
        return x + x.amax(1, keepdim=True) + torch.clamp(x, x.detach(), x.detach() + 1)


def parts() -> list[nn.Module]:
    """On zeros every kink is hit."""
    linear = nn.Linear(4, 4)
    nn.init.zeros_(linear.weight[:2])
    nn.init.zeros_(linear.bias)
    layers = [linear, nn.BatchNorm1d(4), nn.Hardtanh(0, 1), nn.SELU(), nn.PReLU(), nn.Dropout(0.5)]
    return [*layers, Counting(), nn.ReLU(), Extremes()]


def selective(ctx: Any, op: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
    is_kept = op in (torch.ops.aten.addmm.default, torch.ops.aten.relu.default)
    return CheckpointPolicy.MUST_SAVE if is_kept else CheckpointPolicy.PREFER_RECOMPUTE


def nested(run: Callable[..., Any], net: nn.Sequential, x: Tensor) -> Tensor:
    return run(lambda x: run(net[4:], run(net[2:4], net[:2](x)).clamp(-2, 1)).abs(), x)


def late(net: nn.Sequential, x: Tensor) -> Tensor:
    with set_checkpoint_early_stop(False):
        return kept(net, x)


WAYS: dict[str, Callable[[nn.Sequential, Tensor], Tensor]] = {
    "none": lambda net, x: net(x),
    "kept": kept,
    "reentrant": reentrant,
    "kept, nested": partial(nested, kept),
    "reentrant, nested": partial(nested, reentrant),
    "reentrant around kept": lambda net, x: reentrant(lambda x: kept(net, x).relu(), x),
    "kept around reentrant": lambda net, x: kept(lambda x: reentrant(net, x).relu(), x),
    "other random numbers": partial(kept, preserve_rng_state=False),
    "no early stop": late,
    "no check": partial(kept, determinism_check="none"),
    "selective": partial(kept, context_fn=partial(create_selective_checkpoint_contexts, selective)),
    "sequential": lambda net, x: checkpoint_sequential(net, 3, x, use_reentrant=False),
    "sequential, reentrant": lambda net, x: checkpoint_sequential(net, 3, x, use_reentrant=True),
    "one by one": lambda net, x: nn.Sequential(*(partial_module(each) for each in net))(x),
}


if TorchVersion(torch.__version__) >= "2.14":  # before, pytest's handler cannot format what it logs
    WAYS["debug"] = partial(kept, debug=True)


def partial_module(inner: nn.Module) -> nn.Module:
    class Checkpointed(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return kept(inner, x)

    return Checkpointed()


Run = dict[str, list[Tensor]]


def trained(way: str, audit: Any = None, *, scaled: bool = False, twice: bool = False) -> Run:
    """All that a run leaves: losses, gradients, weights, statistics, states of the generator, and counted calls."""
    torch.manual_seed(3)
    net = nn.Sequential(*parts())
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
    scaler = torch.amp.GradScaler("cpu", enabled=scaled)
    found: Run = {"losses": [], "gradients": [], "states": []}
    with nullcontext() if audit is None else audit:
        for _ in range(3):
            optimizer.zero_grad()
            x = torch.randn(5, 4).round().requires_grad_()
            with torch.autocast("cpu", torch.bfloat16, enabled=scaled):
                out = WAYS[way](net, x)
            loss = (out * torch.arange(20.0).sub(7).reshape(5, 4)).mean()
            scaled_loss = scaler.scale(loss)
            if twice:
                scaled_loss.backward(retain_graph=True)
            scaled_loss.backward()
            scaler.step(optimizer)
            scaler.update()
            found["losses"].append(loss.detach())
            found["gradients"] += [each.grad.clone() for each in [x, *net.parameters()] if each.grad is not None]
            found["states"].append(torch.get_rng_state())
    calls = torch.tensor([each.calls for each in net if isinstance(each, Counting)])
    return {**found, "weights": [*net.state_dict().values()], "calls": [calls]}


def assert_same(one: Run, other: Run) -> None:
    for name in one:
        assert len(one[name]) == len(other[name]), name
        assert all(torch.equal(a, b) for a, b in zip(one[name], other[name], strict=True)), name


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("compared", COMPARED, ids=" and ".join)
@pytest.mark.parametrize("way", WAYS)
def test_nothing_of_a_run_changes(way: str, compared: Compared) -> None:
    audit = subgrad.audit(compare=compared, every=1, compare_every=1, ulps=1)
    assert_same(trained(way), trained(way, audit))
    if way in ("debug", "selective"):  # which watch every call themselves
        assert any("was not looked at" in each for each in audit.unseen)
    else:
        assert audit.hits > 0


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("given", [{"scaled": True}, {"twice": True}], ids=str)
@pytest.mark.parametrize("way", ["none", "kept", "kept, nested", "reentrant", "other random numbers"])
def test_nothing_changes_with_scaled_losses_or_a_second_backward(way: str, given: dict[str, bool]) -> None:
    audit = subgrad.audit(compare=("left", "min-norm"), every=1, compare_every=2)
    assert_same(trained(way, **given), trained(way, audit, **given))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "way", ["kept", "kept, nested", "other random numbers", "no early stop", "sequential", "one by one"]
)
def test_gradients_under_checkpoints_are_compared_as_without(way: str) -> None:
    """The network without random numbers: then checkpoints change nothing, and both comparisons must agree."""
    found = []
    for each in ("none", way):
        torch.manual_seed(0)
        net = nn.Sequential(*(part for part in parts() if not isinstance(part, nn.Dropout)))
        with subgrad.audit(net, compare=("min-norm", "right")) as audit:
            out = WAYS[each](net, torch.zeros(5, 4, requires_grad=True))
            (out * torch.arange(20.0).sub(7).reshape(5, 4)).sum().backward()
        assert not audit.notes
        (effect,) = audit.effects
        found.append([(change.parameter, change.differ, change.flips) for change in effect.changes])
    if "nested" not in way:  # which has more kinks of its own
        assert found[0] == found[1]
    assert any(differ for _, differ, _ in found[1])


@pytest.mark.parametrize("way", ["reentrant", "reentrant, nested", "kept around reentrant"])
@pytest.mark.filterwarnings("ignore")
def test_what_is_not_compared_is_said_in_the_verdict(way: str) -> None:
    audit = subgrad.audit(compare=("left", "min-norm"))
    trained(way, audit)
    assert not audit.effects
    assert "reentrant checkpoints run the program's code whenever they are walked" in audit.unseen[0]
    assert audit.verdicts[0].startswith(f"No gradients were compared under left and min-norm: {audit.unseen[0]}")
    assert audit.unseen[0] in str(audit)


def test_a_checkpoint_from_before_the_step_is_not_run_once_more() -> None:
    counting, x = Counting(), torch.zeros(3, requires_grad=True)
    y = kept(lambda x: counting(x).clamp(min=0), x)
    with subgrad.audit(compare=("torch-2.13", "torch-2.14")) as audit:
        (y * torch.tensor([1.0, 2.0, 3.0])).sum().backward()
    assert counting.calls == 2
    assert "checkpoints from before this step" in audit.unseen[0]
    assert not audit.effects


def test_a_function_that_fails_when_it_is_recomputed_fails_as_without() -> None:
    def run() -> None:
        calls = []

        def function(x: Tensor) -> Tensor:
            calls.append(1)
            x = x.clamp(min=0) * 2
            if len(calls) > 1:
                raise KeyError("mine")
            return x.exp()

        kept(function, torch.zeros(3, requires_grad=True)).sum().backward()

    with pytest.raises(KeyError, match="mine"):
        run()
    with subgrad.audit(compare=("torch-2.13", "torch-2.14")) as audit, pytest.raises(KeyError, match="mine"):
        run()
    assert "could not be compared: 'mine'" in audit.unseen[0]


def test_backward_may_come_after_the_audit_and_twice() -> None:
    def run(around: Any) -> tuple[int, list[float]]:
        counting, x = Counting(), torch.zeros(3, requires_grad=True)
        with around:
            y = (kept(lambda x: counting(x).clamp(min=0), x) * torch.tensor([1.0, 2.0, 3.0])).sum()
        y.backward(retain_graph=True)
        y.backward()
        return counting.calls, x.grad.tolist()  # type: ignore[union-attr]

    assert run(subgrad.audit(compare=("torch-2.13", "torch-2.14"))) == run(nullcontext())


def test_hooks_for_saved_tensors_that_somebody_wrote_are_called_as_often_as_without() -> None:
    def run() -> tuple[int, int, list[float]]:
        packed, unpacked = [], []
        x = torch.tensor([0.0, 1.0, -1.0], requires_grad=True)
        hooks = torch.autograd.graph.saved_tensors_hooks(
            lambda x: (packed.append(x), x)[1], lambda x: (unpacked.append(x), x)[1]
        )
        with hooks:
            y = F.prelu(x, torch.tensor([0.5])).clamp(0, 1).sum()
        y.backward()
        return len(packed), len(unpacked), x.grad.tolist()  # type: ignore[union-attr]

    plain = run()
    with subgrad.audit(compare=("left", "min-norm")) as audit:
        assert run() == plain
    assert "a hook for saved tensors" in audit.unseen[0]


def test_saved_tensors_on_the_cpu_are_compared() -> None:
    x = torch.zeros(3, requires_grad=True)
    with subgrad.audit(compare=("torch-2.13", "torch-2.14")) as audit:
        with torch.autograd.graph.save_on_cpu():
            y = x.clamp(min=0) * torch.tensor([1.0, 2.0, 3.0])
        y.sum().backward()
    assert audit.effects[0].differing == 3
    assert not audit.notes


@pytest.mark.parametrize("family", FAMILIES)
def test_a_call_that_can_be_switched_saves_what_it_saves_without(family: str) -> None:
    """Else a checkpoint finds that its function saved something else, and stops the program."""

    def saved() -> list[tuple[Any, ...]]:
        found = []
        x, y = (((torch.arange(64.0) * step % 7 - 3).reshape(8, 8)).requires_grad_() for step in (5, 3))
        with torch.autograd.graph.saved_tensors_hooks(
            lambda each: (found.append((each.shape, each.dtype)), each)[1], lambda each: each
        ):
            FAMILIES[family].call(x, y)
        return found

    plain = saved()
    with subgrad.audit(compare=("left", "min-norm", "mean")):
        assert saved() == plain


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("way", ["kept", "kept, nested", "no early stop", "sequential"])
def test_compare_takes_checkpoints(way: str) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(*(part for part in parts() if not isinstance(part, nn.Dropout)))
    before = [each.clone() for each in net.state_dict().values()]

    def loss(way: str) -> Tensor:
        out = WAYS[way](net, torch.zeros(5, 4, requires_grad=True))
        return (out * torch.arange(20.0).sub(7).reshape(5, 4)).sum()

    plain, effect = (subgrad.compare(partial(loss, each), net, ["min-norm", "right"]) for each in ("none", way))
    assert effect.differing > 0
    assert not effect.unseen
    if way != "kept, nested":
        assert effect.changes == plain.changes
    assert all(torch.equal(a, b) for a, b in zip(before, net.state_dict().values(), strict=True))
