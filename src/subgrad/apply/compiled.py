"""Compiled graphs never serve another convention's gradient: a guard on each graph, a tag on each cache entry.

Dynamo does not know that the convention changed, and the on-disk cache of AOTAutograd is keyed by a graph that shows
``clamp`` whatever our kernel makes of it. Both run our kernels while they trace; there we tie the graph to the
convention.

These are internals of torch.compile; all that subgrad knows of them is in this file.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch
from torch._C._dynamo import eval_frame
from torch._guards import Guard, TracingContext

from subgrad.apply.active import active, is_fixed
from subgrad.conventions import Convention
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
    if _some_graphs_are_unguarded and TracingContext.try_get() is None:
        _some_graphs_are_unguarded = False
        torch.compiler.reset()


def keep_from_being_compiled(kernel: Callable[..., Any]) -> None:
    """Where a graph breaks, Dynamo compiles whatever Python runs in between: not our kernels and what they call."""
    skip = eval_frame._FrameAction.SKIP
    eval_frame.set_code_exec_strategy(kernel.__code__, eval_frame._FrameExecStrategy(skip, skip))


def note_kink() -> None:
    """Called by every kernel: if it runs because Dynamo traces, tie the graph to the convention in force."""
    context = TracingContext.try_get()
    if context is not None and not is_fixed() and not hasattr(context, "subgrad_convention"):
        context.subgrad_convention = active()  # type: ignore[attr-defined]
        _tag_cache_entries(active())
        context.guards_context.dynamo_guards.add(_guard(active()))


def _guard(convention: Convention) -> Guard:
    """Recompile under any other convention, "none" included."""
    from torch._dynamo.source import GlobalStateSource

    def create(builder: Any, guard: Guard) -> None:
        builder.guard_manager.root.add_lambda_guard(
            lambda _: active() == convention, [f"subgrad.active() == {convention!r}"], None
        )
        # Guards are built when the graph has been compiled: the user's own tag is back from here on.
        _tag_cache_entries(Convention("torch"))

    return GlobalStateSource().make_guard(create)


def _tag_cache_entries(convention: Convention) -> None:
    """Append the convention to the user's cache tag, or take it off again."""
    user_tag = torch.compiler.config.cache_key_tag.partition(_MARK)[0]
    torch.compiler.config.cache_key_tag = (
        f"{user_tag}{_MARK}{__version__} {convention!r}]" if convention.interferes else user_tag
    )
