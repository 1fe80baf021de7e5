"""What records a program to run it later: `torch.fx`, `make_fx`, `torch.jit.trace`. It holds operators, no conventions.

A spelled-out operator is recorded by `torch.fx` as one call, with its convention. Where a convention is put in force
inside a recorded function that cannot be kept, and one warning says so.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch.fx import Proxy

from subgrad.conventions import Convention
from subgrad.torch_internals.tracing import (
    current_trace,
    fx_proxy_mode,
    is_fx_symbolic_tracing,
    jit_tracing_state,
)
from subgrad.torch_internals.transforms import len_dispatch_stack


def recorded(function: Callable[..., Any], like: Convention, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """The call of a function as a node of a graph of `torch.fx`; None unless one of its arguments stands for a node."""
    proxy = next((each for each in (*args, *kwargs.values()) if isinstance(each, Proxy)), None)
    if proxy is None:
        return None
    create = proxy.tracer.create_proxy
    # A graph holds numbers and names: what is made of more is made again where it runs.
    given = (like.base, like.overrides, like.surrogate, like.strong_zero)
    convention = create("call_function", Convention, given, {}) if any(given[1:]) else like.base
    return create("call_function", function, tuple(args), {**kwargs, "convention": convention})


def warn_if_recorded(convention: Convention) -> None:
    """Called where a convention is put in force."""
    if convention.interferes and _is_recorded():
        warnings.warn(
            f"subgrad: {convention} is put in force inside a function that torch.fx, make_fx or torch.jit.trace "
            "records. What they record takes the convention in force where it runs: put `with subgrad.use(...)` around "
            "that, or spell operators out with `subgrad.functional`, which torch.fx keeps.",
            stacklevel=4,
        )


def _is_recorded() -> bool:
    if jit_tracing_state() is not None or is_fx_symbolic_tracing():
        return True
    # While a function is compiled, its graph is tied to the convention.
    return len_dispatch_stack() > 0 and fx_proxy_mode() is not None and current_trace() is None
