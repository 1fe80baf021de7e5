"""Kernels that let a pass over a whole program decide what an operator does at its kinks.

They lie at a dispatch key of their own, before all others, that is on only in a thread that runs a pass. They act where
torch would reach autograd, once for every level of `torch.func` and with what autocast has cast, and hand on every call
that comes to them before that.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from copy import copy
from typing import Any

import torch
from torch import Tensor

from subgrad.apply import dispatch
from subgrad.apply.current_pass import KEY, NAME, here
from subgrad.apply.graph_nodes import marked
from subgrad.apply.operators import Operator, exists
from subgrad.apply.torch_compile import guards
from subgrad.kinks.overloads import is_torchs, namespace, overload, qualified
from subgrad.torch_internals.dispatcher import (
    DispatchKeySet,
    ExcludeDispatchKeyGuard,
    allows_numbers_as_tensors,
    dispatch_key_parse,
    has_kernel_for_key,
    higher_order_fallthrough_keys,
    higher_order_ops,
    set_key_included,
    uncache_dispatch,
)

BACKENDS = ("CPU", "CUDA", "XPU", "MPS")
# In-place forms that are not named after their functional one.
IN_PLACE = {"pow.Tensor_Scalar": "pow_.Scalar", "pow.Tensor_Tensor": "pow_.Tensor"}

NUMBERS = (int, float, complex, torch.SymInt, torch.SymFloat)


def _keys(*names: str) -> tuple[Any, ...]:
    return tuple(map(dispatch_key_parse, names))


_KEYS = DispatchKeySet(KEY)
_AUTOGRAD = _keys(*(f"Autograd{backend}" for backend in BACKENDS))
_AUTOCAST = _keys(*(f"Autocast{backend}" for backend in BACKENDS))
# The keys of transforms: they take a call before autograd does, and make it again, level by level or for a whole batch.
_TRANSFORMS = _keys("FuncTorchDynamicLayerFrontMode", "FuncTorchBatched", "Batched", "BatchedNestedTensor")

Arguments = Mapping[str, Any]


class Form:
    """An operator in the form that is called, functional or in place: what is the same for all of its calls."""

    def __init__(self, op: Operator, form: str):
        self.op = op
        self.functional, self.called = overload(op.op), overload(form)
        self.takes_two = sum(name in op.tensor_names for name in op.argument_names[:2]) == 2
        self.takes_one = not self.takes_two and op.argument_names[0] in op.tensor_names
        self.is_others = not is_torchs(op.op)
        self.takes_numbers = allows_numbers_as_tensors(form.partition(".")[0])

    def run(self, keyset: Any, args: tuple[Any, ...], kwargs: dict[str, Any], given: tuple[Any, ...]) -> Any:
        """Torch's own kernel; ``given`` are the arguments before numbers in the place of tensors became tensors."""
        if self.is_others:
            return marked(lambda: self.called.redispatch(keyset, *args, **kwargs))
        if given is not args and self.takes_numbers:
            with ExcludeDispatchKeyGuard(_KEYS):
                return self.called(*given, **kwargs)
        return self.called.redispatch(keyset, *args, **kwargs)


class PassCall:
    """One call of an operator inside a pass.

    Attributes:
        op: the operator, in its functional form.
        arguments: by name.
        written: whether the call writes into ``self``.
        memo: what a rule has computed for this call and will need again.
    """

    __slots__ = ("_args", "_form", "_given", "_keyset", "_kwargs", "arguments", "memo", "op", "written")

    def __init__(self, form: Form, keyset: Any, args: tuple[Any, ...], kwargs: dict[str, Any], given: tuple[Any, ...]):
        self._form, self._keyset, self._args, self._kwargs, self._given = form, keyset, args, kwargs, given
        self.op, self.written = form.op, form.called is not form.functional
        self.arguments = form.op.bind(args, kwargs)
        self.memo: dict[str, Any] = {}

    def run(self) -> Any:
        """What was called, functional or in place, with torch's own derivative."""
        return self._form.run(self._keyset, self._args, self._kwargs, self._given)

    # With this pass suspended both run as torch's own.

    def native(self, arguments: Arguments) -> Any:
        """The functional form."""
        return self._form.functional(*self.op.args(arguments), **self.op.kwargs(arguments))

    def again(self, arguments: Arguments) -> Any:
        """What was called, with other arguments."""
        return self._form.called(*self.op.args(arguments), **self.op.kwargs(arguments))

    def with_arguments(self, others: Arguments) -> PassCall:
        """The same call, some of its arguments being others: for its forms, which are told what to run with."""
        found = copy(self)
        found.arguments = {**self.arguments, **others}
        return found

    def as_it_is(self) -> PassCall:
        """The same call, with what it is about to write into as it is now."""
        found = self.with_arguments({"self": self.arguments["self"].clone()})
        found.memo = {}
        return found


