"""The kernels that put the convention in force, registered over torch's own at the backends' Autograd keys.

They see every call, from Python or from C++, and cost other operators nothing. Registered when a convention is first
used that needs them, and never removed: with no convention in force they call the kept original.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch._C import DispatchKey
from torch.autograd import forward_ad

from subgrad.apply import compiled, layouts, lists, passing, shortcuts
from subgrad.apply.active import active
from subgrad.apply.gates import are_known_absent, below_autograd, laid_out
from subgrad.apply.joint import REPAIRS, WITHOUT_INDICES, without_indices
from subgrad.apply.operators import Operator, operator
from subgrad.apply.plan import Plan, differentiated, is_shared, may_change, plan
from subgrad.apply.recompute import tie_checkpoints
from subgrad.apply.rule import Arguments, Choice, Native, take
from subgrad.apply.shortcuts import Front, Memory, Shortcut
from subgrad.apply.version_probe import warn_where_torch_differs
from subgrad.conventions import Convention, Spot
from subgrad.kinks import KINKS
from subgrad.kinks.overloads import overload
from subgrad.kinks.sets import Joint
from subgrad.kinks.table import COMPOSITES

BACKENDS = ("CPU", "CUDA", "XPU", "MPS", "HPU", "XLA", "Lazy", "Meta", "PrivateUse1", "PrivateUse2", "PrivateUse3")
LAYOUTS = ("NestedTensor", "Other")  # "Other" has those that no backend's key covers, as mkldnn
KEYS = tuple(f"Autograd{each}" for each in (*BACKENDS, *LAYOUTS))
OPERATORS = tuple(operator(op) for op in (*KINKS.entrywise, *REPAIRS))

# What is registered, by key and overload; who covers it calls it back. Asked for, torch would return whoever covers it.
REGISTERED: dict[tuple[str, str], Callable[..., Any]] = {}
_library: torch.library.Library | None = None
_originals: dict[str, dict[str, Callable[..., Any]]] = {}  # torch's own kernels, by key and overload
_fronts: dict[str, Mapping[str, Front]] = {}  # what lies over ours, if it is built
_served: set[Convention | None] = set()  # the conventions with all they need; None once everything is registered
_lock = threading.Lock()


def install(convention: Convention | None = None) -> None:
    """Register the kernels that a convention needs, or all of them; they stay.

    No others: a kernel in Python costs microseconds even where it only calls torch's own. A second convention that
    needs more gets all, so that what is compiled by then is compiled once more at most twice.
    """
    warn_where_torch_differs(convention)
    if convention in _served or None in _served:
        return
    with _lock:
        if convention is not None and not _is_lacking(convention):
            _served.add(convention)
            return
        if REGISTERED:
            convention = None
        else:
            _prepare()
        compiled.remember_unguarded_graphs()
        with _quietly():
            for key in _originals:
                _register(key, convention)
        _served.add(convention)


def ask_again() -> None:
    """Shortcuts pay elsewhere than before: conventions may need more kernels, the one in force at once."""
    _served.intersection_update((None,))
    install(active())


@contextmanager
def _quietly() -> Iterator[None]:
    """Torch warns of a kernel that covers another one, which is what these are for."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r"(?s).*Overriding a previously registered kernel")
        yield


def _prepare() -> None:
    """Before the first kernel is registered: keep torch's own."""
    global _library
    cover_what_goes_past_kernels()
    _library = torch.library.Library("aten", "IMPL")
    for key in KEYS:
        _originals[key] = {op: _original(op, key) for each in OPERATORS for op in (each.op, each.in_place) if op}
        _fronts[key] = shortcuts.fronts(key, tuple(each for each in OPERATORS if each.op not in REPAIRS))


@cache
def cover_what_goes_past_kernels() -> None:
    """Once per process: what is recomputed in backward, and what TorchScript differentiates by formulas of its own."""
    tie_checkpoints()
    # Its optimiser asks at each call, so that what it has optimised before is covered too.
    torch._C._jit_set_profiling_mode(False)


def _is_lacking(convention: Convention) -> bool:
    """Whether a convention needs kernels that are not registered yet."""
    return any((key, op.op) not in REGISTERED for op in OPERATORS for key in KEYS if _is_needed(op, key, convention))


def _is_needed(op: Operator, key: str, convention: Convention | None) -> bool:
    """Whether a convention may take what torch does not, or there is a faster way to the same."""
    if convention is None:
        return True
    return may_change(op, convention) or (convention.interferes and shortcuts.ever_pay(op.op, key))


