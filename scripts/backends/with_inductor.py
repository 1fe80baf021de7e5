"""Inductor as a backend of the conformance pack: torch's operators, compiled one by one."""

from __future__ import annotations

from typing import Any

import torch
from report import report
from torch import Tensor


def run(case: Any) -> tuple[Any, dict[str, Any]]:
    packet, _, form = case.overload.removeprefix("aten::").partition(".")
    overload = getattr(getattr(torch.ops.aten, packet), form or "default")
    arguments = {
        name: torch.tensor(value) if name in case.tensors and value is not None else value
        for name, value in case.arguments.items()
    }
    cotangent = torch.tensor(case.cotangent)

    @torch.compile(fullgraph=True)
    def call(leaves: dict[str, Tensor]) -> Tensor:
        out = overload(**{**arguments, **leaves})
        if isinstance(out, Tensor):
            return out
        return next(each for each in out if each.shape == cotangent.shape and each.is_floating_point())

    torch._dynamo.reset()
    leaves = {name: arguments[name].requires_grad_() for name in case.differentiated}
    value = call(leaves)
    gradients = torch.autograd.grad(value, list(leaves.values()), cotangent, materialize_grads=True)
    return value.detach(), dict(zip(leaves, gradients, strict=True))


report("Inductor", torch.__version__.partition("+")[0], run, "torch-2.14")
