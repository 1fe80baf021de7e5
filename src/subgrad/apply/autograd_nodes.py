"""One level of autograd in the middle of a kernel: values as they are, derivatives as we say.

Under `torch.func` every level calls the kernel of its own, so that a gate acts at one level only.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from subgrad.torch_internals.autograd import below_autograd as without_graph
from subgrad.torch_internals.autograd import below_autograd_and_views as values
from subgrad.torch_internals.autograd import (
    forward_level,
    known_to_compiled_autograd,
    set_forward_grad_enabled,
    single_level_function,
)
from subgrad.torch_internals.dispatcher import dispatch_keys
from subgrad.torch_internals.tensors import is_zero_tensor
from subgrad.torch_internals.transforms import (
    enable_single_level_function,
    is_functorch_wrapped_tensor,
    is_legacy_batched_tensor,
    len_dispatch_stack,
    peek_interpreter_stack,
)


@known_to_compiled_autograd
class Gate(single_level_function):
    """A function with derivatives of its own at one level of autograd."""

    apply: Any

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "jvp" in cls.__dict__:
            cls.jvp = staticmethod(_in_forward_mode(cls.jvp))


def _in_forward_mode(jvp: Callable[..., Any]) -> Callable[..., Any]:
    """Torch switches forward mode off for what makes a tangent: at the levels of `torch.func` around this one, too."""

    @functools.wraps(jvp)
    def differentiated(*args: Any) -> Any:
        if peek_interpreter_stack() is None:
            return jvp(*args)
        with outer_levels():
            return jvp(*args)

    return differentiated


def through(gate: Any, *args: Any) -> Any:
    """Call a gate at this level of autograd; inside `torch.func` torch asks whether that is meant."""
    with enable_single_level_function():
        return gate.apply(*args)


@contextmanager
def outer_levels() -> Iterator[None]:
    """Inside a gate's forward: no derivative at this level, but at those around it, which torch switches off too."""
    with torch.enable_grad(), set_forward_grad_enabled(True), without_graph():
        yield


def same(tensor: Tensor) -> Tensor:
    """The operand of a gate as its output: a view, unless there are tangents, which would have to be views as well."""
    return tensor.view_as(tensor) if forward_level() < 0 else laid_out(tensor.clone(), tensor)


def alias(tensor: Tensor) -> Tensor:
    """The same memory, and to autograd no view of it, so that who gets it may write to it."""
    return below_autograd(torch.ops.aten.alias, tensor)


def laid_out(tensor: Tensor, like: Tensor) -> Tensor:
    """The same entries in the memory layout of another tensor, unless entries share memory there."""
    if tensor.stride() == like.stride() or 0 in like.stride():
        return tensor
    return tensor.new_empty_strided(like.shape, like.stride()).copy_(tensor)


def overwritten(tensor: Tensor, result: Tensor) -> Tensor:
    """A tensor with a result written into it, values and history.

    `copy_` sends 0.0 back to what it overwrites; negated it is -0.0, which added to the gradient leaves every bit.
    """
    return tensor.neg_().copy_(result)


def is_memory(tensor: Tensor) -> bool:
    """Whether a tensor is strided memory and nothing else: not traced or batched, no subclass, and what it shows."""
    if type(tensor) not in PLAIN or len_dispatch_stack():
        return False
    keys = dispatch_keys(tensor).raw_repr()
    found = _are_plain.get(keys)
    if found is None:
        found = _are_plain[keys] = (
            tensor.layout is torch.strided
            and not is_functorch_wrapped_tensor(tensor)
            and not is_legacy_batched_tensor(tensor)
            and not tensor.is_meta
            and not tensor.is_neg()
            and not is_zero_tensor(tensor)
        )
    return found


PLAIN = (Tensor, torch.nn.Parameter)
_are_plain: dict[int, bool] = {}  # by dispatch keys, which say all of that; asking one by one takes microseconds


def is_readable(tensor: Tensor) -> bool:
    """Whether a tensor's entries can be looked at: not while a CUDA graph is captured."""
    return is_memory(tensor) and not (tensor.is_cuda and torch.cuda.is_current_stream_capturing())


def are_known_absent(places: Tensor) -> bool:
    """Whether it can be seen that a place is not met at all."""
    return is_readable(places) and not bool(places.any())


def below_autograd(function: Callable[..., Any], *args: Any) -> Any:
    """Call without derivatives at this level; outer levels of `torch.func` keep theirs (`detach` would cut all)."""
    with values():
        return function(*args)


def valued(derivative: Tensor, value: Tensor) -> Tensor:
    """The derivative of one tensor with the value of another."""
    # Cut off before it enters: compiled autograd cannot take None for the gradient of what has one.
    return through(_Valued, derivative, alias(value))


class _Valued(Gate):
    @staticmethod
    def forward(ctx: Any, derivative: Tensor, value: Tensor) -> Tensor:
        with outer_levels():
            return alias(value)

    @staticmethod
    def backward(ctx: Any, cotangent: Tensor) -> tuple[Tensor, None]:
        return cotangent, None

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, _: Any) -> Tensor:
        return tangent.clone()
