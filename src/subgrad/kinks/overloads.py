"""The overloads of the table, as torch knows them.

They are named without their namespace where that is torch's own: ``"clamp.Tensor"``, but ``"mylib::softclip"``. The
first tensor of an operator that is not torch's is ``self``, whatever the operator calls it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import torch

from subgrad.torch_internals.dispatcher import has_kernel_for_key, schema_of


def is_torchs(op: str) -> bool:
    """Whether an overload is torch's own."""
    return "::" not in op


def namespace(op: str) -> str:
    return "aten" if is_torchs(op) else op.partition("::")[0]


def qualified(op: str) -> str:
    """The overload with its namespace, as the dispatcher names it."""
    return f"aten::{op}" if is_torchs(op) else op


@cache
def overload(op: str) -> Any:
    """The callable overload: ``torch.ops.aten.clamp.Tensor`` for ``"clamp.Tensor"``."""
    name, _, form = qualified(op).partition("::")[2].partition(".")
    return getattr(getattr(getattr(torch.ops, namespace(op)), name), form or "default")


@cache
def argument_names(op: str) -> tuple[str, ...]:
    """The arguments of an overload, in the order of its schema."""
    arguments = schema_of(overload(op)).arguments
    names = [argument.name for argument in arguments]
    if not is_torchs(op) and "self" not in names:
        first = next((place for place, argument in enumerate(arguments) if str(argument.type) == "Tensor"), None)
        if first is not None:
            names[first] = "self"
    return tuple(names)


def tensor_names(op: str) -> tuple[str, ...]:
    """The arguments of an overload that are tensors."""
    arguments = zip(argument_names(op), schema_of(overload(op)).arguments, strict=True)
    return tuple(name for name, argument in arguments if "Tensor" in str(argument.type))


def has_autograd(op: str, key: str | None = None) -> bool:
    """Whether an operator is differentiable at some dispatch key of autograd, or at any."""
    keys = ("AutogradCPU", "AutogradCUDA", "AutogradXPU", "AutogradMPS") if key is None else (key,)
    return any(has_kernel_for_key(qualified(op), each) for each in ("Autograd", "CompositeImplicitAutograd", *keys))


def with_defaults(op: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """All arguments of a call, by name and in the order of the schema."""
    arguments = zip(argument_names(op), schema_of(overload(op)).arguments, strict=True)
    return {name: given.get(name, argument.default_value) for name, argument in arguments}


def call_by_name(op: str, arguments: Mapping[str, Any]) -> Any:
    """Call an overload with arguments that are named as in the table."""
    own = dict(zip(argument_names(op), (each.name for each in schema_of(overload(op)).arguments), strict=True))
    return overload(op)(**{own[name]: value for name, value in arguments.items()})
