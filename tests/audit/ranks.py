"""Two processes, each auditing its part of a training: with DDP, and with parameters sharded by FSDP2."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from distributed.pair import run_pair
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import subgrad


def network() -> nn.Module:
    model = nn.Sequential(nn.Linear(4, 4, bias=False), nn.ReLU(), nn.Linear(4, 2, bias=False))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_((torch.arange(parameter.numel()) % 3 - 1.0).view_as(parameter))
    return model


def batch(rank: int) -> torch.Tensor:
    return (torch.arange(24) * (rank + 2) % 5 - 2.0).view(6, 4)


def train(model: nn.Module, rank: int, steps: int = 3) -> subgrad.audit.Session:  # type: ignore[name-defined]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    with subgrad.audit(model, every=2, compare=("torch-2.13", "torch-2.14")) as audit:
        for _ in range(steps):
            optimizer.zero_grad()
            out = model(batch(rank))
            (out.clamp(0, 1) * torch.tensor([1.0, 2.0])).sum().backward()
            optimizer.step()
    return audit


def work(path: Path) -> None:
    rank, found = dist.get_rank(), {}
    mesh = dist.init_device_mesh("cpu", (2,))
    model = network()
    for layer in (model[0], model[2]):
        fully_shard(layer, mesh=mesh)
    for name, made in (("DDP", DistributedDataParallel(network())), ("FSDP2", fully_shard(model, mesh=mesh))):
        audit = train(made, rank)
        gathered = audit.gather()
        own = audit.to_json(path.with_name(f"{path.name}.{name}.rank{rank}.json"))
        found[name] = {"gathered": gathered.to_json(), "own": own}
    if rank == 0:
        path.write_text(json.dumps(found))


if __name__ == "__main__":
    run_pair(work, Path(sys.argv[1]))
