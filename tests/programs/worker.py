"""Both programs trained in every mode under each convention: the gradients of all steps, in the file that is named."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

import torch
import torch.distributed as dist
from distributed.pair import run_pair
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import subgrad
from programs.training import PROGRAMS, Named, Program, autocast_along, train

CONVENTIONS = ("min-norm", "mean")
# Conventions enter graphs before any backend: one is compiled to the end, which takes half a minute, the others not.
TO_THE_END = ("MobileNetV2", "mean")


def seen(program: Program, steps: Iterable[Named]) -> list[dict[str, Any]]:
    """Of each step the gradients of all parameters, and of what is held."""
    return [
        {
            "all": torch.cat([each.double().flatten() for each in gradients.values()]),
            "held": {
                f"{name}{[rows.start, rows.stop]}": gradients[name][rows].double() for name, rows, _ in program.held
            },
        }
        for gradients in steps
    ]


def with_ddp(path: str) -> None:
    """Each process has its half of every batch."""
    rank = dist.get_rank()
    found = {}
    for name, program in PROGRAMS.items():
        for convention in CONVENTIONS:
            with subgrad.use(convention):
                path_taken = train(program, DistributedDataParallel, range(rank, rank + 1))
            found[name, convention] = seen(program, [step.gradients for step in path_taken])
    if rank == 0:
        torch.save(found, path)


def in_one_process(program: Program, backend: str) -> dict[str, list[dict[str, Any]]]:
    def compiled(model: nn.Module) -> nn.Module:
        return torch.compile(model, backend=backend)  # type: ignore[return-value]

    path_taken = train(program)
    return {
        "eager": seen(program, [step.gradients for step in path_taken]),
        "compiled": seen(program, [step.gradients for step in train(program, compiled)]),
        "autocast": seen(program, autocast_along(program, path_taken)),
    }


if __name__ == "__main__":
    path = sys.argv[1]
    run_pair(with_ddp, f"{path}.ddp")
    torch.set_num_threads(1)
    found = {}
    for key, of_ddp in torch.load(f"{path}.ddp").items():
        name, convention = key
        with subgrad.use(convention):
            rest = in_one_process(PROGRAMS[name], "inductor" if key == TO_THE_END else "aot_eager")
        found[key] = {"DDP": of_ddp, **rest}
    torch.save(found, path)
