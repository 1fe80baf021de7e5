"""Which overloads a piece of code calls, of the table or with kernels of ours, and on which kinks those calls lie."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import torch

from subgrad.apply import dispatch, foreach, pass_kernels
from subgrad.audit.recording import Recording
from subgrad.clarke.rules.rule_table import rules
from subgrad.kinks import KINKS
from subgrad.kinks.overloads import overload
from subgrad.kinks.sets import Jump

# A key before all of autograd that nothing else uses. Unlike a `TorchDispatchMode`, it sees composite operators, and
# is not seen by those that take another path where a mode is active.
_NAME = "TESTING_ONLY_GenericWrapper"
_KEY = torch._C._dispatch_key_parse(_NAME)
_AFTER = torch._C._dispatch_keyset_full_after(_KEY)


@dataclass
class Met:
    """What was met.

    Attributes:
        overloads: of the table, by name.
        hits: the places (``"abs at self == 0"``) that were hit exactly.
        forms: overloads as they were called, functional or writing, of the table and of whole programs' rules.
        unanswered: places where the table raises instead of an answer. They count as no hit, and excuse nothing.
    """

    overloads: set[str] = field(default_factory=set)
    hits: set[str] = field(default_factory=set)
    unanswered: set[str] = field(default_factory=set)
    forms: set[str] = field(default_factory=set)

    def add(self, other: Met) -> None:
        self.overloads |= other.overloads
        self.hits |= other.hits
        self.unanswered |= other.unanswered
        self.forms |= other.forms


_met: Met | None = None


@contextmanager
def meeting() -> Iterator[Met]:
    """Note every call of the table's overloads in this block, whoever makes it."""
    global _met
    _listen()
    _met, outer = Met(), _met
    try:
        with torch._C._IncludeDispatchKeyGuard(_KEY):
            yield _met
    finally:
        _met = outer


@cache
def _listen() -> list[torch.library.Library]:
    """Register the listeners, once per process: they live as long as the libraries that this keeps."""
    everything, aten = torch.library.Library("_", "IMPL"), torch.library.Library("aten", "IMPL")
    everything.fallback(torch.library.fallthrough_kernel, _NAME)
    of_table = {form: op for op in KINKS.overloads for form in forms(op)}
    for form in {**of_table, **dict.fromkeys(with_kernels())}:
        aten.impl(form, _listener(of_table.get(form), form), _NAME, with_keyset=True)
    return [everything, aten]


@cache
def with_kernels() -> tuple[str, ...]:
    """The overloads that conventions, audits and gradients of whole programs may register kernels for."""
    ruled = [form for op in (*rules(), *Recording.rules) for form in pass_kernels.forms(op)]
    chosen = [form for each in dispatch.OPERATORS for form in (each.op, each.in_place, *foreach.forms(each.op)) if form]
    return tuple(dict.fromkeys((*chosen, *ruled)))


def _listener(op: str | None, form: str) -> Callable[..., Any]:
    function = overload(form)

    def kernel(keyset: Any, *args: Any, **kwargs: Any) -> Any:
        if _met is not None:
            _met.forms.add(form)
        if _met is not None and op is not None:
            _met.overloads.add(op)
            # Below autograd no convention acts, so that a hit there explains nothing.
            if "Autograd" in torch._C._dispatch_keyset_to_string(keyset):
                _ask(op, bound(form, args, kwargs), _met)
        return function.redispatch(keyset & _AFTER, *_tensors(function, args), **kwargs)

    return kernel


def _tensors(function: Any, args: tuple[Any, ...]) -> list[Any]:
    """The arguments with numbers as tensors again where the schema has those; torch hands them to Python as numbers."""
    kinds = [str(each.type) for each in function._schema.arguments]
    return [
        torch.tensor(each) if kind in ("Tensor", "Optional[Tensor]") and isinstance(each, int | float) else each
        for each, kind in zip(args, kinds, strict=False)
    ]


def _ask(op: str, arguments: Mapping[str, Any], met: Met) -> None:
    """Note on which kinks a call lies. No convention interferes at jumps."""
    with torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(_KEY)), torch.no_grad():
        for kink in KINKS.of_overload(op):
            place = f"{op} at {kink.place}"
            try:
                if not isinstance(kink.set, Jump) and kink.applies(arguments) and kink.hits(arguments).any():
                    met.hits.add(place)
            except Exception as error:
                met.unanswered.add(f"{place}: {type(error).__name__}: {error}")


def bound(form: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """All arguments by name; the dispatcher leaves trailing defaults out."""
    arguments = overload(form)._schema.arguments
    defaults = {each.name: each.default_value for each in arguments if each.has_default_value()}
    return {**defaults, **dict(zip((each.name for each in arguments), args, strict=False)), **kwargs}


@cache
def forms(op: str) -> tuple[str, ...]:
    """The overload itself, with those that write its result into ``self`` or ``out``."""
    name = op.partition(".")[0]
    wanted = _signature(op)
    packets = [each for each in (name, f"{name}_") if hasattr(torch.ops.aten, each)]
    named = [
        packet if form == "default" else f"{packet}.{form}"
        for packet in packets
        for form in getattr(torch.ops.aten, packet).overloads()
    ]
    return tuple(each for each in named if _signature(each) == wanted)


def _signature(op: str) -> list[tuple[str, str]]:
    arguments = overload(op)._schema.arguments
    return [(each.name, str(each.type)) for each in arguments if not each.is_out]
