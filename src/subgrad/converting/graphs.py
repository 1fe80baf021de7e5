"""Graphs of `torch.fx` in a model: their calls with kinks become spelled-out ones, and back."""

from __future__ import annotations

from typing import Any

from torch.fx import GraphModule, Node

from subgrad.apply.recorded_blocks import is_smooth_node, keep, spelled
from subgrad.conventions import Convention

_ANY = Convention("torch")
_BEFORE = "subgrad_before"  # what a node called, among what it remembers


def convert_graph(module: GraphModule, convention: Convention) -> None:
    restore_graph(module)
    for node in list(module.graph.nodes):
        before = (node.op, node.target, tuple(node.kwargs))  # no nodes: copies of the graph have others
        if keep(module.graph, node, convention):
            node.meta[_BEFORE] = before
    module.recompile()


def restore_graph(module: GraphModule) -> None:
    for node in list(module.graph.nodes):
        if _BEFORE in node.meta:
            made: Any = node.kwargs["convention"]
            node.op, node.target, names = node.meta.pop(_BEFORE)
            node.kwargs = {name: node.kwargs[name] for name in names}
            if isinstance(made, Node):
                module.graph.erase_node(made)
    module.recompile()


def is_converted(module: GraphModule) -> bool:
    return any(_BEFORE in node.meta for node in module.graph.nodes)


def calls(module: GraphModule) -> list[Node]:
    """What was given a convention."""
    functions = set(spelled().values())
    return [node for node in module.graph.nodes if node.target in functions]


def lost(module: GraphModule) -> list[Node]:
    """What may have kinks and takes the convention around it."""
    return [node for node in module.graph.nodes if node.op != "call_module" and not is_smooth_node(node, _ANY, module)]
