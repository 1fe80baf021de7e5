"""What records a program to run it later: `torch.fx`, `make_fx`, `torch.jit`, `torch.export`. It holds operators alone.

A spelled-out operator is recorded by `torch.fx` as one call, with its convention, and so is what a ``with`` puts under
one. Where a convention is put in force inside a function that something else records, that cannot be kept: one warning
a recording says so, unless what is recorded is only run, as by ONNX.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import FrameType
from typing import Any

import torch
from torch.fx import Proxy, Tracer

from subgrad.apply.source_line import user_frame
from subgrad.conventions import Convention
from subgrad.torch_internals.tracing import (
    current_trace,
    fx_proxy_mode,
    is_fx_symbolic_tracing,
    jit_tracing_state,
    run_while_traced,
)
from subgrad.torch_internals.transforms import len_dispatch_stack

_TAKES = "takes the convention in force where it runs: put `with subgrad.use(...)` around that"
_TOLD = "subgrad has warned"


def recorded(function: Callable[..., Any], like: Convention, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """The call of a function as a node of a graph of `torch.fx`; None unless one of its arguments stands for a node."""
    for each in (*args, *kwargs.values()):
        if isinstance(each, Proxy):
            create = each.tracer.create_proxy
            return create("call_function", function, tuple(args), {**kwargs, "convention": as_argument(like, create)})
    return None


def as_argument(like: Convention, create: Callable[..., Any]) -> Any:
    """A graph holds numbers and names: what is made of more is made again where it runs."""
    given = (like.base, like.overrides, like.surrogate, like.strong_zero)
    return create("call_function", Convention, given, {}) if any(given[1:]) else like.base


@run_while_traced  # Dynamo of torch 2.11 takes it that whatever it reads is exported
def is_recorded_to_run() -> bool:
    """Whether `torch.export` records: it holds operators alone, whatever is in force."""
    return torch.compiler.is_exporting()


def warn_if_recorded(convention: Convention) -> None:
    """Called where a convention is put in force."""
    if not convention.interferes:
        return
    if jit_tracing_state() is not None:
        _warn_once("torch.jit", f"{convention} {_PUT} torch.jit.trace records. A trace {_TAKES}.")
    elif is_recorded_to_run():
        warn_of_export(convention)
    elif _is_made_fx() and current_trace() is None:  # while compiled, a graph is tied to the convention
        _warn_once("torch.fx", f"{convention} {_PUT} make_fx records. A graph {_TAKES}.")


_PUT = "is put in force inside a function that"


def warn_of_export(like: str | Convention) -> None:
    """Called where `torch.export` records what has a convention, also while Dynamo reads the program."""
    if isinstance(like, str):
        _warn_of_export(like, like != "torch")
    else:
        name = "A convention" if like.overrides or like.strong_zero else like.base
        _warn_of_export(name, name != "torch")


@run_while_traced
def _warn_of_export(name: str, interferes: bool) -> None:
    if interferes:
        _warn_once("torch.export", f"{name} {_PUT} torch.export exports. An exported program {_TAKES}.")


def warn_of_graph(convention: Convention, lost: str) -> None:
    """Some of what `torch.fx` has recorded under a convention cannot be given it."""
    _warn_once("torch.fx", f"{convention} {_PUT} torch.fx records, and cannot be kept for {lost}. That {_TAKES}.")


def warn_of_script(what: object) -> None:
    """`torch.jit.script` compiles a module, or a function, that has a convention."""
    _warn_once("torch.jit", f"torch.jit.script compiles {what} to operators of torch. What is scripted {_TAKES}.")


def tracer_at_work() -> Tracer | None:
    """The tracer of `torch.fx` that is recording, if one is; `make_fx` has one, too, but records operators alone."""
    if not is_fx_symbolic_tracing() or _is_made_fx():
        return None
    tracers = (frame.f_locals.get("self") for frame in _frames())
    return next((each for each in tracers if isinstance(each, Tracer)), None)


def _is_made_fx() -> bool:
    return len_dispatch_stack() > 0 and fx_proxy_mode() is not None


def _warn_once(recorder: str, text: str) -> None:
    """Once a recording, at the line of the program's that is recorded. What ONNX takes is never trained."""
    module: Any = sys.modules.get("torch.onnx")
    if (module is not None and module.is_in_onnx_export()) or _is_told(recorder):
        return
    frame = user_frame() or sys._getframe(1)
    registry = frame.f_globals.setdefault("__warningregistry__", {})
    place = (frame.f_code.co_filename, frame.f_lineno)
    warnings.warn_explicit(f"subgrad: {text}", UserWarning, *place, registry=registry)


def _is_told(recorder: str) -> bool:
    """Whether this was called before while the outermost function of a recorder runs: a mark among its variables."""
    frames = [frame for frame in _frames() if str(frame.f_globals.get("__name__", "")).startswith(recorder)]
    if not frames:
        return False
    variables = frames[-1].f_locals
    is_told = _TOLD in variables
    variables[_TOLD] = True
    return is_told


def _frames() -> Iterator[FrameType]:
    frame = sys._getframe(1)
    while frame is not None:
        yield frame
        frame = frame.f_back
