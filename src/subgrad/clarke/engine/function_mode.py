"""What a program calls in one pass, function by function, where operators alone do not tell.

Every function of torch is one of these. Some are called in another way (`HANDLERS`). Some tell only shapes, types and
what rules have decided (`is_harmless`). Of all others the result is differentiated if an argument is; what is not has
been cut off, which is noted with its line, so that the certificate tells whether it matters.
"""

from __future__ import annotations

from functools import partial
from types import FunctionType
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from subgrad.apply.lost_arguments import LOST, whole
from subgrad.clarke.engine.directions import convolved, linear
from subgrad.clarke.engine.double_precision import NARROW
from subgrad.clarke.engine.passes import Decide, Look
from subgrad.clarke.engine.side_effects import WRITING, is_shared, target
from subgrad.clarke.functions.arithmetic import FORMULAS, with_a_constant
from subgrad.clarke.functions.branch_cuts import BRANCH_CUTS
from subgrad.clarke.functions.casts import CASTS
from subgrad.clarke.functions.cut_derivatives import (
    CUTS,
    FILLS,
    Handler,
    filled,
    is_differentiated,
    name_of,
    note_another_way,
    note_reading,
    reaches,
)
from subgrad.clarke.functions.degenerate import DEGENERATE
from subgrad.clarke.functions.foreach import each_by_itself
from subgrad.clarke.functions.not_differentiated import ONE_BY_ONE, is_harmless
from subgrad.clarke.functions.rewritten import SPELLED
from subgrad.clarke.functions.searchsorted import SEARCHES
from subgrad.clarke.rules.normalisation import normalised
from subgrad.torch_internals.transforms import peek_interpreter_stack

HANDLERS: dict[str, Handler] = {**DEGENERATE, **CUTS, **CASTS, **SPELLED, **SEARCHES, **BRANCH_CUTS}

# With a direction that is a product these cost little in the tangent pass.
CONVOLVE: dict[Any, Any] = {each: partial(convolved, each) for each in (torch.conv1d, torch.conv2d, torch.conv3d)}
MULTIPLY: dict[Any, Any] = {torch.nn.functional.linear: linear, **CONVOLVE}

BY_FORMULA = frozenset([*MULTIPLY, *FORMULAS, torch.nn.functional.batch_norm])

