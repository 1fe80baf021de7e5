"""Kernels that let a pass over a whole program decide what an operator does at its kinks.

They lie over torch's own, and over those that conventions use, at the backends' Autograd keys: registered when a pass
first has a rule for their operator, and without one in this thread they call what they cover.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor
from torch._C import DispatchKey

from subgrad.apply import compiled, dispatch
from subgrad.apply.operators import Operator, exists
from subgrad.apply.passing import here
from subgrad.kinks.overloads import overload

BACKENDS = ("CPU", "CUDA", "XPU", "MPS")
# In-place forms that are not named after their functional one.
IN_PLACE = {"pow.Tensor_Scalar": "pow_.Scalar", "pow.Tensor_Tensor": "pow_.Tensor"}

Arguments = Mapping[str, Any]


@dataclass(frozen=True)
class Call:
    """One call of an operator inside a pass.

    Attributes:
        op: the operator, in its functional form.
        arguments: by name.
        run: what was called, functional or in place, with torch's own derivative.
        native: the functional form.
        again: what was called, with other arguments.
        written: whether the call writes into ``self``.
        memo: what a rule has computed for this call and will need again.
    """

    op: Operator
    arguments: dict[str, Any]
    run: Callable[[], Any]
    native: Callable[[Arguments], Any]
    again: Callable[[Arguments], Any]
    written: bool
    memo: dict[str, Any] = field(default_factory=dict)

    def as_it_is(self) -> Call:
        """The same call, with what it is about to write into as it is now."""
        return replace(self, arguments={**self.arguments, "self": self.arguments["self"].clone()}, memo={})


_library: torch.library.Library | None = None
_installed: set[str] = set()
_lock = threading.Lock()


def install(ops: Iterable[str]) -> None:
    """Register the kernels of some operators, once per process."""
    global _library
    wanted = [op for op in ops if op not in _installed]
    if not wanted:
        return
    dispatch.install()
    with _lock, dispatch.quietly():
        _library = _library or torch.library.Library("aten", "IMPL")
        for op in wanted:
            if op in _installed:
                continue
            in_place = IN_PLACE.get(op, Operator(op).in_place)
            for key in (f"Autograd{backend}" for backend in BACKENDS):
                _register(_library, key, op, op)
                if in_place and exists(in_place):
                    _register(_library, key, in_place, op)
            _installed.add(op)


def _register(library: torch.library.Library, key: str, form: str, op: str) -> None:
    covered = dispatch.REGISTERED.get((key, form)) or dispatch._original(form, key)
    kernel = _kernel(Operator(op), form, covered)
    compiled.keep_from_being_compiled(kernel)
    library.impl(form, kernel, key, with_keyset=True, allow_override=True)
    overload(form)._uncache_dispatch(getattr(DispatchKey, key))


def _with_tensors(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Numbers in the place of tensors reach a kernel as numbers, and torch's own takes tensors only."""
    dtype = torch.result_type(args[0], args[1])
    made = (each if isinstance(each, Tensor) or each is None else torch.tensor(each, dtype=dtype) for each in args[:2])
    return (*made, *args[2:])


def _kernel(op: Operator, form: str, covered: Callable[..., Any]) -> Callable[..., Any]:
    functional, called = overload(op.op), overload(form)
    takes_two = sum(name in op.tensor_names for name in op.argument_names[:2]) == 2

    def kernel(keyset: Any, *args: Any, **kwargs: Any) -> Any:
        if (
            takes_two
            and len(args) > 1
            and isinstance(args[0 if isinstance(args[1], Tensor) else 1], int | float | complex)
        ):
            args = _with_tensors(args)
        current = here.current
        rule = None if current is None else current.rules.get(op.op)
        if current is None or rule is None:
            return covered(keyset, *args, **kwargs)

        def native(arguments: Arguments) -> Any:
            # With this pass suspended the overload runs as torch's own.
            return functional(*op.args(arguments), **op.kwargs(arguments))

        def again(arguments: Arguments) -> Any:
            return called(*op.args(arguments), **op.kwargs(arguments))

        call = Call(op, op.bind(args, kwargs), lambda: covered(keyset, *args, **kwargs), native, again, form != op.op)
        here.current = None
        try:
            return current.run(rule, call)
        finally:
            here.current = current

    return kernel