_libraries: dict[str, torch.library.Library] = {}  # by namespace; kernels live as long as these
_installed: set[str] = set()
_lock = threading.Lock()


def install(ops: Iterable[str]) -> None:
    """Register the kernels of some operators, once per process."""
    wanted = [op for op in ops if op not in _installed]
    if not wanted:
        return
    dispatch.cover_what_goes_past_kernels()
    with _lock:
        if not _libraries:
            _libraries[""] = _let_others_through()
        for op in wanted:
            if op not in _installed:
                for form in forms(op):
                    _register(form, op)
                _installed.add(op)


def forms(op: str) -> tuple[str, ...]:
    """An overload and the one that writes into ``self``, if there is one."""
    in_place = IN_PLACE.get(op, Operator(op).in_place)
    return (op, in_place) if in_place and exists(in_place) else (op,)


def _let_others_through() -> torch.library.Library:
    """Have operators without a kernel of ours pass by the key."""
    everything = torch.library.Library("_", "IMPL")
    everything.fallback(torch.library.fallthrough_kernel, NAME)
    # Operators of higher order, such as `cond`, have a dispatcher of their own.
    higher_order_fallthrough_keys.append(KEY)
    for each in higher_order_ops.values():
        each.fallthrough(KEY)
    return everything


def _register(form: str, op: str) -> None:
    kernel, name = _kernel(Operator(op), form), namespace(form)
    guards.keep_from_being_compiled(kernel)
    if name not in _libraries:
        _libraries[name] = torch.library.Library(name, "IMPL")
    _libraries[name].impl(form.rpartition("::")[2], kernel, NAME, with_keyset=True)
    uncache_dispatch(overload(form), KEY)


def _is_at_autograd(form: str, keyset: Any) -> bool:
    """Whether autograd is the next to take a call, so that none before it makes that call once more."""
    if any(keyset.has(key) for key in _TRANSFORMS) or not any(keyset.has(key) for key in _AUTOGRAD):
        return False
    casting = [key for key in _AUTOCAST if keyset.has(key)]
    return not any(has_kernel_for_key(qualified(form), key.name) for key in casting)


def _with_tensors(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Numbers in the place of tensors reach a kernel in Python as numbers: here they are tensors again."""
    number, tensor = reversed(args[:2]) if isinstance(args[0], Tensor) else args[:2]
    dtype = torch.result_type(tensor, number)
    if tensor.ndim and tensor.dtype == dtype and dtype.is_floating_point:
        dtype = torch.float64  # which does not count beside entries, and what was given is not rounded
    return (*(each if each is tensor else torch.tensor(each, dtype=dtype) for each in args[:2]), *args[2:])


def _with_tensor(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """A number in the place of the only tensor, as torch's backward passes on what it has kept of another call."""
    dtype = {float: torch.float64, complex: torch.complex128}.get(type(args[0]))
    return (torch.tensor(args[0], dtype=dtype), *args[1:])


def _kernel(op: Operator, name: str) -> Callable[..., Any]:
    form, operator = Form(op, name), op.op
    takes_one, takes_two = form.takes_one, form.takes_two
    acts: dict[int, bool] = {}  # by dispatch keys

    def kernel(keyset: Any, *args: Any, **kwargs: Any) -> Any:
        keyset, given = keyset.remove(KEY), args
        if takes_two and len(args) > 1 and isinstance(args[0 if isinstance(args[1], Tensor) else 1], NUMBERS):
            args = _with_tensors(args)
        elif takes_one and args and isinstance(args[0], NUMBERS):
            given = args = _with_tensor(args)
        keys = keyset.raw_repr()
        if keys not in acts:
            acts[keys] = _is_at_autograd(name, keyset)
        if not acts[keys]:
            return form.run(keyset, args, kwargs, args)
        current = here.in_force
        rule = None if current is None else current.rules.get(operator)
        if current is None or rule is None:
            return form.run(keyset, args, kwargs, given)
        here.in_force = None
        set_key_included(KEY, here.is_held)
        try:
            return current.run(rule, PassCall(form, keyset, args, kwargs, given))
        finally:
            here.in_force = current
            set_key_included(KEY, True)

    return kernel
