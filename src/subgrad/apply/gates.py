"""One level of autograd in the middle of a kernel: values as they are, derivatives as we say.

Under `torch.func` every level calls the kernel of its own, so that a gate acts at one level only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch._functorch.utils import enable_single_level_autograd_function
from torch.autograd import forward_ad
from torch.autograd.function import _SingleLevelFunction

__all__ = ["Gate", "alias", "below_autograd", "laid_out", "outer_levels", "same", "through"]


class Gate(_SingleLevelFunction):
    """A function with derivatives of its own at one level of autograd."""

    # Compiled autograd asks for it, and only torch.autograd.Function has it.
    _compiled_autograd_key = staticmethod(torch.autograd.Function._compiled_autograd_key)


def through(gate: Any, *args: Any) -> Any:
    """Call a gate at this level of autograd; inside `torch.func` torch asks whether that is meant."""
    with enable_single_level_autograd_function():
        return gate.apply(*args)


@contextmanager
def outer_levels() -> Iterator[None]:
    """Inside a gate's forward: no derivative at this level, but at those around it, which torch switches off too."""
    with torch.enable_grad(), forward_ad._set_fwd_grad_enabled(True), torch._C._AutoDispatchBelowAutograd():
        yield


def same(tensor: Tensor) -> Tensor:
    """The operand of a gate as its output: a view, unless there are tangents, which would have to be views as well."""
    return tensor.view_as(tensor) if forward_ad._current_level < 0 else laid_out(tensor.clone(), tensor)


def alias(tensor: Tensor) -> Tensor:
    """The same memory, and to autograd no view of it, so that who gets it may write to it."""
    return below_autograd(torch.ops.aten.alias, tensor)


def laid_out(tensor: Tensor, like: Tensor) -> Tensor:
    """The same entries in the memory layout of another tensor, unless entries share memory there."""
    if tensor.stride() == like.stride() or 0 in like.stride():
        return tensor
    return tensor.new_empty_strided(like.shape, like.stride()).copy_(tensor)


def below_autograd(function: Callable[..., Any], *args: Any) -> Any:
    """Call without derivatives at this level; outer levels of `torch.func` keep theirs (`detach` would cut all)."""
    with torch._C._AutoDispatchBelowADInplaceOrView():
        return function(*args)
