"""Private names of torch: graphs and their nodes, backward, forward mode."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch.autograd.function import BackwardCFunction

from subgrad.torch_internals.lookup import attribute, method, private, require, variable

# fmt: off
# ruff: noqa: E501
below_autograd = private("torch._C:_AutoDispatchBelowAutograd", "runs an operator without recording a graph of it; views are still views")
below_autograd_and_views = private("torch._C:_AutoDispatchBelowADInplaceOrView", "runs an operator on values alone: no graph, no views, no versions")

# graphs
current_graph_task_id = private("torch._C:_current_graph_task_id", "the number of the backward that is running in this thread, -1 outside of one")
current_node = private("torch._C:_current_autograd_node", "the node whose derivative, or hooks, backward is calling in this thread, or None")
next_sequence_nr = private("torch._C._autograd:_get_sequence_nr", "how many nodes autograd has made in this thread")
sequence_nr = method("torch._C:_FunctionBase._sequence_nr", "the number of a node among those of its thread")
_input_metadata = attribute("torch._C:_FunctionBase._input_metadata", "the shapes of an operator's results, by the node that takes their cotangents")
_forward_class = attribute("torch.utils.checkpoint:CheckpointFunction._backward_cls._forward_cls", "the torch.autograd.Function that a node belongs to")
_raw_saved_tensors = attribute("torch._C:_FunctionBase._raw_saved_tensors", "saved tensors of a node, as hooks have packed them")
top_saved_tensors_hooks = private("torch._C._autograd:_top_saved_tensors_default_hooks", "the hooks for saved tensors that are in force")
graph_exec_group = private("torch._C:_get_graph_exec_group", "the group of backward calls that shares what checkpoints recompute, if one is open")
engine_run_backward = variable("torch.autograd:_engine_run_backward", "what `backward` and `torch.autograd.grad` call in the end")
single_level_function = private("torch.autograd.function:_SingleLevelFunction", "the base of functions that torch.func transforms do not differentiate by themselves")
compiled_autograd_key = private("torch.autograd:Function._compiled_autograd_key", "tells compiled autograd that a function is the same as before")

# checkpoints
CheckpointFrame = private("torch.utils.checkpoint:_CheckpointFrame", "what a checkpoint keeps to run its function again")
CheckpointBackward = private("torch.utils.checkpoint:CheckpointFunction._backward_cls", "the node of a reentrant checkpoint")

# forward mode
forward_level = variable("torch.autograd.forward_ad:_current_level", "the level of forward mode, -1 outside of it; one for the whole process")
make_dual = private("torch._VF:_make_dual", "a tensor with a tangent; what is public reads the environment and imports at every call")
unpack_dual = private("torch._VF:_unpack_dual", "the value and the tangent of a tensor, as fast")
load_forward_formulas = private("torch.autograd.forward_ad:_maybe_load_decompositions", "loads the formulas of forward mode that torch has in Python")
set_forward_grad_enabled = private("torch.autograd.forward_ad:_set_fwd_grad_enabled", "turns forward mode on, inside code that has turned it off")
# fmt: on


def set_engine_run_backward(function: Callable[..., Any]) -> None:
    """Put something in the place of what `engine_run_backward` reads, whoever imported `backward` under which name."""
    require(engine_run_backward)
    torch.autograd._engine_run_backward = function  # pyright: ignore[reportPrivateImportUsage]


def known_to_compiled_autograd(function: Any) -> Any:
    """Compiled autograd asks functions for a key, which only `torch.autograd.Function` has."""
    function._compiled_autograd_key = staticmethod(compiled_autograd_key)
    return function


def forward_class_of(node: Any) -> Any:
    """The `torch.autograd.Function` that a node of a graph belongs to; None for nodes of operators."""
    return _forward_class(node) if isinstance(node, BackwardCFunction) else None


@cache
def names_of_saved(kind: type) -> tuple[str, ...]:
    """The attributes of a kind of nodes that hold saved tensors, still packed."""
    require(_raw_saved_tensors)  # other kinds of nodes have names that begin in the same way
    return tuple(name for name in dir(kind) if name.startswith("_raw_saved_"))


def dims_of_results(node: Any) -> tuple[int, ...]:
    """How many dimensions the results of the operator of a node have."""
    return tuple(len(each.shape) for each in _input_metadata(node))


def saved_values(node: Any) -> dict[str, Any]:
    """What a node of torch's own has saved, by the names of its operator; not what a hook would have to unpack."""
    found: dict[str, Any] = {}
    for short, name, packed in _names_of_saved_values(type(node)):
        raw = getattr(node, packed, None)
        if getattr(raw, "unpack_hook", None) is None:
            try:
                found[short] = getattr(node, name)
            except RuntimeError:  # freed, or written into since, as backward itself will say
                continue
    return found


def saved_reader(name: str) -> Callable[[Any], Any]:
    """A function that reads what nodes have saved under a name of their operator; None where a hook has packed it."""
    raw, unpacked = f"_raw_saved_{name}", f"_saved_{name}"

    def read(node: Any) -> Any:
        return getattr(node, unpacked) if getattr(node, raw).unpack_hook is None else None

    return read


def saved_number(node: Any, name: str) -> Any:
    """A number that a node has kept of what its operator was called with."""
    return getattr(node, f"_saved_{name}")


@cache
def _names_of_saved_values(kind: type) -> tuple[tuple[str, str, str], ...]:
    """As its operator calls them, and of the attributes with them unpacked and packed."""
    require(_raw_saved_tensors)
    names = [name for name in dir(kind) if name.startswith("_saved_") and not name.endswith("_saved_tensors")]
    return tuple((name.removeprefix("_saved_"), name, f"_raw{name}") for name in names)


def has_saved_result(node: Any) -> bool:
    """Whether a node has kept the result of its operator, and not the input."""
    return hasattr(node, "_saved_result")


def dims_left_out(node: Any) -> int | list[int] | None:
    """The dimensions over which the operator of a node has reduced, if its result lacks them; None for all others."""
    found = getattr(node, "_saved_dim", None) if getattr(node, "_saved_keepdim", True) is False else None
    if found is None:
        return None
    return _signed(found) if isinstance(found, int) else [_signed(each) for each in found]


def _signed(dim: int) -> int:
    """Counted from the end, a dimension is negative: nodes show it as an unsigned number of 64 bits."""
    return dim - 2**64 if dim >= 2**63 else dim


def saved_operand(node: Any, name: str) -> Any:
    """What a node has saved of an operand; None if its derivative does not need it."""
    return getattr(node, f"_saved_{name}", None)
