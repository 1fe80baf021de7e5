"""The kernels that put the convention in force, registered over torch's own at the backends' Autograd keys.

They see every call, from Python or from C++, and cost other operators nothing. Registered when a convention is first
used that needs them; with no convention in force they call the kept original, and are given back after a while.
"""

from __future__ import annotations

import sys
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch

from subgrad.apply import current_pass, executors, foreach, scopes
from subgrad.apply.call import Call, Originals
from subgrad.apply.checkpoint import tie_checkpoints
from subgrad.apply.fork_join import ForkJoin
from subgrad.apply.jagged import Jagged
from subgrad.apply.native import Native
from subgrad.apply.operators import Operator, operator, overload_of, torchs_kernel
from subgrad.apply.other_elements import SLOPES, OtherElements
from subgrad.apply.plan import may_change
from subgrad.apply.scopes import active, entered_here
from subgrad.apply.straight_through import StraightThrough
from subgrad.apply.strong_zero import kernels as strong_zero
from subgrad.apply.strong_zero.numbers import taking_numbers
from subgrad.apply.strong_zero.table import forms, is_differentiated_at, reaches
from subgrad.apply.tie_sharing import REPAIRS, TieSharing
from subgrad.apply.torch_compile import guards
from subgrad.apply.version_probe import warn_where_torch_differs
from subgrad.conventions import Convention
from subgrad.kinks import KINKS
from subgrad.kinks.overloads import has_autograd, is_torchs, namespace, overload, qualified
from subgrad.torch_internals.autograd import current_graph_task_id
from subgrad.torch_internals.dispatcher import DispatchKey, destroy_library, uncache_dispatch
from subgrad.torch_internals.settings import jit_set_profiling_mode
from subgrad.torch_internals.tracing import current_trace
from subgrad.torch_internals.transforms import let_numbers_be_wrapped

executors.EXECUTORS.extend((Native(), Jagged(), StraightThrough(), TieSharing(), OtherElements(), ForkJoin()))

BACKENDS = ("CPU", "CUDA", "XPU", "MPS", "HPU", "XLA", "Lazy", "Meta", "PrivateUse1", "PrivateUse2", "PrivateUse3")
LAYOUTS = ("NestedTensor", "Other")  # "Other" has those that no backend's key covers, as mkldnn
KEYS = tuple(f"Autograd{each}" for each in (*BACKENDS, *LAYOUTS))
STRONG_ZERO_KEYS = tuple(f"Autograd{each}" for each in ("CPU", "CUDA", "XPU", "MPS", "HPU", "XLA", "PrivateUse1"))
OPERATORS = tuple(operator(op) for op in dict.fromkeys((*KINKS.entrywise, *REPAIRS, *SLOPES)))
# Those that are not torch's, and their own kernels by key.
ADDED: dict[Operator, dict[str, Callable[..., Any]]] = {}

Needs = dict[int, tuple[bool, Convention]]  # whether conventions need a kernel, by their `id`
MOST = 1024  # conventions that are remembered


class Registered:
    """What lies over torch's own kernels. Given back as a whole, so that nothing that comes in between finds a part.

    Attributes:
        forms: the overloads that have a kernel of ours, with its key.
        originals: torch's own kernels, by key and overload.
        served: the conventions with all they need; None once everything but norms is registered.
        needs: for each kernel, which conventions need it.
        library: what holds the kernels of torch's operators.
        kept: the kernels once more, where calls may still return through them.
    """

    def __init__(self) -> None:
        self.forms: set[tuple[str, str]] = set()
        self.originals: dict[str, dict[str, Callable[..., Any]]] = {}
        self.served: set[Convention | None] = set()
        self.needs: list[Needs] = []
        self.library: torch.library.Library | None = None
        self.kept: list[Any] = []

    def destroy(self) -> None:
        """Put torch's own kernels back; once more, if that was interrupted."""
        if self.library is not None:
            destroy_library(self.library)
            for key, form in self.forms:
                uncache_dispatch(overload(form), getattr(DispatchKey, key))
            self.library = None


