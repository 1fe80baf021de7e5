"""The workload on each of PyTorch's engines, as one of two processes sees it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.distributed.tensor import DTensor, Placement, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

from distributed.pair import PROCESSES
from distributed.workload import (
    COTANGENT,
    INPUT,
    LEFT,
    NUMBER,
    OPERATORS,
    RIGHT,
    Gradients,
    as_lists,
    loss,
    loss_of,
    network,
)


def whole(tensor: Tensor) -> Tensor:
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def gradients(model: nn.Module, scale: int = 1) -> Gradients:
    return as_lists(scale * whole(parameter.grad) for parameter in model.parameters())


# Where each process has its part of the batch, gradients are averaged: times two, they are sums.


def backward_of_own_part(model: nn.Module) -> Gradients:
    mine, cotangent = (each.chunk(PROCESSES)[dist.get_rank()] for each in (INPUT, COTANGENT))
    loss(model(mine), cotangent).backward()
    return gradients(model, scale=PROCESSES)


def ddp(mesh: DeviceMesh, make: Callable[[], nn.Sequential] = network) -> Gradients:
    return backward_of_own_part(DistributedDataParallel(make()))


def fsdp(mesh: DeviceMesh, make: Callable[[], nn.Sequential] = network) -> Gradients:
    model = make()
    for part in (model[0], model[2], model):
        fully_shard(part, mesh=mesh)
    return backward_of_own_part(model)


def tensor_parallel(mesh: DeviceMesh, *, local: bool = True) -> Gradients:
    plan = {"0": ColwiseParallel(use_local_output=local), "2": RowwiseParallel()}
    model = parallelize_module(network(), mesh, plan)
    loss(model(INPUT), COTANGENT).backward()
    return gradients(model)


def tensor_parallel_with_dtensors_between(mesh: DeviceMesh) -> Gradients:
    return tensor_parallel(mesh, local=False)


def pipeline(mesh: DeviceMesh) -> Gradients:
    model, rank, batches = network(), dist.get_rank(), 2
    part = model[:2] if rank == 0 else model[2:]
    schedule = Schedule1F1B(PipelineStage(part, rank, PROCESSES, torch.device("cpu")), batches, loss_fn=loss)
    if rank == 0:
        schedule.step(INPUT)
    else:
        schedule.step(target=COTANGENT)
    parts: list[Any] = [None] * PROCESSES
    dist.all_gather_object(parts, gradients(part, scale=batches))
    return [gradient for part in parts for gradient in part]


ENGINES: dict[str, Callable[[DeviceMesh], Gradients]] = {
    "DDP": ddp,
    "FSDP2": fsdp,
    "tensor parallel": tensor_parallel,
    "tensor parallel with DTensors between": tensor_parallel_with_dtensors_between,
    "pipeline": pipeline,
}


# Operators of DTensors, five rows of which make uneven shards.

LAYOUTS: dict[str, tuple[Placement, Placement]] = {
    "rows": (Shard(0), Shard(0)),
    "columns": (Shard(1), Shard(1)),
    "columns and rows": (Shard(1), Shard(0)),
    "replicated": (Replicate(), Replicate()),
}


def of_dtensors(operator: str, layout: str, mesh: DeviceMesh) -> Gradients:
    first, second = LAYOUTS[layout]
    left, right = distribute_tensor(LEFT, mesh, [first]), distribute_tensor(RIGHT, mesh, [second])
    operands = [each.requires_grad_() for each in (left, right, NUMBER.clone())]
    out = whole(OPERATORS[operator](*operands))
    found = torch.autograd.grad(loss_of(out), operands, materialize_grads=True)
    return as_lists(whole(each) for each in found)