def _register(key: str, convention: Convention | None) -> None:
    assert _library is not None
    for op in OPERATORS:
        if (key, op.op) in REGISTERED or not _is_needed(op, key, convention):
            continue
        for form, kernel in _kernels(op, key).items():
            compiled.keep_from_being_compiled(kernel)
            REGISTERED[key, form] = kernel
            _library.impl(form, kernel, key, with_keyset=True, allow_override=True)
            if form in _fronts[key]:
                _fronts[key][form].cover()
            # The Python dispatcher, which compiling uses, remembers who answered before.
            overload(form)._uncache_dispatch(getattr(DispatchKey, key))


def _kernels(op: Operator, key: str) -> dict[str, Callable[..., Any]]:
    """The kernels of an operator for one key: of its functional form, its in-place form, and those on lists."""
    originals, front = _originals[key], _fronts[key].get
    if op.op in REPAIRS:
        forms = WITHOUT_INDICES.get(op.op, ()) if key in shortcuts.keys_for_windows() else ()
        return {op.op: _joint(op, originals)} | {form: _values_of(op, form, _original(form, key)) for form in forms}
    shortcut = shortcuts.functional(op.op, key)
    kernels = {op.op: _entrywise(op, op.op, originals, shortcut, front(op.op), _functional)}
    if op.in_place:
        shortcut = shortcuts.in_place(op.op, key)
        kernels[op.in_place] = _entrywise(op, op.in_place, originals, shortcut, front(op.in_place), _in_place)
    return kernels | {form: lists.kernel(op.op, form, _original(form, key)) for form in lists.forms(op.op)}


def _original(op: str, key: str) -> Callable[..., Any]:
    """Torch's own kernel. Where it has a Python one besides, for shapes that are symbols, compiling means that one."""
    kernel, python_kernels = torch.library.get_kernel(f"aten::{op}", key).call_boxed, overload(op).py_kernels

    def original(keyset: Any, *args: Any, **kwargs: Any) -> Any:
        if python_kernels and torch._C._dispatch_tls_is_dispatch_key_included(DispatchKey.PythonDispatcher):
            in_python = python_kernels.get(DispatchKey.Autograd)
            if in_python is not None:
                return in_python(*args, **kwargs)
        return kernel(keyset, *args, **kwargs)

    return original


# What is left of a call once torch's own kernel and shortcuts are out: operator, convention, arguments, plan, and the
# originals with the keyset to call them with.
Finish = Callable[[Operator, Convention, Arguments, Plan, dict[str, Any], Any], Tensor]


def _entrywise(
    op: Operator,
    form: str,
    originals: dict[str, Any],
    shortcut: Shortcut | None,
    front: Front | None,
    finish: Finish,
) -> Callable[..., Tensor]:
    original, memory = originals[form], Memory(op)
    is_composite = op.op in COMPOSITES  # what torch's own calls has a kernel of its own, perhaps for another convention

    def kernel(keyset: Any, *args: Any, **kwargs: Any) -> Tensor:
        planned = memory.native(args) if front is None else None  # which has been asked, and wants to be told
        if planned is not None and (shortcut is None or args[0].numel() < shortcut.pays_from(planned)):
            return original(keyset, *args, **kwargs)
        convention = compiled.convention_of_call(args)
        if not convention.interferes:
            if front is not None and not compiled.is_compiling():
                front.note_torchs_own()
            return original(keyset, *args, **kwargs)
        planned = memory.recall(convention, args)
        if planned is None:
            planned = memory.remember(convention, args, plan(op, convention, op.bind(args, kwargs)))
        if front is not None and not compiled.is_compiling() and front.note(planned, op.bind(args, kwargs), shortcut):
            return overload(form)(*args, **kwargs)
        if not is_composite and not planned.choices and _is_left_to_torch(shortcut, planned, args[0]):
            memory.note_native(convention, args, planned)
            return original(keyset, *args, **kwargs)
        arguments = op.bind(args, kwargs)
        found = _shortened(shortcut, planned, arguments, originals, keyset)
        return finish(op, convention, arguments, planned, originals, keyset) if found is None else found

    return kernel


def _is_left_to_torch(shortcut: Shortcut | None, planned: Plan, x: Tensor) -> bool:
    """Whether nothing is faster than torch's own kernel, where that gives the wanted gradient."""
    if shortcut is None or not planned.meetings:
        return True
    size = x.numel()
    return not isinstance(size, int) or size < shortcut.pays_from(
        planned
    )  # a symbol, while compiling, must not be compared


def _functional(
    op: Operator, convention: Convention, arguments: Arguments, planned: Plan, originals: dict[str, Any], keyset: Any
) -> Tensor:
    native = _caller(op, "op", originals, keyset)
    return _ruled(op, convention, arguments, native, planned) if planned.choices else native(arguments)