registered = Registered()
_given_back: list[Registered] = []
_other_libraries: dict[str, torch.library.Library] = {}  # of operators that are not torch's, by namespace
_fronts: dict[str, dict[str, Callable[[], None]]] = {}  # what lies over ours, if it is built, to be put there
# Once strong zeros are needed: torch's own kernels of operators without kinks, by overload and key.
_strong_zero_originals: dict[tuple[str, str], Callable[..., Any]] = {}
_has_strong_zeros = False  # whether all of these have one of ours
# Reentrant: a finaliser or a handler of signals, which Python may run at any line, may enter a convention.
_lock = threading.RLock()

# After so many calls with no convention in force torch's own kernels are put back: registering ours takes as long as
# thousands of calls. After each time more are waited for.
_patience = 4096
_idle = iter(range(_patience))

# Makes the fast paths of operators at one key: by form, a function that puts the path over the kernel registered there.
# Called before any kernel is registered, since a path keeps torch's own.
FastPath = Callable[[str, tuple[Operator, ...], Originals], Mapping[str, Callable[[], None]]]
fast_paths: list[FastPath] = []
# The same for kernels that only do something where an input is differentiated.
paths_around_python: list[Callable[[str, tuple[str, ...]], Mapping[str, Callable[[], None]]]] = []


def _nothing() -> None:
    pass


def install(convention: Convention | None = None) -> None:
    """Register the kernels that a convention needs, or all of them.

    No others: a kernel in Python costs microseconds even where it only calls torch's own. A second convention that
    needs more gets all, so that what is compiled by then is compiled once more at most twice; but for the norms, which
    are for conventions alone that are named after other frameworks.
    """
    global _idle
    _idle = iter(range(_patience))
    if convention in registered.served:
        return
    warn_where_torch_differs(convention)
    if convention is not None and convention.strong_zero and not _has_strong_zeros:
        _install_strong_zeros()
    with _lock:
        if convention is not None and not _is_lacking(convention):
            if len(registered.served) < MOST:
                registered.served.add(convention)
            return
        wanted = (convention, None) if registered.forms else (convention,)
        _prepare()
        guards.remember_unguarded_graphs()
        with _quietly():
            for key in registered.originals:
                for each in wanted:
                    _register(key, each)
        registered.served.update(wanted)


scopes.before_entered.append(install)


def _give_back() -> None:
    """No convention has been in force for thousands of calls: put torch's own kernels back, if nobody can need ours.

    Entering a convention registers them again, and compiles once more what was compiled meanwhile. They stay where a
    graph has a guard that says "none in force", since such graphs could not be told apart from those without a guard;
    where another thread of Python, or a backward around this call, may be about to call one; where derivatives of
    higher order need them, as with strong zeros; and where the C++ part lies over them, for good. Threads that never
    run Python, as of `torch.jit.fork`, are not seen: for them it is as where `use` registers kernels while they run.
    """
    global _idle, _patience, registered
    _idle = iter(range(_patience))
    is_alone = len(sys._current_frames()) == 1 and current_graph_task_id() == -1
    if not is_alone or guards.has_compiled() or _strong_zero_originals or ADDED or any(_fronts.values()):
        return
    with _lock:
        # Whoever enters a convention says so before looking into this: one of us sees the other.
        registered.served.clear()
        if not scopes.is_none_in_force():
            return
        # Calls that are not over, as the one that has come here, return through them.
        registered.kept = [torch.library.get_kernel(qualified(form), key) for key, form in tuple(registered.forms)]
        _given_back.append(registered)
        registered, _patience = Registered(), 4 * _patience
        _given_back[-1].destroy()


