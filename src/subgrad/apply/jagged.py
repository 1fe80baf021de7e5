"""Tensors that are no plain strided memory: jagged ones through their values, the others refused by name."""

from __future__ import annotations

from typing import Any, NoReturn

import torch
from torch import Tensor

from subgrad.apply.call import Call
from subgrad.apply.executors import Executor, Run
from subgrad.apply.plan import Plan
from subgrad.kinks.overloads import overload
from subgrad.torch_internals.tensors import ragged_dim


class Jagged(Executor):
    def accepts(self, plan: Plan, call: Call) -> Run | None:
        tensors = _tensors(call)
        if plan.is_native or all(tensor.layout is torch.strided and not tensor.is_nested for tensor in tensors):
            return None
        is_refused = call.in_place or call.op.is_joint
        return _refuse if is_refused else _on_values


def _on_values(call: Call) -> Tensor:
    """An operator that acts entry by entry, called with the values of jagged tensors instead."""
    tensors = _tensors(call)
    jagged = [tensor for tensor in tensors if tensor.layout is torch.jagged]
    if not jagged or not all(_fits(tensor, jagged[0]) for tensor in tensors):
        _refuse(call)
    nested: Any = jagged[0]
    dense = {
        name: value.values() if isinstance(value, Tensor) and value.is_nested else value
        for name, value in call.arguments.items()
    }
    values = overload(call.op.op)(*call.op.args(dense), **call.op.kwargs(dense))
    return torch.nested.nested_tensor_from_jagged(values, nested.offsets(), nested.lengths(), ragged_dim(nested))


def _fits(tensor: Tensor, jagged: Tensor) -> bool:
    if tensor.layout is torch.jagged:
        return tensor.shape == jagged.shape
    return tensor.layout is torch.strided and not tensor.ndim


def _refuse(call: Call) -> NoReturn:
    """Where torch's own element would be taken silently."""
    kinds = [f"nested {t.layout}" if t.is_nested else str(t.layout) for t in _tensors(call)]
    raise NotImplementedError(
        f"{call.op.op} under {call.convention!r} has no rule for tensors of these layouts: {', '.join(kinds)}. Make "
        f"them dense, or call it under subgrad.use('torch')."
    )


def _tensors(call: Call) -> list[Tensor]:
    return [value for value in call.arguments.values() if isinstance(value, Tensor)]
