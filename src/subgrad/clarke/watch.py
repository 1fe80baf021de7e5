"""What leaves a program behind torch's back: `detach`, `no_grad`, numbers read by Python.

In the tangent pass a detached tensor keeps its tangent, which is that of the program's value. If the program's gradient
ignores it and that matters, as in straight-through tricks, the certificate fails.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from subgrad.apply.lost_arguments import LOST, whole
from subgrad.clarke.arithmetic import FORMULAS, with_a_constant
from subgrad.clarke.generic import convolved, linear
from subgrad.clarke.linear import tangent, with_tangent
from subgrad.clarke.passes import Decide, Look
from subgrad.clarke.refused import IsRead, Refused, here
from subgrad.clarke.written import WRITING, target

_data: Any = torch.Tensor.data
DETACHED = frozenset((Tensor.detach, torch.detach, _data.__get__))
READ = frozenset(
    (Tensor.item, Tensor.tolist, Tensor.numpy, Tensor.__array__, Tensor.__float__, Tensor.__int__, Tensor.__index__)
)
STRAIGHT_THROUGH = frozenset((torch.nn.functional.gumbel_softmax,))
# What asks floating-point numbers whether they are 0, or rounds them, is put in words that have rules.
ASK_FOR_ZERO = frozenset((Tensor.bool, Tensor.__bool__))
ROUND = frozenset((Tensor.long, Tensor.int, Tensor.short))
NOTEWORTHY = DETACHED | READ | STRAIGHT_THROUGH | ASK_FOR_ZERO | ROUND


# With a direction that is a product these cost little in the tangent pass.
CONVOLVE: dict[Any, Any] = {each: partial(convolved, each) for each in (torch.conv1d, torch.conv2d, torch.conv3d)}
MULTIPLY: dict[Any, Any] = {torch.nn.functional.linear: linear, **CONVOLVE}


class Watch(TorchFunctionMode):
    """Watch what the program calls in one pass."""

    def __init__(self, current: Any):
        super().__init__()
        self.current = current
        self.looks = isinstance(current, Look)
        self.decides = isinstance(current, Decide)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in LOST:
            args, kwargs = whole(func, args, kwargs)
        if self.decides and self.current.indices:
            self.current.note_use((*args, *(kwargs or {}).values()))
        if self.decides and func in MULTIPLY and (self.current.factors or func in CONVOLVE):
            return MULTIPLY[func](self.current.factors, *args, **(kwargs or {}))
        if self.decides and func in FORMULAS and not kwargs:
            found = with_a_constant(func, args)
            if found is not None:
                return found
        if func in NOTEWORTHY:
            self._note()
            return self._noteworthy(func, args, kwargs or {})
        if func is torch.autograd.grad and self.looks:
            self.current.differentiates = True
        if func in WRITING or (kwargs and "out" in kwargs):
            self.current.keep(target(func, args, kwargs or {}))
        if self.looks and not torch.is_grad_enabled() and _is_computed(func, args):
            self.current.leaks.note(f"{func.__name__} under no_grad")
        return func(*args, **(kwargs or {}))

    def _note(self) -> None:
        if self.decides:
            self.current.is_watched = True

    def _noteworthy(self, func: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        self_ = args[0] if args else kwargs.get("input")
        if func in STRAIGHT_THROUGH:
            if kwargs.get("hard", len(args) > 2 and args[2]) and self_.requires_grad:
                raise Refused(f"gumbel_softmax(hard=True) at {here()}: its gradient is that of another function.")
            return func(*args, **kwargs)
        if not isinstance(self_, Tensor) or not self_.is_floating_point():
            if self.decides and (func in READ or func is Tensor.__bool__):
                self.current.is_read = True
            return func(*args, **kwargs)
        if func in ASK_FOR_ZERO:
            return func(self_ != 0, *args[1:], **kwargs)
        if func in ROUND:
            return func(torch.trunc(self_), *args[1:], **kwargs)
        if self.looks and self_.requires_grad:
            if func in READ:
                _refuse_to_read(func)
            self.current.leaks.note(_name(func))
        found = tangent(self_) if self.decides else None
        if found is None:
            return func(*args, **kwargs)
        if func in READ:
            _refuse_to_read(func)
        self.current.leaks.note(_name(func))
        return with_tangent(func(*args, **kwargs), found.clone())


def _is_computed(func: Any, args: Any) -> bool:
    """Whether a call is more than a look at an attribute of what is differentiated."""
    is_attribute = getattr(func, "__name__", "__get__") == "__get__"
    return not is_attribute and any(isinstance(each, Tensor) and each.requires_grad for each in args)


def _name(func: Any) -> str:
    return "data" if func == _data.__get__ else func.__name__


def _refuse_to_read(func: Any) -> None:
    raise IsRead(
        f"{func.__name__}() at {here()} takes a number out of the program, and what Python makes of it cannot be "
        "followed. Compare tensors instead; return what is to be shown with has_aux=True."
    )
