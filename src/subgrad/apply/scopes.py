"""Which convention is in force here: one default for the process, and scoped uses per thread or task."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from weakref import WeakSet

from subgrad.apply.recorded_blocks import RecordedBlock
from subgrad.apply.traced import is_recorded_to_run, tracer_at_work, warn_if_recorded
from subgrad.conventions import Convention
from subgrad.torch_internals.tracing import current_trace


class Scope:
    """One entered and not yet left use of a convention."""

    recorded: tuple[RecordedBlock, ...] = ()  # what torch.fx records under it, as often as it is entered

    def __init__(self, convention: Convention):
        self.convention = convention

    def __enter__(self) -> Convention:
        tracer = tracer_at_work()
        if tracer is None:
            warn_if_recorded(self.convention)
        else:
            self.recorded = (*self.recorded, RecordedBlock(tracer, self.convention))
        entered = Entered(self)  # known before kernels are asked for, so that none are given back from here on
        if self.convention.interferes and not is_recorded_to_run():  # there nothing is differentiated
            for prepare in before_entered:
                prepare(self.convention)
        outer = _entered()
        try:
            _put((*outer, entered))
        except BaseException:  # as Ctrl-C raises: the block is not entered, so that nothing would leave it
            _put(outer)
            raise
        return self.convention

    def __exit__(self, *exception: object) -> None:
        found: list[Entered] = []
        try:
            self._leave(found)
        except BaseException:  # as Ctrl-C raises
            self._leave(found)
            raise
        if self.recorded:
            *others, block = self.recorded
            self.recorded = tuple(others)
            block.close()

    def _leave(self, found: list[Entered]) -> None:
        """Once, however often it is tried: what is left is ``found`` first.

        Wherever it stands: generators and exit stacks may leave in another order than they entered.
        """
        entered = _entered()
        if not found:
            found.extend([each for each in entered if each.scope is self][-1:])
        if found:
            _put(tuple([each for each in entered if each is not found[0]]))


class Entered:
    """One entering of a scope. It lives as long as a context holds it: this one, or a copy, as tasks have."""

    __slots__ = ("__weakref__", "convention", "scope")

    def __init__(self, scope: Scope):
        self.scope, self.convention = scope, scope.convention
        _anywhere.add(self)


_anywhere: WeakSet[Entered] = WeakSet()  # in all contexts
# The scopes entered here, innermost last. New threads start with none, tasks with those of their creator.
entered_here: ContextVar[tuple[Entered, ...]] = ContextVar("subgrad_scopes", default=())
before_entered: list[Callable[[Convention], None]] = []  # callbacks, run before a convention that interferes is entered
default = Convention("torch")  # of the process
when_changed: list[Callable[[], None]] = []  # callbacks, run after the convention in force has changed


def _entered() -> tuple[Entered, ...]:
    """The scopes of this thread or task; while a function is compiled, those that its own code has entered."""
    trace = current_trace()
    return entered_here.get() if trace is None else getattr(trace, "subgrad_scopes", ())


def _put(entered: tuple[Entered, ...]) -> None:
    trace = current_trace()
    if trace is None:
        entered_here.set(entered)
        _tell()
    else:  # a trace that fails takes its scopes with it
        trace.subgrad_scopes = entered  # type: ignore[attr-defined]


def active() -> Convention:
    """The convention in force here: the innermost ``use`` of this thread or task, else the process default.

    >>> import subgrad
    >>> with subgrad.use("min-norm"):
    ...     subgrad.active()
    Convention('min-norm')
    """
    entered = _entered()
    return entered[-1].convention if entered else around()


def around() -> Convention:
    """The same, but for scopes that a function being compiled has entered itself."""
    entered = entered_here.get()
    return entered[-1].convention if entered else default


def leave_innermost() -> None:
    """Leave the scope that the code being compiled has entered last."""
    entered = _entered()
    if not entered:  # cut in two, as DDP's optimizer does, and each part traced alone
        raise RuntimeError(
            "The graph of a compiled function was split inside its `with subgrad.use(...)`. Put the `with` around the "
            "call of the compiled function."
        )
    _put(entered[:-1])


def leave_all() -> None:
    """Leave all scopes that the code being compiled has entered."""
    _put(())


def is_chosen_inside() -> bool:
    """Whether the code being compiled has entered a scope itself, so that its gradient depends on none around it."""
    return current_trace() is not None and bool(_entered())


def is_none_in_force() -> bool:
    """Whether no convention is in force in any thread or task, nor in any context that may be entered later."""
    return not default.interferes and not _anywhere


def set_process_default(convention: Convention) -> None:
    global default
    default = convention
    _tell()


def _tell() -> None:
    for tell in when_changed:
        tell()