def _install_strong_zeros() -> None:
    """Register the kernels of operators without kinks whose slopes may not be finite; these stay."""
    global _has_strong_zeros
    with _lock:
        _prepare()
        let_numbers_be_wrapped()
        guards.remember_unguarded_graphs()
        ops = [op for op in map(overload_of, reaches()) if op not in OPERATORS]
        places = [(op, key) for op in ops for key in STRONG_ZERO_KEYS if is_differentiated_at(op.op, key)]
        if not _strong_zero_originals:
            found = {
                (form, key): taking_numbers(form, lambda form, key=key: torchs_kernel(form, key))
                for op, key in places
                for form in forms(op)
            }
            _strong_zero_originals.update(found)
        with _quietly():
            for op, key in places:
                for around in paths_around_python:
                    _fronts.setdefault(key, {}).update(around(key, forms(op)))
                for form in forms(op):
                    _put(op, form, strong_zero.kernel(op, form, _strong_zero_originals[form, key]), key)
        _has_strong_zeros = True


def ask_again() -> None:
    """After a setting that executors depend on has changed: register what conventions need now."""
    executors.forget()
    for each in registered.needs:
        each.clear()
    registered.served.intersection_update((None,))
    install(active())


def own_kernels(op: str) -> dict[str, Callable[..., Any]]:
    """The kernels of an operator that is not torch's, at the keys where it has a derivative."""
    return {key: torchs_kernel(op, key) for key in KEYS if has_autograd(op, key)}


def add(op: Operator, kept: dict[str, Callable[..., Any]]) -> None:
    """An operator that is not torch's has rows now: register its kernels, if those of others are registered already."""
    with _lock:
        ADDED[op] = kept
        registered.served.intersection_update((None,))
        if registered.forms:
            guards.remember_unguarded_graphs()
            with _quietly():
                for key, original in kept.items():
                    registered.originals[key][op.op] = original
                    _register_operator(op, key)
    guards.forget_unguarded_graphs()


@contextmanager
def _quietly() -> Iterator[None]:
    """Torch warns of a kernel that covers another one, which is what these are for."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r"(?s).*Overriding a previously registered kernel")
        yield


def _prepare() -> None:
    """Before the first kernel is registered: keep torch's own, all at once or, where this is interrupted, none."""
    if registered.originals:
        return
    cover_what_goes_past_kernels()
    for each in _given_back:
        each.destroy()
    forms = [form for op in OPERATORS for form in (op.op, op.in_place, *WITHOUT_INDICES.get(op.op, ())) if form]
    originals = {key: {form: torchs_kernel(form, key) for form in forms} for key in KEYS}
    for op, kept in ADDED.items():
        for key, original in kept.items():
            originals[key][op.op] = original
    fronts = {key: dict(cover(key, OPERATORS, originals[key])) for key in KEYS for cover in fast_paths}
    if not registered.originals:
        _fronts.update(fronts)
        registered.originals.update(originals)


@cache
def cover_what_goes_past_kernels() -> None:
    """Once per process: what is recomputed in backward, and what TorchScript differentiates by formulas of its own."""
    tie_checkpoints()
    # Its optimiser asks at each call, so that what it has optimised before is covered too.
    jit_set_profiling_mode(False)


def _is_lacking(convention: Convention) -> bool:
    """Whether a convention needs kernels that are not registered yet."""
    for op, every in (dict.fromkeys(OPERATORS, KEYS) | ADDED).items():
        keys = [key for key in every if (key, op.op) not in registered.forms]
        if keys and _is_needed(op, keys, convention):
            return True
    return False


def _is_needed(op: Operator, keys: Iterable[str], convention: Convention | None) -> bool:
    """Whether a convention may take what torch does not, or there is a faster way to the same."""
    if convention is None:
        return op.op not in SLOPES or op.op in REPAIRS
    if may_change(op, convention) or (convention.strong_zero and op.op in reaches()):
        return True
    # Pooling, which is joint, gains where ties share.
    return convention.chooses and not op.is_joint and any(executors.gain(op.op, key) for key in keys)


def _register(key: str, convention: Convention | None) -> None:
    for op in (*OPERATORS, *ADDED):
        is_new = (key, op.op) not in registered.forms and op.op in registered.originals[key]
        if is_new and _is_needed(op, (key,), convention):
            _register_operator(op, key)