def _in_place(
    op: Operator, convention: Convention, arguments: Arguments, planned: Plan, originals: dict[str, Any], keyset: Any
) -> Tensor:
    self, in_place = arguments["self"], _caller(op, "in_place", originals, keyset)
    if not planned.choices:
        return in_place(arguments)
    layouts.require_plain(op, convention, arguments)

    def native(arguments: Arguments) -> Tensor:
        """On a copy, since the derivative needs what is about to be overwritten; but in place there too: torch may
        differentiate that form from its result (elu), which rounds differently."""
        return in_place({**arguments, "self": laid_out(arguments["self"].clone(), self)})

    result = _ruled(op, convention, arguments, native, planned)
    # copy_ sends 0.0 back to what it overwrites; negated it is -0.0, which added to the gradient leaves every bit.
    return self.neg_().copy_(result)


def _shortened(
    shortcut: Shortcut | None, planned: Plan, arguments: Arguments, originals: dict[str, Any], keyset: Any
) -> Tensor | None:
    """The result by a shortcut, if there is one for such a call; not in forward mode, of which they know nothing."""
    if shortcut is None or not planned.meetings or forward_ad._current_level >= 0:
        return None
    return shortcut(planned, arguments, lambda op, args: originals[op](keyset, *args))


def _joint(op: Operator, originals: dict[str, Any]) -> Callable[..., Any]:
    original, repair = originals[op.op], REPAIRS[op.op]

    def kernel(keyset: Any, *args: Any, **kwargs: Any) -> Any:
        convention = compiled.convention_of_call(args)
        if not convention.interferes:
            return original(keyset, *args, **kwargs)
        arguments = op.bind(args, kwargs)
        native = _caller(op, "op", originals, keyset)
        if not shares(op, convention, arguments):
            return native(arguments)
        layouts.require_plain(op, convention, arguments)
        with torch._C._DisableAutocast():  # which would widen the sums over tied entries
            return repair(native, arguments)

    return kernel


def _values_of(op: Operator, form: str, original: Callable[..., Any]) -> Callable[..., Any]:
    """For a composite that returns the values of an operator, and not its indices."""
    bound = Operator(form)

    def kernel(keyset: Any, *args: Any, **kwargs: Any) -> Any:
        convention = compiled.convention_of_call(args)
        # A pass knows the operator that torch's own composite calls.
        if convention.interferes and not compiled.is_compiling() and passing.here.current is None:
            arguments = bound.bind(args, kwargs)
            found = without_indices(form, arguments) if shares(op, convention, arguments) else None
            if found is not None:
                return found
        return original(keyset, *args, **kwargs)

    return kernel


def shares(op: Operator, convention: Convention, arguments: Arguments) -> bool:
    """Whether the convention takes the least element of a joint kink where torch does not."""
    names = differentiated(op, arguments)
    spots = [
        Spot.of(kink, arguments, names)
        for kink in op.kinks
        if isinstance(kink.set, Joint) and not names.isdisjoint(kink.set.candidates) and kink.applies(arguments)
    ]
    return any(is_shared(convention, spot) for spot in spots)


def _caller(op: Operator, form: str, originals: dict[str, Any], keyset: Any) -> Native:
    """Torch's own operator, or the one that a composite calls, in its functional or in-place form."""

    def native(arguments: Arguments) -> Any:
        base, arguments = op.base(arguments)
        return originals[getattr(base, form)](keyset, *base.args(arguments), **base.kwargs(arguments))

    return native


def _ruled(op: Operator, convention: Convention, arguments: Arguments, native: Native, planned: Plan) -> Tensor:
    if not layouts.is_plain(arguments):
        return layouts.on_values(op, convention, arguments)
    if arguments["self"].is_cpu and all(are_known_absent(choice.hits(arguments)) for choice in planned.choices):
        return native(arguments)  # on other devices, looking would mean to wait for them
    composition = shortcuts.for_graphs(op.op)
    if composition is not None and compiled.is_compiling() and forward_ad._current_level < 0:
        found = composition(planned, arguments, below_autograd(overload(op.op), *op.args(arguments)))
        if found is not None:
            return found
    operands = [name for name in op.operands if name in planned.names]
    return take(native, _value(op, arguments, planned.choices), arguments, operands, planned.choices)


def _value(op: Operator, arguments: Arguments, choices: Sequence[Choice]) -> Tensor | None:
    """What the operator returns, where the rule must know it first: for operands of different shapes and dtypes."""
    if len(op.operands) == 1 and not any(choice.singular for choice in choices):
        return None
    # The overload itself, not the kept original: below this level of `torch.func` there may be others to differentiate.
    return below_autograd(overload(op.op), *op.args(arguments))
