"""The audit of a run: what is put in place around unchanged training code, and taken away again."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook

from subgrad.apply.current_pass import Pass, here
from subgrad.apply.scopes import active
from subgrad.apply.source_line import user_frame
from subgrad.apply.torch_compile import guards
from subgrad.audit import graphs
from subgrad.audit.attribution import Graph, effects
from subgrad.audit.backward import INNER, KEEP, Backward, tell_first
from subgrad.audit.call_site import Site
from subgrad.audit.effects import Effect
from subgrad.audit.modules import Modules
from subgrad.audit.nonfinite.armed import Armed
from subgrad.audit.nonfinite.finite import reached
from subgrad.audit.nonfinite.result import Taken
from subgrad.audit.parameters import ends, named
from subgrad.audit.recomputing import why_walked_once
from subgrad.audit.recording import Recording
from subgrad.audit.result import Audit
from subgrad.audit.steps import Steps
from subgrad.audit.switches import Switchboard
from subgrad.conventions import Convention, several

EVERY = 10  # steps, of which one is recorded: it may take twice as long and cost a tenth (benchmarks/audit.py)
# Called after every step with the number of it, and after those that were recorded with what was met.
Listener = Callable[[int, Mapping[str, float]], None]


class _Running(threading.local):
    session: Session | None = None


_running = _Running()


class Session:
    """Watch unchanged eager training code: which of its lines land on kinks, and how often.

    >>> import torch, subgrad
    >>> x = torch.tensor([0.0, 1.0, 6.0], requires_grad=True)
    >>> with subgrad.audit() as audit:
    ...     loss = x.clamp(0, 6).sum()
    >>> [(row.operator, row.kink, row.total.hits, row.total.entries) for row in audit.rows]
    [('clamp', 'self == max', 1, 3), ('clamp', 'self == min', 1, 3)]

    Losses, gradients and weights are those of the run without it, to the bit. What was recorded, also when something is
    raised inside, is read from it as from an `Audit`.

    Args:
        model: for the names of its modules and parameters; others are named after their classes.
        compare: two conventions or more, whose gradients are held against each other whenever ``backward`` is called in
            a compared step. The run goes on with the one in force.
        nonfinite: see every step in which a gradient becomes infinite or NaN, and say which line made it so. Kinks are
            counted beside it only if ``every`` or ``compare`` is given.
        every: record one step of so many, 10 if not given, the first one included, and one for each optimizer that
            joins later. A step ends with ``optimizer.step()``, with several optimizers when each of them has stepped,
            or where ``audit.step()`` is called.
        compare_every: compare in one step of so many; ten times ``every`` if not given.
        compare_grad: compare where ``torch.autograd.grad`` is called as well, as tests and physics-informed losses do.
        ulps: count also what is within so many units in the last place of a kink.
        listeners: called after every step with its number and what it met, if it was recorded; see `subgrad.loggers`.
    """

    def __init__(
        self,
        model: nn.Module | None = None,
        *,
        compare: Sequence[str | Convention] = (),
        nonfinite: bool = False,
        every: int | None = None,
        compare_every: int | None = None,
        compare_grad: bool = False,
        ulps: int = 0,
        listeners: Iterable[Listener] = (),
    ):
        self.compared = several("compare", compare)
        counts = every is not None or not nonfinite or bool(self.compared)
        self.every = (EVERY if every is None else _whole("every", every, 1)) if counts else 0
        self.compare_every = 10 * self.every if compare_every is None else _whole("compare_every", compare_every, 1)
        self.compare_grad = compare_grad
        self.ulps = _whole("ulps", ulps, 0)
        self.listeners = list(listeners)
        self._modules = Modules(model)
        self._armed = Armed(self._modules, self._names) if nonfinite else None
        self._recording = Recording(self._modules, ulps)
        self._effects: list[Effect] = []
        self._steps, self._recorded = 0, []
        self._goes_back = False  # whether backward was called, in the step that is running
        self._is_training = False  # and in one before it
        self._optimizers = Steps()
        self.looked_at = 0  # steps of optimizers
        self._thread = 0
        self._undo: list[Callable[[], None]] = []
        self._convention = "torch"
        self._pass: Pass | None = None  # in force in the step that is running

    # Entering and leaving.

    def __enter__(self) -> Session:
        if _running.session is not None:
            raise RuntimeError("An audit is running here already: one at a time in each thread.")
        if self.every:
            Recording.install()
        _running.session = self
        self._thread, self._convention = threading.get_ident(), str(active())
        hook = register_optimizer_step_post_hook(self._after_step)
        self._undo.append(hook.remove)
        self._undo.append(tell_first(self._before_backward, self._after_backward))
        self._undo.append(lambda: here.hold(False))
        self._begin()
        return self

    def __exit__(self, *exception: object) -> None:
        try:
            if not any(exception) and self._is_training and not self._goes_back:
                self._recording.drop()  # such as a loss that is printed in the end; a step that failed is one
            self._close(is_last=True)
        finally:
            self._suspend()
            _running.session = None
            while self._undo:
                self._undo.pop()()

    def _begin(self) -> None:
        """A step begins: recorded or not."""
        self._optimizers.begin()
        if not self.every and self._pass is None and not (self._armed and self._armed.wants_lines):
            return
        self._recording.missed.clear()
        is_owed = self._optimizers.are_owed
        is_recorded = bool(self.every) and (is_owed or self._steps % self.every == 0)
        is_compared = bool(self.compared) and (is_owed or self._steps % self.compare_every == 0)
        is_on = is_recorded or is_compared
        wanted: Pass | None = self._recording if is_on else None
        if self._armed is not None:
            wanted = self._armed.noting(wanted)
        if wanted is not self._pass or not is_on:
            self._suspend()
        self._recording.switches = Switchboard(self.compared) if is_compared else None
        self._recording.is_on, self._pass = is_on, wanted
        if here.current is None and wanted is not None:
            here.current = wanted

    def _suspend(self) -> None:
        self._recording.is_on = False
        self._recording.switches = None
        if here.current is self._pass:
            here.current = None
        self._pass = None
        # A call costs less without the key. But a compiled function knows the keys that were on, and would be compiled
        # once more where they change.
        here.hold(guards.has_compiled())

    def _close(self, is_last: bool = False) -> None:
        """Read what the step has met."""
        if self._armed is not None:
            self._safely(lambda armed: armed.close(self._steps, is_last))
        if not self._recording.is_on:
            return
        try:
            met = self._recording.close(self._steps)
        except RuntimeError as error:  # a device that failed, as the program will say itself
            self._recording.miss(f"step {self._steps} could not be read: {error}")
            return
        if met:
            self._recorded.append(self._steps)

    @property
    def has_ended(self) -> bool:
        return not self._undo

    # Steps.

    def step(self) -> None:
        """A step ends here. Called for you when the optimizers have stepped, each of those that take part."""
        self._close()
        met = self._recording.last if self._steps in self._recorded[-1:] else {}
        self._steps += 1
        self._is_training, self._goes_back = self._is_training or self._goes_back, False
        self._begin()
        for listener in self.listeners:
            listener(self._steps - 1, met)

    def _after_step(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        if threading.get_ident() != self._thread:
            return
        if self._armed is not None:
            self._armed.add(optimizer)
        is_seen = self._recording.is_on and (not self.compared or self._recording.switches is not None)
        if self._optimizers.ends_with(optimizer, is_seen):
            self.step()

    # Gradients that are not finite.

    def _after_backward(self, run: Backward, given: Any) -> None:
        self._safely(lambda armed: armed.after(run, given or ()))

    def look_at(self, optimizer: Optimizer) -> None:
        """What an optimizer is about to take a step with. This waits for devices."""
        self.looked_at += 1
        parameters = [each for group in optimizer.param_groups for each in group["params"]]
        named = self._names(parameters)
        bad = reached((name, each.grad) for name, each in named.items() if each.grad is not None)
        if not bad or self._armed is None:
            return
        self._safely(lambda armed: armed.settle())
        shapes = ", ".join(dict.fromkeys(str(list(named[each.parameter].shape)) for each in bad))
        name = type(optimizer).__name__
        self._armed.take(Taken(Site.of(user_frame()), name, self.looked_at, len(bad), len(parameters), shapes), bad)

    def _safely(self, look: Callable[[Armed], bool | None]) -> bool | None:
        """Whatever looking runs into, the program goes on."""
        if self._armed is None:
            return None
        try:
            return look(self._armed)
        except Exception as error:
            self._recording.miss(f"gradients were not looked at for infinity and NaN: {type(error).__name__}: {error}")
            return None

    def _names(self, tensors: Sequence[Tensor]) -> dict[str, Tensor]:
        return named(tensors, self._modules.parameters())

    # Gradients under several conventions.

    def _before_backward(self, run: Backward) -> bool | str:
        """Look at the graph of a backward that is about to run; in a step that compares, compare. It runs always."""
        self._goes_back = True
        if self._armed is not None and self._armed.is_walking:
            return True
        keeps = self._safely(lambda armed: armed.before(run))
        if self._recording.is_on:
            site, was = self._recording.site(user_frame()), here.current
            self._recording.is_on, here.current = False, None
            try:
                self._look_at(run, site)
            except Exception as error:  # what cannot be walked by us; the program's own backward still can
                self._recording.miss(f"gradients at {site} could not be compared: {_first_line(error)}")
            finally:
                self._recording.is_on, here.current = True, was
        return KEEP if keeps else True

    def _look_at(self, run: Backward, site: Site) -> None:
        recording, board = self._recording, self._recording.switches
        if not all(isinstance(each, Tensor) for each in run.tensors):
            return recording.miss(f"gradients at {site} could not be compared: they begin at edges of a graph")
        walked = graphs.nodes(run.tensors)
        others = graphs.not_of_torch(walked)
        hidden = graphs.compiled_code(others)
        for words in hidden:
            recording.miss(f"gradients at {site} depend on {words}")
        for words in graphs.on_lists(walked):
            recording.miss(f"in the graph of {site}, {words}")
        for name in graphs.own_gradients(others):
            recording.notes[f"{name} has a backward of its own: kinks inside it are not counted"] = None
        if board is None:
            return
        if (run.accumulates or self.compare_grad) and not hidden:
            self._compare(run, site, walked, board)
        if board.lines and (run.is_recorded if self.compare_grad else run.is_inner):
            recording.miss(INNER.format(site))

    def _compare(self, run: Backward, site: Site, walked: list[Any], board: Switchboard) -> None:
        if self._modules.are_sharded():  # whose backward gathers, reduces and frees, once
            return self._recording.miss("gradients of sharded parameters are not compared")
        reason = why_walked_once(walked, board)
        if reason is not None:
            return self._recording.miss(f"gradients at {site} could not be compared: {reason}")
        for words in graphs.unwatched(walked, board.made):
            self._recording.miss(f"in the graph of {site}, {words}")
        parameters, unseen = self._names(ends(run, walked)), tuple(self._recording.missed)
        graph = Graph(run.tensors, run.cotangents, parameters, board, walked, unseen)
        self._effects += effects(graph, self.compared, self._steps, site)

    # What was found.

    @property
    def result(self) -> Audit:
        """What was found so far."""
        unseen = self._optimizers.unseen if self.every else []
        never = [f"no step of {name} was looked at; every=1 looks at all" for name in unseen]
        return Audit(
            rows=self._recording.rows(),
            effects=tuple(self._effects),
            steps=max(self._steps, self._recorded[-1] + 1 if self._recorded else 0),
            recorded=tuple(self._recorded),
            every=self.every,
            ulps=self.ulps,
            convention=self._convention,
            torch=str(torch.__version__),
            notes=(*self._recording.notes, *never),
            unseen=(*self._recording.unseen, *never),
            compared=tuple(map(str, self.compared)),
            nonfinite=() if self._armed is None else self._armed.findings,
            is_watched=self._armed is not None,
        )

    def gather(self) -> Audit:
        """The audits of all ranks of the default process group, merged; the same on each of them."""
        import torch.distributed as dist

        if not (dist.is_available() and dist.is_initialized()):
            return self.result
        everyone: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(everyone, self.result.to_json())
        return Audit.merge(map(Audit.from_json, everyone))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self.result, name)

    def __str__(self) -> str:
        return str(self.result)

    def __repr__(self) -> str:
        return repr(self.result)

    def _repr_html_(self) -> str:
        return self.result._repr_html_()


def _first_line(error: Exception) -> str:
    """Of what may go on for a page."""
    return str(error).partition("\n")[0] or type(error).__name__


def _whole(name: str, number: int, least: int) -> int:
    if isinstance(number, bool) or not isinstance(number, int) or number < least:
        raise ValueError(f"{name}={number!r}: give a whole number from {least} on.")
    return number
