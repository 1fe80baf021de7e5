"""The overloads of the table, as torch knows them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import torch

from subgrad.torch_internals.dispatcher import schema_of


@cache
def overload(op: str) -> Any:
    """The callable overload: ``torch.ops.aten.clamp.Tensor`` for ``"clamp.Tensor"``."""
    name, _, form = op.partition(".")
    return getattr(getattr(torch.ops.aten, name), form or "default")


def argument_names(op: str) -> tuple[str, ...]:
    """The arguments of an overload, in the order of its schema."""
    return tuple(argument.name for argument in schema_of(overload(op)).arguments)


def tensor_names(op: str) -> tuple[str, ...]:
    """The arguments of an overload that are tensors."""
    return tuple(argument.name for argument in schema_of(overload(op)).arguments if "Tensor" in str(argument.type))


def with_defaults(op: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """All arguments of a call, by name and in the order of the schema."""
    arguments = schema_of(overload(op)).arguments
    return {each.name: given.get(each.name, each.default_value) for each in arguments}
