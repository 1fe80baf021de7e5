"""What `torch.fx` records inside ``with use(...)``: calls that have kinks become spelled-out ones, with the convention.

A graph of `torch.fx` has no blocks. So where the block ends, the nodes recorded in it are gone through: functions and
methods of the table are replaced by those of `subgrad.functional`, and one warning names what cannot be.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch.fx import Graph, Node, Tracer

from subgrad.apply.traced import as_argument, warn_of_graph
from subgrad.conventions import Convention

# Functions of both `torch` and `torch.nn.functional` that take the same arguments in the same order.
ALSO_IN_TORCH = ("relu", "prelu", "celu", "selu", "threshold", "max_pool1d", "max_pool2d", "max_pool3d", "pdist")

# Without kinks, whatever the arguments: as functions, methods or operators.
_SMOOTH = (
    "add sub mul neg pos matmul mm bmm addmm baddbmm einsum linear bilinear conv1d conv2d conv3d conv_transpose1d "
    "conv_transpose2d conv_transpose3d batch_norm layer_norm group_norm instance_norm rms_norm dropout dropout1d "
    "dropout2d dropout3d softmax log_softmax gelu silu mish sigmoid tanh softplus logsigmoid exp expm1 sin cos "
    "avg_pool1d avg_pool2d avg_pool3d adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d embedding one_hot "
    "mse_loss cross_entropy nll_loss binary_cross_entropy_with_logits scaled_dot_product_attention mean sum cumsum "
    "cat concat stack chunk split unbind flatten unflatten reshape view view_as permute transpose t squeeze unsqueeze "
    "expand expand_as repeat contiguous clone detach to type_as float double half bfloat16 size dim numel shape "
    "getitem getattr zeros ones zeros_like ones_like full arange new_zeros new_ones new_full eq ne lt le gt "
    "ge where masked_fill tril triu pad roll flip unfold channel_shuffle pixel_shuffle square rand rand_like randn "
    "randn_like add_ mul_ sub_ iadd imul isub floordiv mod truediv div "
    "sqrt rsqrt log log1p pow erf interpolate logsumexp"
)
SMOOTH = frozenset(_SMOOTH.split())


class RecordedBlock:
    """The nodes that a tracer records from here until `close`."""

    def __init__(self, tracer: Tracer, convention: Convention):
        self.tracer, self.convention = tracer, convention
        self.before = set(tracer.graph.nodes)

    def close(self) -> None:
        graph = self.tracer.graph
        inside = [node for node in graph.nodes if node not in self.before]
        left = [node for node in inside if not keep(graph, node, self.convention)]
        lost = [node for node in left if not is_smooth_node(node, self.convention, self.tracer.root)]
        if lost:
            warn_of_graph(self.convention, named(lost))


def keep(graph: Graph, node: Node, convention: Convention) -> bool:
    """Give a node a convention, if what it calls can have one."""
    function = spelled().get((node.op, node.target))
    if function is None:
        return False
    with graph.inserting_before(node):
        argument = as_argument(convention, graph.create_node)
    is_with_indices = str(getattr(node.target, "__name__", "")).endswith("_with_indices")
    indices = {"return_indices": True} if is_with_indices else {}
    node.op, node.target = "call_function", function
    node.kwargs = {**node.kwargs, **indices, "convention": argument}
    return True


def is_smooth_node(node: Node, convention: Convention, root: torch.nn.Module) -> bool:
    """Whether a node surely meets no kink, or has a convention of its own."""
    if node.op in ("placeholder", "get_attr", "output") or node.target is Convention or "convention" in node.kwargs:
        return True
    if node.op == "call_module":
        return is_smooth(root.get_submodule(str(node.target)))
    return not convention.strong_zero and _name(node).partition(".")[0] in SMOOTH


def is_smooth(module: torch.nn.Module) -> bool:
    """Whether a module is one of torch's without kinks, or chooses its elements itself."""
    from subgrad.nn import KINKED, Carries, Clamp

    if isinstance(module, Carries | Clamp):
        return True
    return type(module).__module__.startswith("torch.nn.") and type(module).__name__ not in KINKED


@cache
def spelled() -> dict[tuple[str, Any], Callable[..., Any]]:
    """The spelled-out function for what nodes call, by the kind of the node."""
    from subgrad import functional

    found: dict[tuple[str, Any], Callable[..., Any]] = {("call_function", operator.abs): functional.abs}
    for name in functional.SPELLED:
        function = getattr(functional, name)
        for target in (function.original, *_others(name)):
            found["call_function", target] = function
        if hasattr(torch.Tensor, name):
            found["call_method", name] = function
    return found


def _others(name: str) -> Iterable[Callable[..., Any]]:
    if name in ALSO_IN_TORCH:
        yield getattr(torch, name)
    if hasattr(F, f"{name}_with_indices"):
        yield getattr(F, f"{name}_with_indices")


def _name(node: Node) -> str:
    return node.target if isinstance(node.target, str) else str(getattr(node.target, "__name__", node.target))


def named(nodes: Iterable[Node]) -> str:
    names = list(dict.fromkeys(str(node.target) if node.op == "call_module" else _name(node) for node in nodes))
    return ", ".join(names[:5]) + (", ..." if names[5:] else "")
