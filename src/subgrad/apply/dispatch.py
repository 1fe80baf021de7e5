"""The kernels that put the convention in force, registered over torch's own at the backends' Autograd keys.

They see every call, from Python or from C++, and cost other operators nothing. Registered at the first use and never
removed: with no convention in force they call the kept original.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from torch._C import DispatchKey
from torch.autograd import forward_ad
from torch.torch_version import TorchVersion

from subgrad.apply import compiled, layouts
from subgrad.apply.active import active
from subgrad.apply.gates import below_autograd, laid_out
from subgrad.apply.joint import REPAIRS
from subgrad.apply.operators import Operator, operator
from subgrad.apply.recompute import tie_checkpoints
from subgrad.apply.rule import Arguments, Choice, Native, take
from subgrad.conventions import Convention, Spot, torch_element
from subgrad.kinks import KINKS, Kink
from subgrad.kinks.overloads import overload
from subgrad.kinks.sets import LEAST, Ball, Element, Joint, Jump, Slopes, Ties

BACKENDS = ("CPU", "CUDA", "XPU", "MPS", "HPU", "XLA", "Lazy", "Meta", "PrivateUse1", "PrivateUse2", "PrivateUse3")
LAYOUTS = ("NestedTensor", "Other")  # "Other" has those that no backend's key covers, as mkldnn
INSTALLED = "2.14" if TorchVersion(torch.__version__) >= "2.14" else "2.13"  # the column of the table that describes it
VERSIONS = ("torch-2.13", "torch-2.14")

# What is registered, by key and overload; who covers it calls it back. Asked for, torch would return whoever covers it.
REGISTERED: dict[tuple[str, str], Callable[..., Any]] = {}
_library: torch.library.Library | None = None
_lock = threading.Lock()


def install() -> None:
    """Register the kernels, once per process."""
    global _library
    if _library is not None:
        return
    with _lock:
        if _library is not None:
            return
        compiled.remember_unguarded_graphs()
        tie_checkpoints()
        # TorchScript's optimiser differentiates by formulas of its own, past every kernel. Asked at each call, so that
        # what it has optimised before is covered too.
        torch._C._jit_set_profiling_mode(False)
        library = torch.library.Library("aten", "IMPL")
        for key in (f"Autograd{each}" for each in (*BACKENDS, *LAYOUTS)):
            for op, kernel in _kernels(key).items():
                compiled.keep_from_being_compiled(kernel)
                REGISTERED[key, op] = kernel
                library.impl(op, kernel, key, with_keyset=True, allow_override=True)
                # The Python dispatcher, which compiling uses, remembers who answered before.
                overload(op)._uncache_dispatch(getattr(DispatchKey, key))
        _library = library


def _kernels(key: str) -> dict[str, Callable[..., Tensor]]:
    """All kernels for one dispatch key. The originals are kept first, before any of them is replaced."""
    operators = [operator(op) for op in KINKS.entrywise]
    joint = [operator(op) for op in REPAIRS]
    overloads = [op for each in (*operators, *joint) for op in (each.op, each.in_place) if op]
    originals = {op: _original(op, key) for op in overloads}
    kernels = {each.op: _functional(each, originals) for each in operators}
    kernels |= {each.op: _joint(each, originals) for each in joint}
    kernels |= {each.in_place: _in_place(each, each.in_place, originals) for each in operators if each.in_place}
    return kernels


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


def _functional(op: Operator, originals: dict[str, Any]) -> Callable[..., Tensor]:
    original = originals[op.op]

    def kernel(keyset: Any, *args: Any, **kwargs: Any) -> Tensor:
        compiled.note_kink()
        convention = active()
        if not convention.interferes:
            return original(keyset, *args, **kwargs)
        return _run(op, convention, op.bind(args, kwargs), _caller(op, "op", originals, keyset))

    return kernel


def _in_place(op: Operator, form: str, originals: dict[str, Any]) -> Callable[..., Tensor]:
    original = originals[form]

    def kernel(keyset: Any, self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        compiled.note_kink()
        convention = active()
        if not convention.interferes:
            return original(keyset, self, *args, **kwargs)
        arguments, in_place = op.bind((self, *args), kwargs), _caller(op, "in_place", originals, keyset)
        if not _choices(op, convention, arguments, _differentiated(op, arguments)):
            return in_place(arguments)
        layouts.require_plain(op, convention, arguments)

        def native(arguments: Arguments) -> Tensor:
            """On a copy, since the derivative needs what is about to be overwritten; but in place there too: torch may
            differentiate that form from its result (elu), which rounds differently."""
            return in_place({**arguments, "self": laid_out(arguments["self"].clone(), self)})

        result = _run(op, convention, arguments, native)
        # copy_ sends 0.0 back to what it overwrites; negated it is -0.0, which added to the gradient leaves every bit.
        return self.neg_().copy_(result)

    return kernel


def _joint(op: Operator, originals: dict[str, Any]) -> Callable[..., Any]:
    original, repair = originals[op.op], REPAIRS[op.op]

    def kernel(keyset: Any, *args: Any, **kwargs: Any) -> Any:
        compiled.note_kink()
        convention = active()
        if not convention.interferes:
            return original(keyset, *args, **kwargs)
        arguments = op.bind(args, kwargs)
        native = _caller(op, "op", originals, keyset)
        if not _shares(op, convention, arguments):
            return native(arguments)
        layouts.require_plain(op, convention, arguments)
        with torch._C._DisableAutocast():  # which would widen the sums over tied entries
            return repair(native, arguments)

    return kernel


def _shares(op: Operator, convention: Convention, arguments: Arguments) -> bool:
    """Whether the convention takes the least element of a joint kink where torch does not."""
    differentiated = _differentiated(op, arguments)
    spots = [
        Spot.of(kink, arguments, differentiated)
        for kink in op.kinks
        if isinstance(kink.set, Joint)
        and not differentiated.isdisjoint(kink.set.candidates)
        and kink.applies(arguments)
    ]
    return any(convention.element(spot) is LEAST and torch_element(spot, INSTALLED) is not LEAST for spot in spots)


def _caller(op: Operator, form: str, originals: dict[str, Any], keyset: Any) -> Native:
    """Torch's own operator, or the one that a composite calls, in its functional or in-place form."""

    def native(arguments: Arguments) -> Any:
        base, arguments = op.base(arguments)
        return originals[getattr(base, form)](keyset, *base.args(arguments), **base.kwargs(arguments))

    return native


