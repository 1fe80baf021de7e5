"""Many switches of convention at once: threads, tasks and worker processes always take their own element."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.torch_version import TorchVersion
from torch.utils.data import DataLoader, Dataset

import subgrad

X = torch.tensor([-1.0, 0.0, 3.0, 6.0, 7.0])
COTANGENT = torch.tensor([1.0, -2.0, -0.5, 5.0, 6.0])
NAMES = ("mean", "right", "left", "min-norm", "torch", "torch-2.13")
THREADS = 4


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


# By hand: twice the slope of clamp plus that of relu, times the cotangent.
EXPECTED = {
    "mean": [0.0, -3.0, -1.5, 10.0, 6.0],
    "right": [0.0, -6.0, -1.5, 5.0, 6.0],
    "left": [0.0, 0.0, -1.5, 15.0, 6.0],
    "min-norm": [0.0, 0.0, -1.5, 5.0, 6.0],
    "torch-2.13": [0.0, -4.0, -1.5, 15.0, 6.0],
    "torch-2.14": [0.0, 0.0, -1.5, 5.0, 6.0],
}
EXPECTED["torch"] = EXPECTED["torch-2.14" if TorchVersion(torch.__version__) >= "2.14" else "torch-2.13"]


@pytest.mark.compiled
@pytest.mark.parametrize(
    ("backend", "names", "switches"),
    [
        pytest.param("aot_eager", NAMES, 2500, id="ten thousand"),
        pytest.param("inductor", ("mean", "right", "torch"), 50, id="some through Inductor and its caches on disk"),
    ],
)
def test_switches_in_threads_give_no_wrong_gradient(backend: str, names: tuple[str, ...], switches: int) -> None:
    """Compiled and eager calls by turns; what is compiled is compiled in whatever thread comes first."""
    torch.compiler.reset()
    compiled = torch.compile(function, fullgraph=True, backend=backend)
    # Threads that miss a graph at the same time all compile it, one after the other: torch's own doing.
    limit = len(names) * THREADS
    wrong: list[object] = []
    done: list[int] = []

    def switch(seed: int) -> None:
        torch._dynamo.config.recompile_limit = limit  # in newer torch each thread has its own
        choose = random.Random(seed)
        for turn in range(switches):
            name, call = choose.choice(names), choose.choice((compiled, function))
            try:
                found: object = gradient(call, name)
            except Exception as error:  # a thread would swallow it
                found = repr(error)
            if found != EXPECTED[name]:
                wrong.append((seed, turn, name, call is compiled, found))
        done.append(switches)

    with torch._dynamo.config.patch(recompile_limit=limit):
        threads = [threading.Thread(target=switch, args=(seed,)) for seed in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert wrong == []
    assert done == [switches] * THREADS


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
    """Each item is taken in the worker: a gradient under a convention of its own, and one under what it finds there."""

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> Tensor:
        return torch.tensor([gradient(function, "right"), gradient(function)])


def set_worker_default(worker: int) -> None:
    subgrad.set_default("left")


@pytest.mark.parametrize(
    ("start", "prepare", "found"),
    [("fork", None, "mean"), ("spawn", None, "torch"), ("spawn", set_worker_default, "left")],
    ids=["forked ones inherit", "spawned ones begin anew", "spawned ones can be given a default"],
)
def test_workers_of_a_dataloader(start: str, prepare: Callable[[int], None] | None, found: str) -> None:
    loader = DataLoader(Gradients(), num_workers=1, multiprocessing_context=start, worker_init_fn=prepare)
    with subgrad.use("mean"):
        assert [item[0].tolist() for item in loader] == [[EXPECTED["right"], EXPECTED[found]]] * 8
