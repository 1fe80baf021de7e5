"""Private names of torch: what compiling leaves behind in a process that may not compile. Cheap to import."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import Any

from subgrad.torch_internals.lookup import private

# fmt: off
# ruff: noqa: E501
_of_thread = private("torch._guards:_TLS", "what is being compiled in this thread")
set_code_exec_strategy = private("torch._C._dynamo.eval_frame:set_code_exec_strategy", "says whether Dynamo looks at a function")
FrameExecStrategy = private("torch._C._dynamo.eval_frame:_FrameExecStrategy", "what Dynamo does with a function, and with what it calls")
FrameAction = private("torch._C._dynamo.eval_frame:_FrameAction", "leave it as it is, or compile it")
jit_tracing_state = private("torch._C:_get_tracing_state", "what torch.jit.trace is recording, or None")
is_fx_symbolic_tracing = private("torch.fx._symbolic_trace:is_fx_symbolic_tracing", "whether torch.fx is recording a function")
fx_proxy_mode = private("torch.fx.experimental.proxy_tensor:get_proxy_mode", "what make_fx is recording, or None")
FakeTensor = private("torch._subclasses.fake_tensor:FakeTensor", "what Dynamo calls operators with")
FunctionalTensor = private("torch._subclasses.functional_tensor:FunctionalTensor", "what AOTAutograd calls operators with")
# fmt: on

# What is being compiled in this thread, or None. No frame of Python, since every call of an operator asks.
current_trace: Callable[[], Any] = partial(getattr, _of_thread, "tracing_context", None)


def break_graphs_at(function: Callable[..., Any]) -> Callable[..., Any]:
    """Where a function is compiled that calls this one, its graph breaks. The public way imports the compiler."""
    function._torchdynamo_disable = True  # type: ignore[attr-defined]
    return function


def run_while_traced(function: Callable[..., Any]) -> Callable[..., Any]:
    """Where a function is compiled that calls this one, it is called then. The public way imports the compiler."""
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function


def is_plain_in_graph(tensor: Any) -> bool:
    """Whether a tensor that is traced is one like any other: no subclass of somebody's, and not under `torch.func`."""
    return type(tensor) in (FakeTensor, FunctionalTensor)


def is_in_compiled_autograd() -> bool:
    """Whether compiled autograd runs a backward, for which every gradient has to be a tensor."""
    module: Any = sys.modules.get("torch._dynamo.compiled_autograd")  # importing it imports the compiler
    return module is not None and module.in_compiled_autograd_region