def _run(op: Operator, convention: Convention, arguments: Arguments, native: Native) -> Tensor:
    differentiated = _differentiated(op, arguments)
    choices = _choices(op, convention, arguments, differentiated)
    if not choices:
        return native(arguments)
    if not layouts.is_plain(arguments):
        return layouts.on_values(op, convention, arguments)
    operands = [name for name in op.operands if name in differentiated]
    return take(native, _value(op, arguments, choices), arguments, operands, choices)


def _value(op: Operator, arguments: Arguments, choices: Sequence[Choice]) -> Tensor | None:
    """What the operator returns, where the rule must know it first: for operands of different shapes and dtypes."""
    if len(op.operands) == 1 and not any(choice.singular for choice in choices):
        return None
    # The overload itself, not the kept original: below this level of `torch.func` there may be others to differentiate.
    return below_autograd(overload(op.op), *op.args(arguments))


def _differentiated(op: Operator, arguments: Arguments) -> frozenset[str]:
    tensors = [(name, arguments[name]) for name in op.tensor_names if arguments[name] is not None]
    found = {name for name, tensor in tensors if tensor.requires_grad} if torch.is_grad_enabled() else set()
    if forward_ad._current_level >= 0:
        found |= {name for name, tensor in tensors if forward_ad.unpack_dual(tensor).tangent is not None}
    return frozenset(found)


def _choices(
    op: Operator, convention: Convention, arguments: Arguments, differentiated: frozenset[str]
) -> list[Choice]:
    """What the convention takes out of torch's hands in this call; nothing where both agree anyway."""
    self = arguments["self"]
    if differentiated.isdisjoint(op.operands) or self.is_complex():
        return []
    rest = (differentiated, self.dtype, forward_ad._current_level >= 0)
    if not op.slopes_are_numbers:
        return _decide(op, convention, arguments, *rest)
    numbers = tuple((name, ... if isinstance(value, Tensor) else value) for name, value in arguments.items())
    try:
        return _decided(op, convention, numbers, *rest)
    except TypeError:  # symbolic numbers, while compiling, are not hashable
        return _decide(op, convention, arguments, *rest)


@lru_cache(maxsize=4096)
def _decided(op: Operator, convention: Convention, numbers: tuple[tuple[str, Any], ...], *rest: Any) -> list[Choice]:
    return _decide(op, convention, dict(numbers), *rest)


def _decide(
    op: Operator,
    convention: Convention,
    arguments: Arguments,
    differentiated: frozenset[str],
    dtype: torch.dtype,
    forward_mode: bool,
) -> list[Choice]:
    choices = []
    for kink in op.kinks:
        if isinstance(kink.set, Jump) or differentiated.isdisjoint(kink.set.candidates) or not kink.applies(arguments):
            continue
        spot = Spot.of(kink, arguments, differentiated)
        element, native = convention.element(spot), torch_element(spot, INSTALLED)
        if element is None:
            continue
        if not (
            native is not None
            and all(_equal(element.get(name), native.get(name)) for name in differentiated)
            # Between tensors torch's forward mode may disagree with its reverse mode: fmax and clamp up to 2.13.
            and not (forward_mode and isinstance(kink.set, Ties))
            and (convention.choice(kink) in VERSIONS or _is_exact(kink, arguments, dtype))
        ):
            choices.append(_choice(kink, convention, element, differentiated))
    return choices


def _choice(kink: Kink, convention: Convention, element: Element, differentiated: frozenset[str]) -> Choice:
    weights = {name: element.get(name, 0.0) for name in differentiated}
    return Choice(
        kink.hits,
        {name: None if isinstance(weight, Tensor) else float(weight) for name, weight in weights.items()},
        lambda arguments: convention.element(Spot.of(kink, arguments, differentiated)) or {},
        singular=isinstance(kink.set, Ball),
    )


def _equal(one: Any, other: Any) -> bool:
    return one is other or (not isinstance(one, Tensor) and not isinstance(other, Tensor) and one == other)


def _is_exact(kink: Kink, arguments: Arguments, dtype: torch.dtype) -> bool:
    """Whether torch's backward looks for the kink where its forward has it.

    With a bound that 16 bits cannot hold, the forward rounds it and some backwards do not: at its own bound
    ``hardtanh(x, -0.7, 0.7)`` in bfloat16 has slope 1.
    """
    if dtype not in (torch.float16, torch.bfloat16) or not isinstance(kink.set, Slopes):
        return True
    place = kink.place_value(arguments)
    return torch.tensor(place, dtype=dtype).item() == place
