"""`use` inside a compiled function: nodes of its graph, run whenever the graph is traced.

Dynamo traces a function into a graph, and AOTAutograd runs that graph again, more than once, to find its gradients.
There our kernels must meet the scopes that the function's own code enters, in the order of that code. What is compiled
in the end holds the chosen gradients and nothing of these nodes.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx.node import has_side_effect

from subgrad.apply.scopes import Scope, leave_all, leave_innermost
from subgrad.conventions import Convention
from subgrad.torch_internals.dynamo import InstructionTranslator
from subgrad.torch_internals.tracing import current_trace


@has_side_effect
@torch.compiler.allow_in_graph
def enter(convention: Convention) -> None:
    """From here on in the graph this convention is in force."""
    trace = _trace()
    Scope(convention).__enter__()
    if not hasattr(trace, "subgrad_graph"):
        trace.subgrad_graph = InstructionTranslator.current_tx().output.root_tracer.graph
        with trace.subgrad_graph.inserting_before(next(iter(trace.subgrad_graph.nodes))):
            trace.subgrad_graph.call_function(start)


@has_side_effect
@torch.compiler.allow_in_graph
def leave() -> None:
    """The convention entered last is left."""
    _trace()
    leave_innermost()


@has_side_effect
def start() -> None:
    """Each run begins with no scope: where code breaks the graph inside a `with`, the run before has left one."""
    if any(node.target is torch.ops.higher_order.invoke_subgraph for node in _trace().subgrad_graph.nodes):
        raise RuntimeError(
            "subgrad.use(...) inside a compiled function does not go with torch.compiler.nested_compile_region: a "
            "region is compiled once, for all conventions. Put `with subgrad.use(...):` around the call."
        )
    leave_all()


def _trace() -> Any:
    """What is being traced. Run as code, the nodes would leave a convention in force if anything in between raised."""
    trace = current_trace()
    if trace is None:
        raise RuntimeError(
            "subgrad.use(...) inside a compiled function needs a backend that compiles the gradient, such as "
            "'inductor' or 'aot_eager'; this one runs the graph as it is. Put `with subgrad.use(...):` around the call."
        )
    return trace
