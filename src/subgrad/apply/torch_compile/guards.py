"""Compiled graphs never serve another convention's gradient: a guard on each graph, a tag on each cache entry.

Dynamo does not know that the convention changed, and the on-disk cache of AOTAutograd is keyed by a graph that shows
``clamp`` whatever our kernel makes of it. Both run our kernels while they trace; there we tie the graph to the
convention.

These are internals of torch.compile. What subgrad does with them is in this file, in `use_in_graph.py`, and in where
`scopes.py` keeps the scopes of a trace; their names are in `torch_internals`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from subgrad.apply.scopes import active, around, is_chosen_inside
from subgrad.conventions import Convention
from subgrad.kinks import KINKS
from subgrad.torch_internals.autograd import forward_level
from subgrad.torch_internals.tracing import FrameAction, FrameExecStrategy, current_trace, set_code_exec_strategy
from subgrad.version import __version__

_MARK = " [subgrad: "
_some_graphs_are_unguarded = False


def remember_unguarded_graphs() -> None:
    """When our kernels are registered: what was compiled until now has no guard."""
    global _some_graphs_are_unguarded
    _some_graphs_are_unguarded = "torch._dynamo" in sys.modules


def forget_unguarded_graphs() -> None:
    """Before a convention is first put in force: what has no guard is compiled once more."""
    global _some_graphs_are_unguarded
    if _some_graphs_are_unguarded and current_trace() is None:
        _some_graphs_are_unguarded = False
        torch.compiler.reset()


def has_compiled() -> bool:
    """Whether Dynamo has compiled anything in this process."""
    if "torch._dynamo.convert_frame" not in sys.modules:
        return False
    from subgrad.torch_internals.dynamo import input_codes

    return bool(input_codes.seen)


def keep_from_being_compiled(kernel: Callable[..., Any]) -> None:
    """Where a graph breaks, Dynamo compiles whatever Python runs in between: not our kernels and what they call."""
    skip = FrameAction.SKIP
    set_code_exec_strategy(kernel.__code__, FrameExecStrategy(skip, skip))


def is_compiling() -> bool:
    return current_trace() is not None


def convention_of_call(args: Sequence[Any]) -> Convention:
    """Called by every kernel: the convention in force. Where Dynamo traces, the graph is tied to it."""
    trace: Any = current_trace()
    if trace is None:
        return around()
    if is_differentiated(args) and not is_chosen_inside() and not torch.compiler.is_exporting():
        if not hasattr(trace, "subgrad_guard"):
            trace.subgrad_guard = _guard(active())
            _tag_cache_entries(active())
        # Once more if Dynamo has taken it back, with a part that it traces again.
        trace.guards_context.dynamo_guards.add(trace.subgrad_guard)
    return active()


def is_differentiated(args: Sequence[Any]) -> bool:
    """Whether any argument is. If not, no convention matters: Inductor, say, runs graphs again to find their shapes."""
    if forward_level() >= 0:
        return True
    if torch.is_grad_enabled():
        for each in args:  # which takes half the time that `any` does
            if isinstance(each, Tensor) and each.requires_grad:
                return True
    return False


def _guard(convention: Convention) -> Any:
    """Recompile under any other convention, "none" included."""
    from subgrad.torch_internals.dynamo import GlobalStateSource

    def create(builder: Any, guard: Any) -> None:
        builder.guard_manager.root.add_lambda_guard(
            lambda _: active() == convention, [f"subgrad.active() == {convention!r}"], None
        )

    return GlobalStateSource().make_guard(create)


def _tag_cache_entries(convention: Convention) -> None:
    """Append the convention to the user's cache tag until nothing is being compiled any more, whatever is raised."""
    from subgrad.torch_internals.dynamo import callback_handler

    if _restore_tag not in callback_handler.end_callbacks:  # a reset of Dynamo takes it out
        callback_handler.register_end_callback(_restore_tag)
    _restore_tag()
    if convention.interferes:
        rows = f" {KINKS.added}" if KINKS.added else ""  # another process may have none of them, or others
        torch.compiler.config.cache_key_tag += f"{_MARK}{__version__} {convention!r}{rows}]"


def _restore_tag(_: Any = None) -> None:
    torch.compiler.config.cache_key_tag = torch.compiler.config.cache_key_tag.partition(_MARK)[0]
