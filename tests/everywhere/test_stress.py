"""Many switches of convention at once: threads, tasks and worker processes always take their own element."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

import subgrad

X = torch.tensor([-1.0, 0.0, 3.0, 6.0, 7.0])
COTANGENT = torch.tensor([1.0, -2.0, -0.5, 5.0, 6.0])
NAMES = ("mean", "right", "left", "min-norm", "torch", "torch-2.13")
THREADS, SWITCHES = 4, 2500


def function(x: Tensor) -> Tensor:
    return torch.clamp(x, 0.0, 6.0) * 2 + torch.relu(x)


def gradient(call: Callable[[Tensor], Tensor], convention: str | None = None) -> list[float]:
    leaf = X.clone().requires_grad_()
    if convention is None:
        out = call(leaf)
    else:
        with subgrad.use(convention):
            out = call(leaf)
    return torch.autograd.grad(out, leaf, COTANGENT)[0].tolist()


EXPECTED = {name: gradient(function, name) for name in NAMES}


@pytest.mark.compiled
def test_ten_thousand_switches_in_threads_give_no_wrong_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiled and eager calls by turns; what is compiled is compiled in whatever thread comes first."""
    torch.compiler.reset()
    # Threads that miss a graph at the same time all compile it, one after the other: torch's own doing.
    limit = len(NAMES) * THREADS
    monkeypatch.setattr(torch._dynamo.config, "recompile_limit", limit)
    compiled = torch.compile(function, fullgraph=True)
    wrong: list[object] = []
    done: list[int] = []

    def switch(seed: int) -> None:
        torch._dynamo.config.recompile_limit = limit  # newer torch: of each thread
        choose = random.Random(seed)
        for turn in range(SWITCHES):
            name, call = choose.choice(NAMES), choose.choice((compiled, function))
            try:
                found = gradient(call, name)
            except Exception as error:  # a thread would swallow it
                found = repr(error)
            if found != EXPECTED[name]:
                wrong.append((seed, turn, name, call is compiled, found))
        done.append(SWITCHES)

    threads = [threading.Thread(target=switch, args=(seed,)) for seed in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert sum(done) == 10_000


def test_tasks_that_wait_for_each_other_keep_their_own() -> None:
    async def switch(name: str) -> int:
        with subgrad.use(name):
            for _ in range(300):
                assert gradient(function) == EXPECTED[name]
                await asyncio.sleep(0)
        return 300

    async def all_at_once() -> int:
        return sum(await asyncio.gather(*(switch(name) for name in NAMES)))

    assert asyncio.run(all_at_once()) == 300 * len(NAMES)


class Gradients(Dataset):
    """Each item is a gradient, taken in the worker: under its own convention if one is given."""

    def __init__(self, own: str | None = None):
        self.own = own

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> Tensor:
        return torch.tensor(gradient(function, self.own))


def set_worker_default(worker: int) -> None:
    subgrad.set_default("mean")


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_workers_of_a_dataloader_take_their_own(start: str) -> None:
    loader = DataLoader(Gradients("right"), num_workers=2, multiprocessing_context=start)
    with subgrad.use("mean"):
        assert all(item[0].tolist() == EXPECTED["right"] for item in loader)


@pytest.mark.parametrize(("start", "inherited"), [("fork", "mean"), ("spawn", "torch")])
def test_forked_workers_inherit_and_spawned_ones_begin_anew(start: str, inherited: str) -> None:
    loader = DataLoader(Gradients(), num_workers=1, multiprocessing_context=start)
    with subgrad.use("mean"):
        assert all(item[0].tolist() == EXPECTED[inherited] for item in loader)


def test_spawned_workers_can_be_given_a_default() -> None:
    loader = DataLoader(Gradients(), num_workers=1, multiprocessing_context="spawn", worker_init_fn=set_worker_default)
    assert all(item[0].tolist() == EXPECTED["mean"] for item in loader)
