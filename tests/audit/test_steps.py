"""Every optimizer's phases are looked at, however many there are and however they take turns."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import subgrad

# A phase of each optimizer calls an operator of its own, once, so that rows tell whose phases were looked at.
OPERATORS: dict[str, Callable[[Tensor], Tensor]] = {
    "a": torch.relu,
    "b": torch.abs,
    "c": F.hardtanh,
    "d": lambda x: x.clamp(min=0),
}
NAMES = {"a": "relu", "b": "abs", "c": "hardtanh", "d": "clamp"}


def trained(turns: str, rounds: int, **given: Any) -> tuple[Any, dict[str, dict[int, int]]]:
    """Steps of optimizers in turn; the audit, and by optimizer and step how often its operator was counted."""
    x = torch.zeros(3, requires_grad=True)
    optimizers = {name: torch.optim.SGD([x], lr=0.0) for name in sorted({*turns})}
    with subgrad.audit(**given) as audit:
        for turn in turns * rounds:
            (OPERATORS[turn](x) * torch.tensor([1.0, -2.0, 3.0])).sum().backward()
            optimizers[turn].step()
    counts = {
        row.operator: {each.step: each.calls for each in row.series} for row in audit.rows if row.kind == "corner"
    }
    return audit, {name: counts.get(NAMES[name], {}) for name in optimizers}


def test_one_optimizer_ends_a_step_each_time() -> None:
    audit, counts = trained("a", 35)
    assert counts == {"a": {0: 1, 10: 1, 20: 1, 30: 1}}
    assert (audit.steps, audit.recorded) == (35, (0, 10, 20, 30))


def test_what_is_printed_after_the_last_step_is_no_step() -> None:
    x = torch.zeros(3, requires_grad=True)
    optimizer = torch.optim.SGD([x], lr=0.0)
    with subgrad.audit(every=1) as audit:
        for _ in range(2):
            print((x.relu().sum() + x.abs().sum()).item())  # counted: its step goes on to backward
            (x.clamp(min=0) * torch.tensor([1.0, -2.0, 3.0])).sum().backward()
            optimizer.step()
        print(x.abs().sum().item(), x.hardshrink().sum().item())
    assert (audit.steps, audit.recorded) == (2, (0, 1))
    assert {row.operator: row.total.calls for row in audit.rows} == {"relu": 2, "abs": 2, "clamp": 2}
    assert [note for note in audit.notes if "after the last step" in note]
    assert not audit.unseen


def test_a_step_that_fails_before_its_backward_is_one() -> None:
    x = torch.zeros(3, requires_grad=True)
    optimizer = torch.optim.SGD([x], lr=0.0)
    with pytest.raises(RuntimeError, match="out of data"), subgrad.audit(every=1) as audit:  # noqa: PT012
        (x.clamp(min=0) * torch.tensor([1.0, -2.0, 3.0])).sum().backward()
        optimizer.step()
        x.abs()
        raise RuntimeError("out of data")
    assert (audit.steps, audit.recorded, {row.operator for row in audit.rows}) == (2, (0, 1), {"clamp", "abs"})


def test_what_follows_the_last_step_and_goes_backward_is_one() -> None:
    x = torch.zeros(3, requires_grad=True)
    optimizer = torch.optim.SGD([x], lr=0.0)
    with subgrad.audit(every=1) as audit:
        for _ in range(2):
            (x.clamp(min=0) * torch.tensor([1.0, -2.0, 3.0])).sum().backward()
            optimizer.step()
        x.abs().sum().backward()
    assert (audit.steps, audit.recorded) == (3, (0, 1, 2))


def test_two_in_turn_are_both_recorded_in_one_step_of_ten() -> None:
    audit, counts = trained("ab", 100)
    assert counts["a"] == dict.fromkeys((0, 2, *range(10, 101, 10)), 1)
    assert counts["b"] == dict.fromkeys((2, *range(10, 101, 10)), 1)
    assert (audit.steps, audit.recorded) == (101, (0, 2, *range(10, 101, 10)))
    assert not audit.notes


@pytest.mark.parametrize(
    ("turns", "rounds"),
    [
        *(("abc", 40), ("aaaaab", 60), ("aab", 50), ("abbccc", 50), ("ab" * 5 + "c", 40), ("dcba", 30)),
        *(("aabb", 50), ("aabbb", 50), ("a" * 7 + "b" * 7, 60), ("abcba", 50)),
    ],
)
def test_whatever_the_turns_are_each_step_has_all_of_a_round(turns: str, rounds: int) -> None:
    """Once all have joined, a recorded step has exactly the phases of one round: as many of each as in the turns."""
    audit, counts = trained(turns, rounds)
    settled = [step for step in audit.recorded if step > 2 * len(turns)]
    assert len(settled) >= 2
    for name, found in counts.items():
        assert [found[step] for step in settled[:-1]] == [turns.count(name)] * len(settled[:-1])
    assert len(audit.recorded) <= audit.steps / 10 + 2 * len({*turns})
    assert not audit.notes


def test_with_every_step_recorded_every_phase_is_counted_once() -> None:
    for turns in ("ab", "aab", "abc", "abcba"):
        audit, counts = trained(turns, 7, every=1)
        assert {name: sum(found.values()) for name, found in counts.items()} == {
            name: 7 * turns.count(name) for name in {*turns}
        }
        assert audit.recorded == tuple(range(audit.steps))


def test_optimizers_that_step_together_end_one_step() -> None:
    x = torch.zeros(3, requires_grad=True)
    optimizers = [torch.optim.SGD([x], lr=0.0), torch.optim.Adam([x], lr=0.0)]
    with subgrad.audit() as audit:
        for _ in range(30):
            torch.relu(x).sum().backward()
            for optimizer in optimizers:
                optimizer.step()
    assert (audit.steps, [each.step for each in audit.rows[0].series]) == (31, [0, 2, 10, 20, 30])
    assert audit.rows[0].total.calls == 5


def test_an_optimizer_that_stops_is_not_waited_for() -> None:
    """First one alone, then another alone: both are recorded in about one step of ten."""
    x = torch.zeros(3, requires_grad=True)
    one, other = (torch.optim.SGD([x], lr=0.0) for _ in range(2))
    with subgrad.audit() as audit:
        for step in range(200):
            (torch.relu(x) if step < 100 else x.abs()).sum().backward()
            (one if step < 100 else other).step()
    counts = {row.operator: row.total.calls for row in audit.rows}
    assert counts["relu"] == 10
    assert 8 <= counts["abs"] <= 30
    assert 180 <= audit.steps <= 200


def test_long_turns_are_learnt() -> None:
    """At first neither waits so long for the other; in the end a step has a whole round."""
    audit, counts = trained("a" * 40 + "b" * 40, 50)
    last = audit.recorded[-2]
    assert (counts["a"][last], counts["b"][last]) == (40, 40)


def test_optimizers_made_anew_are_sampled_as_one_that_stays() -> None:
    x = torch.zeros(3, requires_grad=True)
    with subgrad.audit() as audit:
        for _ in range(400):
            torch.relu(x).sum().backward()
            torch.optim.SGD([x], lr=0.0).step()
            gc.collect(0)
    assert audit.steps == 400
    assert 40 <= audit.rows[0].total.calls <= 70


def test_an_optimizer_of_which_nothing_was_recorded_is_named() -> None:
    audit, counts = trained("ab", 1)
    assert counts["b"] == {}
    assert audit.unseen == ("no step of SGD was looked at; every=1 looks at all",)
    assert audit.unseen[0] in str(audit)
    assert trained("ab", 2)[1]["b"] == {2: 1}
    assert trained("ab", 1, every=1)[0].unseen == ()


def test_a_generator_and_a_critic_are_compared_together() -> None:
    """The critic steps twice, the generator once, and what it made for the critic's phase is used in its own."""
    torch.manual_seed(0)
    generator, critic = nn.Linear(2, 2), nn.Linear(2, 1)
    for each in (*generator.parameters(), *critic.parameters()):
        nn.init.zeros_(each)
    optimizers = [torch.optim.SGD(each.parameters(), lr=0.0) for each in (critic, generator)]
    both = nn.ModuleDict({"generator": generator, "critic": critic})
    with subgrad.audit(both, compare=("torch-2.13", "torch-2.14"), every=10) as audit:
        for _ in range(30):
            for _ in range(2):
                made = generator(torch.ones(3, 2)).clamp(min=0)
                optimizers[0].zero_grad()
                (critic(made.detach()).clamp(max=0) * torch.tensor([[1.0], [2.0], [3.0]])).sum().backward()
                optimizers[0].step()
            optimizers[1].zero_grad()
            ((critic(made) + made) * torch.tensor([[1.0], [2.0], [3.0]])).sum().backward()
            optimizers[1].step()
    last = max(effect.step for effect in audit.effects)
    found = [
        {change.parameter for change in effect.changes if change.differ}
        for effect in audit.effects
        if effect.step == last
    ]
    assert found == [{"critic.bias"}, {"critic.bias"}, {"generator.weight", "generator.bias"}]
    assert not any(effect.unseen for effect in audit.effects if effect.step == last)