# What is known of a function after its first call, so that later ones cost little.
_handlers: dict[Any, Handler | None] = {}
_harmless: set[Any] = set()
_asking: set[Any] = set()  # of these, what asks whether numbers are finite: beside the point they may be
_differentiable: set[Any] = set()  # as seen by plain runs
_UNKNOWN: Any = object()


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
        if self.decides:
            if torch.is_inference_mode_enabled():
                with torch.inference_mode(False), torch.no_grad():  # inside of it there are no tangents
                    return self.__torch_function__(func, types, args, kwargs)
            if self.current.indices:
                self.current.note_use(args)
                if kwargs:
                    self.current.note_use(kwargs.values())
            if func in BY_FORMULA:
                found = self._by_formula(func, args, kwargs)
                if found is not None:
                    return found
        elif self.looks:
            if func is torch.autograd.grad:
                self.current.differentiates = True
            elif not self.current.leaks and peek_interpreter_stack() is not None:
                # Derivatives bend where operators do not, and have no rules.
                self.current.leaks.note(f"{name_of(func)} inside a torch.func transform")
        if func in WRITING or (kwargs and ("out" in kwargs or kwargs.get("inplace"))):
            written = target(func, args, kwargs or {})
            self.current.keep(written)
            if self.looks and _is_seen_by_others(written) and reaches(args, kwargs):
                self.current.leaks.note(name_of(func))
            if self.decides and isinstance(kwargs and kwargs.get("out"), Tensor) and reaches(args, kwargs):
                return self._written_after(func, types, args, kwargs)
        handler = _handlers.get(func, _UNKNOWN)
        if handler is _UNKNOWN:
            handler = _learned(func)
        if handler is not None:
            out = handler(self.current, func, args, kwargs or {})
            made = out if out is not None or func not in WRITING else args[0]  # assignments return nothing
            is_new = _is_real(made) and (handler is each_by_itself or func in WRITING or not args or out is not args[0])
            if self.looks and not torch.is_grad_enabled() and is_new and reaches(args, kwargs):
                self.current.leaks.note(f"{name_of(func)} under no_grad")
            return out
        if self.decides:
            return self._decide(func, args, kwargs or {})
        out = func(*args, **kwargs) if kwargs else func(*args)
        if not self.looks:
            return out
        if not torch.is_grad_enabled():
            if func not in _harmless and reaches(args, kwargs):
                self.current.leaks.note(f"{name_of(func)} under no_grad")
        elif isinstance(out, Tensor) and out.requires_grad:
            _differentiable.add(func)
            if out.dtype in NARROW:
                self.current.narrows = True
        elif func not in _harmless:
            if _is_cut(out):
                self._note(func, args, kwargs)
            elif isinstance(out, list | tuple):
                _differentiable.add(func)
        elif func in _asking and args and is_differentiated(args[0]):
            self.current.undefined.append(~args[0].detach().isfinite().all())
        return out

    def _written_after(self, func: Any, types: Any, args: Any, kwargs: Any) -> Tensor:
        """What writes into ``out=`` has no forward mode; to compute the result and to copy it there has one."""
        out = kwargs["out"]
        found = self.__torch_function__(func, types, args, {name: kwargs[name] for name in kwargs if name != "out"})
        return (out if out.shape == found.shape else out.resize_(found.shape)).copy_(found)

    def _by_formula(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Some functions cost less by formulas of ours; inside `torch.func` transforms these see no tangents."""
        if peek_interpreter_stack() is not None:
            return None
        if func in MULTIPLY:
            if self.current.factors or func in CONVOLVE:
                return MULTIPLY[func](self.current.factors, *args, **(kwargs or {}))
        elif func is torch.nn.functional.batch_norm:
            return normalised(self.current, args, kwargs or {})
        elif not kwargs:
            return with_a_constant(func, args)
        return None

    def _decide(self, func: Any, args: Any, kwargs: Any) -> Any:
        out = func(*args, **kwargs)
        if func not in _differentiable and func not in _harmless and _is_cut(out):
            self._note(func, args, kwargs)
        return out

    def _note(self, func: Any, args: Any, kwargs: Any) -> None:
        """A result is not differentiated; what it was made of may be."""
        if reaches(args, kwargs) and name_of(func) not in ONE_BY_ONE:
            self.current.leaks.note(name_of(func))


def _is_seen_by_others(tensor: Any) -> bool:
    """Whether what is written into a tensor reaches others without a derivative."""
    is_plain = isinstance(tensor, Tensor) and tensor.layout is torch.strided and not tensor.requires_grad
    return is_plain and is_shared(tensor)


def chosen(current: Any, func: Any, args: Any, kwargs: Any) -> Any:
    """`torch.cond`, as Python's `if`."""
    answer, one, other, operands = (*args, *kwargs.values())
    note_another_way(current)
    note_reading(current)
    with Watch(current):
        return (one if bool(answer) else other)(*operands)


def repeated(current: Any, func: Any, args: Any, kwargs: Any) -> Any:
    """`torch.while_loop`, as Python's `while`."""
    goes_on, body, carried, others = (*args, *kwargs.values())
    note_another_way(current)
    note_reading(current)
    with Watch(current):
        while bool(goes_on(*carried, *others)):
            carried = tuple(body(*carried, *others))
    return carried


HANDLERS |= {"cond": chosen, "while_loop": repeated}


def _learned(func: Any) -> Handler | None:
    """How a function is called in another way, if it is; and what else is known of it by its name."""
    handler, name = None, name_of(func)
    if _is_of_torch(func):
        handler = HANDLERS.get(name)
        if name.startswith("_foreach_") or _module(func).startswith("torch.foreach"):
            handler = each_by_itself
        elif name in FILLS and _module(func) == "torch.nn.init":
            handler = filled
        if handler is None and is_harmless(name):
            _harmless.add(func)
            if name in ("isfinite", "isnan", "isinf", "isposinf", "isneginf"):
                _asking.add(func)
        _handlers[func] = handler
    return handler


def _is_of_torch(func: Any) -> bool:
    return not isinstance(func, FunctionType) or _module(func).partition(".")[0] == "torch"


def _module(func: Any) -> str:
    return getattr(func, "__module__", None) or ""


def _is_cut(out: Any) -> bool:
    """Whether numbers in a result are not differentiated; of several results, those that could be."""
    if isinstance(out, Tensor):
        return not is_differentiated(out)
    if isinstance(out, list | tuple):
        return any(_is_real(each) and _is_cut(each) for each in out) or (bool(out) and all(map(_is_cut, out)))
    return isinstance(out, bool | int | float | complex)


def _is_real(out: Any) -> bool:
    """Whether a result could have a derivative."""
    if isinstance(out, list | tuple):
        return any(map(_is_real, out))
    return isinstance(out, Tensor) and (out.is_floating_point() or out.is_complex())
