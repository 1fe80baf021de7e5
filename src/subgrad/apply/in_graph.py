"""`use` inside a compiled function: nodes of its graph, run whenever the graph is traced.

Dynamo traces a function into a graph, and AOTAutograd runs that graph again, more than once, to find its gradients.
There our kernels must meet the scopes that the function's own code enters, in the order of that code. What is compiled
in the end holds the chosen gradients and nothing of these nodes.
"""

from __future__ import annotations

from typing import Any

import torch
from torch._dynamo.symbolic_convert import InstructionTranslator
from torch._guards import TracingContext

from subgrad.apply import dispatch
from subgrad.apply.active import Scope, leave_all, leave_innermost
from subgrad.conventions import Convention


@torch.fx.node.has_side_effect
@torch.compiler.allow_in_graph
def enter(convention: Convention) -> None:
    """From here on in the graph this convention is in force."""
    trace = _trace()
    dispatch.install()
    if not hasattr(trace, "subgrad_start"):
        trace.subgrad_start = _insert_start(InstructionTranslator.current_tx().output.root_tracer.graph)
    Scope(convention).__enter__()


@torch.fx.node.has_side_effect
@torch.compiler.allow_in_graph
def leave() -> None:
    """The convention entered last is left."""
    _trace()
    leave_innermost()


@torch.fx.node.has_side_effect
def start() -> None:
    """Each run begins with no scope: where code breaks the graph inside a `with`, the run before has left one."""
    _trace()
    leave_all()


def _insert_start(graph: torch.fx.Graph) -> torch.fx.Node:
    with graph.inserting_before(next(iter(graph.nodes))):
        return graph.call_function(start)


def _trace() -> Any:
    """What is being traced. Run as code, the nodes would leave a convention in force if anything in between raised."""
    trace = TracingContext.try_get()
    if trace is None:
        raise RuntimeError(
            "subgrad.use(...) inside a compiled function needs a backend that compiles the gradient, such as "
            "'inductor' or 'aot_eager'; this one runs the graph as it is. Put `with subgrad.use(...):` around the call."
        )
    return trace
