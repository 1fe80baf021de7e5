"""What an audit costs the host: nothing between recorded steps, and in them few Python frames for each operator."""

from __future__ import annotations

from ast import literal_eval
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from entered import frames
from fresh import run_fresh
from torch import Tensor, nn

import subgrad
from subgrad.apply.current_pass import KEY
from subgrad.audit.counting import SAMPLE
from subgrad.torch_internals.dispatcher import is_key_included

CALLS = 20
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": torch.relu,
    "hardtanh in place": lambda x: F.hardtanh(x, 0, 6, inplace=True),
    "leaky_relu": F.leaky_relu,
    "clamp": lambda x: x.clamp(-1, 1),
}


def counted(name: str) -> tuple[int, int]:
    """The frames that calls take in a step that is recorded, and in one that is not."""
    x = torch.randn(8, requires_grad=True)

    def run() -> int:
        inputs = [x * 1 for _ in range(CALLS)]
        with frames() as found:
            for each in inputs:
                ACTIVATIONS[name](each)
        return len(found)

    with subgrad.audit(every=2) as audit:
        run()
        recorded = run()
        audit.step()
        return recorded, run()


def keys() -> list[bool]:
    """Whether the key of passes is on, in steps of which one in three is recorded, and afterwards."""
    found = []
    with subgrad.audit(every=3) as audit:
        for _ in range(6):
            found.append(is_key_included(KEY))
            audit.step()
    return [*found, is_key_included(KEY)]


def fresh(call: str) -> Any:
    """Of this file, where no convention has put kernels beneath those of passes, and nothing is compiled."""
    done = run_fresh(f"from audit import test_host; print(test_host.{call})")
    assert done.returncode == 0, done.stderr
    return literal_eval(done.stdout)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_an_operator_takes_few_frames_where_it_is_recorded_and_none_between(name: str) -> None:
    recorded, between = fresh(f"counted({name!r})")
    assert recorded <= 32 * CALLS
    assert between == 0


def test_the_key_of_passes_is_on_in_recorded_steps_alone() -> None:
    assert fresh("keys()") == [True, False, False, True, False, False, False]


def test_steps_that_end_inside_a_backward_are_recorded_from_their_beginning() -> None:
    """Torch puts the keys of a thread back when a backward ends, so that what a step has switched on would be lost."""
    weight = nn.Parameter(torch.zeros(3))
    optimizer = torch.optim.SGD([weight], lr=0.0)
    with subgrad.audit(every=2) as audit:
        audit.step()  # outside of one, so that the next backward begins with the key off
        weight.register_post_accumulate_grad_hook(lambda _: optimizer.step())
        for _ in range(5):
            torch.relu(weight).sum().backward()
    (row,) = audit.rows
    assert [(each.step, each.calls, each.hits) for each in row.series] == [(2, 1, 3), (4, 1, 3)]
    assert not audit.notes


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str)
def test_bounds_are_those_that_the_dtype_holds(dtype: torch.dtype) -> None:
    """A bound that is no number of the dtype is rounded, by torch's kernels and so by counts and distances."""
    x = torch.tensor([0.1, -0.7, 0.3, 5.0], dtype=dtype, requires_grad=True)
    with subgrad.audit() as audit:
        x.clamp(-0.7, 0.1)
    assert {row.kink: row.total.hits for row in audit.rows} == {"self == max": 1, "self == min": 1}
    assert sum(sum(row.distances) for row in audit.rows) == 2


@pytest.mark.parametrize("shape", [(), (0,), (5,), (SAMPLE,), (3 * SAMPLE + 7,), (2, 3, 40, 50)], ids=str)
@pytest.mark.parametrize("layout", ["as it is", "every other"])
def test_distances_are_of_a_sample_that_is_spread_over_all_entries(shape: tuple[int, ...], layout: str) -> None:
    x = torch.arange(1, 1 + torch.Size(shape).numel(), dtype=torch.float64).view(shape)
    x = x if layout == "as it is" or not shape else x.repeat_interleave(2, -1)[..., ::2]
    with subgrad.audit() as audit:
        torch.relu(x.requires_grad_())
        torch.relu(x)
    line = x if layout == "as it is" or x.ndim < 2 or not x.numel() else x[(0,) * (x.ndim - 1)]
    rows = [row for row in audit.rows if row.total.calls]
    assert sum(sum(row.distances) for row in rows) == 2 * min(line.numel(), SAMPLE)


def test_samples_do_not_pile_up_where_steps_are_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("subgrad.audit.recording.MOST", 4)
    x = torch.ones(3, requires_grad=True)
    with subgrad.audit() as audit:
        for _ in range(10):
            torch.relu(x)
        assert len(audit._recording._samples) == 2
    (row,) = audit.rows
    assert sum(row.distances) == 30
