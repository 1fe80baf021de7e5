"""The overloads of the table, as torch knows them."""

from __future__ import annotations

from typing import Any

import torch


def overload(op: str) -> Any:
    """The callable overload: ``torch.ops.aten.clamp.Tensor`` for ``"clamp.Tensor"``."""
    name, _, form = op.partition(".")
    return getattr(getattr(torch.ops.aten, name), form or "default")


def argument_names(op: str) -> tuple[str, ...]:
    """The arguments of an overload, in the order of its schema."""
    return tuple(argument.name for argument in overload(op)._schema.arguments)