def test_accumulated_gradients_are_of_one_step() -> None:
    x = torch.zeros(3, requires_grad=True)
    optimizer = torch.optim.SGD([x], lr=0.0)
    with subgrad.audit(compare=("torch-2.13", "torch-2.14"), every=2, compare_every=4) as audit:
        for _ in range(5):
            for _ in range(4):
                (x.clamp(min=0) * torch.tensor([1.0, 2.0, 3.0])).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
    assert [(each.step, each.calls, each.hits) for each in audit.rows[0].series] == [(0, 4, 12), (2, 4, 12), (4, 4, 12)]
    assert [effect.step for effect in audit.effects] == [0] * 4 + [4] * 4


def test_an_optimizer_with_a_closure_ends_one_step_however_often_it_calls() -> None:
    x = torch.tensor([1.0, -2.0, 0.0], requires_grad=True)
    optimizer = torch.optim.LBFGS([x], max_iter=5, tolerance_grad=0, tolerance_change=0)
    calls = []

    def closure() -> Tensor:
        calls.append(1)
        optimizer.zero_grad()
        loss = ((x - 3) ** 2 * torch.tensor([1.0, 2.0, 3.0])).sum() + x[2].clamp(min=0)
        loss.backward()
        return loss

    counted = []
    with subgrad.audit(compare=("torch-2.13", "torch-2.14"), every=1, compare_every=1) as audit:
        for _ in range(3):
            before = len(calls)
            optimizer.step(closure)
            counted.append(len(calls) - before)
    assert audit.steps == 3
    assert [each.calls for each in next(row for row in audit.rows if row.operator == "clamp").series] == counted
    assert len(audit.effects) == len(calls)