def _register_operator(op: Operator, key: str) -> None:
    """The form after which it is called is the last, since `_is_lacking` looks for that one."""
    for form, kernel in reversed(_kernels(op, key).items()):
        _put(op, form, kernel, key)
        registered.forms.add((key, form))


def _put(op: Operator, form: str, kernel: Callable[..., Any], key: str) -> None:
    guards.keep_from_being_compiled(kernel)
    _library_of(op).impl(form.rpartition("::")[2], kernel, key, with_keyset=True, allow_override=True)
    _fronts.get(key, {}).get(form, _nothing)()
    # The Python dispatcher, which compiling uses, remembers who answered before.
    uncache_dispatch(overload(form), getattr(DispatchKey, key))


def _library_of(op: Operator) -> torch.library.Library:
    if is_torchs(op.op):
        if registered.library is None:
            registered.library = torch.library.Library("aten", "IMPL")
        return registered.library
    name = namespace(op.op)
    if name not in _other_libraries:
        _other_libraries[name] = torch.library.Library(name, "IMPL")
    return _other_libraries[name]


def _kernels(op: Operator, key: str) -> dict[str, Callable[..., Any]]:
    """The kernels of an operator for one key: of its functional form, its in-place form, and those on lists."""
    forms = [form for form in (op.op, op.in_place) if form is not None]
    kernels = {form: _kernel(op, form, key) for form in forms}
    kernels |= {form: _kernel_without_indices(op, form, key) for form in _without_indices(op, key)}
    return kernels | {form: foreach.kernel(op.op, form, torchs_kernel(form, key)) for form in foreach.forms(op.op)}


# Composites of torch's that return no indices, of which what they call makes 8 bytes an output.
WITHOUT_INDICES = {"max_pool2d_with_indices": ("max_pool1d", "max_pool2d"), "max_pool3d_with_indices": ("max_pool3d",)}


def _without_indices(op: Operator, key: str) -> tuple[str, ...]:
    """Where there is something to gain."""
    return WITHOUT_INDICES.get(op.op, ()) if executors.gain(op.op, key) else ()


def _kernel(op: Operator, form: str, key: str) -> Callable[..., Any]:
    """The kernel of one form: torch's own unless a convention in force needs another, and something a derivative."""
    originals = registered.originals[key]
    torchs_own = originals[form]
    needs: Needs = {}
    registered.needs.append(needs)

    def kernel(keyset: Any, *args: Any, **kwargs: Any) -> Any:
        if current_trace() is None:  # `guards.convention_of_call`, without the frames: all calls come here, for good
            entered = entered_here.get()
            convention = entered[-1].convention if entered else scopes.default
        else:
            convention = guards.convention_of_call(args)
        if not convention.interferes:
            if next(_idle, None) is None:
                _give_back()
            return torchs_own(keyset, *args, **kwargs)
        known = needs.get(id(convention)) or _learned(needs, op, key, convention)
        if not known[0] or not guards.is_differentiated(args):
            return torchs_own(keyset, *args, **kwargs)
        return executors.run(Call(op, form, originals, convention, keyset, args, kwargs))

    return kernel


def _learned(needs: Needs, op: Operator, key: str, convention: Convention) -> tuple[bool, Convention]:
    """Whether a convention needs a kernel; remembered by the kernel from then on."""
    if len(needs) >= MOST:
        needs.clear()
    return needs.setdefault(id(convention), (_is_needed(op, (key,), convention), convention))


def _kernel_without_indices(op: Operator, form: str, key: str) -> Callable[..., Any]:
    """The same for a composite of torch's that returns an operator's values and not its indices.

    Where a pass over a whole program runs, or a graph is traced, torch's own composite is left to call the operator,
    which these know.
    """
    original, planned = registered.originals[key][form], _kernel(op, form, key)

    def kernel(keyset: Any, *args: Any, **kwargs: Any) -> Any:
        is_left = guards.is_compiling() or current_pass.here.current is not None
        return (original if is_left else planned)(keyset, *args, **kwargs)

    return kernel
