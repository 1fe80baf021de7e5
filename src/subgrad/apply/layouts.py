"""Tensors that are no plain strided memory: jagged ones through their values, the others refused by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

import torch
from torch import Tensor

from subgrad.apply.operators import Operator
from subgrad.conventions import Convention
from subgrad.kinks.overloads import overload


def is_plain(arguments: Mapping[str, Any]) -> bool:
    return all(tensor.layout is torch.strided and not tensor.is_nested for tensor in _tensors(arguments))


def require_plain(op: Operator, convention: Convention, arguments: Mapping[str, Any]) -> None:
    if not is_plain(arguments):
        _refuse(op, convention, arguments)


def on_values(op: Operator, convention: Convention, arguments: Mapping[str, Any]) -> Tensor:
    """An operator that acts entry by entry, called with the values of jagged tensors instead."""
    jagged = [tensor for tensor in _tensors(arguments) if tensor.layout is torch.jagged]
    if not jagged or not all(_fits(tensor, jagged[0]) for tensor in _tensors(arguments)):
        _refuse(op, convention, arguments)
    nested: Any = jagged[0]
    dense = {
        name: value.values() if isinstance(value, Tensor) and value.is_nested else value
        for name, value in arguments.items()
    }
    return torch.nested.nested_tensor_from_jagged(
        overload(op.op)(*op.args(dense), **op.kwargs(dense)), nested.offsets(), nested.lengths(), nested._ragged_idx
    )


def _fits(tensor: Tensor, jagged: Tensor) -> bool:
    return (
        tensor.shape == jagged.shape
        if tensor.layout is torch.jagged
        else tensor.layout is torch.strided and not tensor.ndim
    )


def _refuse(op: Operator, convention: Convention, arguments: Mapping[str, Any]) -> NoReturn:
    """Where torch's own element would be taken silently."""
    kinds = [f"nested {t.layout}" if t.is_nested else str(t.layout) for t in _tensors(arguments)]
    raise NotImplementedError(
        f"{op.op} under {convention!r} has no rule for tensors of these layouts: {', '.join(kinds)}. Make them "
        f"dense, or call it under subgrad.use('torch')."
    )


def _tensors(arguments: Mapping[str, Any]) -> list[Tensor]:
    return [value for value in arguments.values() if isinstance(value, Tensor)]