def test_without_an_optimizer_all_is_one_step() -> None:
    x = torch.zeros(3, requires_grad=True)
    with subgrad.audit() as audit:
        for _ in range(30):
            torch.relu(x).sum().backward()
    assert [(each.step, each.calls) for each in audit.rows[0].series] == [(0, 30)]
    assert (audit.steps, audit.recorded) == (1, (0,))


def test_an_optimizer_that_steps_twice_for_one_backward_takes_two_steps() -> None:
    x = torch.zeros(3, requires_grad=True)
    optimizer = torch.optim.SGD([x], lr=0.0)
    with subgrad.audit(every=1) as audit:
        for _ in range(5):
            torch.relu(x).sum().backward()
            optimizer.step()
            optimizer.step()
    assert (audit.steps, audit.rows[0].total.calls) == (10, 5)
    assert audit.recorded == (0, 2, 4, 6, 8)


def test_listeners_are_told_of_every_step_once() -> None:
    told: list[tuple[int, int]] = []
    audit, _ = trained("aab", 20, every=4, listeners=[lambda step, met: told.append((step, int(met.get("hits", -1))))])
    assert [step for step, _ in told] == list(range(audit.steps))[: len(told)]
    assert len(told) >= audit.steps - 1
    assert {step for step, hits in told if hits >= 0} == {step for step in audit.recorded if step < len(told)}
