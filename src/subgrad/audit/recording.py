"""The recording of a run: a pass that counts, step by step, and reads its counts once a step."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from types import CodeType
from typing import Any

import torch
from torch import Tensor

from subgrad.apply import pass_kernels
from subgrad.apply.pass_kernels import Call
from subgrad.apply.source_line import user_frame
from subgrad.apply.torch_compile.guards import is_compiling
from subgrad.audit.call_site import Site
from subgrad.audit.counting import Found, NotLookedAt, Place, differentiated, found, operators
from subgrad.audit.modules import Modules
from subgrad.audit.recomputing import Recomputed
from subgrad.audit.result import Count, Row, ordered
from subgrad.audit.switches import Switchboard
from subgrad.kinks.kink import user_name
from subgrad.torch_internals.autograd import current_graph_task_id

LONGEST = 4096  # counts in a series; then two steps become one


@dataclass
class _Slot:
    """One row of the audit to be."""

    site: Site
    module: str
    operator: str
    place: Place
    series: list[Count] = field(default_factory=list)
    distances: list[int] = field(default_factory=list)
    calls: int = 0
    entries: int = 0
    hits: int = 0
    near: int = 0

    def close(self, step: int) -> Count | None:
        """A step is over: what it met."""
        met = Count(step, self.calls, self.entries, self.hits, self.near) if self.calls else None
        if met:
            self.series.append(met)
        if len(self.series) > LONGEST:
            pairs = zip(self.series[::2], self.series[1::2], strict=False)
            self.series = [one + other for one, other in pairs] + self.series[len(self.series) // 2 * 2 :]
        self.calls = self.entries = self.hits = self.near = 0
        return met

    def row(self) -> Row:
        place = self.place
        return Row(
            self.site,
            self.module,
            self.operator,
            place.kind,
            place.kink,
            place.set,
            tuple(self.series),
            tuple(self.distances),
        )


Key = tuple[CodeType | None, int, str, str]


class Recording:
    """A pass that runs every call as it is, and counts what it meets.

    Attributes:
        rules: the operators that are looked at.
        modules: which module is running.
        switches: in steps whose gradients are compared, the calls whose elements can be switched.
        notes: what was not looked at, and why, and what else there is to know.
        unseen: those of them that say what was not looked at; ``missed``, in the step that is running.
    """

    rules = dict.fromkeys(operators(), True)

    @classmethod
    def install(cls) -> None:
        """Before a run: kernels for all that is looked at, with what has been added to the table."""
        cls.rules.update(dict.fromkeys(operators(), True))
        pass_kernels.install(cls.rules)

    def __init__(self, modules: Modules, ulps: int):
        self.modules, self.ulps = modules, ulps
        self.switches: Switchboard | None = None
        self.notes: dict[str, None] = {}
        self.unseen: dict[str, None] = {}
        self.missed: dict[str, None] = {}
        self.is_on = True
        self.last: dict[str, float] = {}
        self._sites: dict[tuple[CodeType | None, int], Site] = {}
        self._slots: dict[tuple[Key, Place], _Slot] = {}
        self._pending: list[tuple[_Slot, str, Tensor]] = []

    def run(self, rule: Any, call: Call) -> Any:
        # What formulas of backward call, while a graph is recorded of them, is not the program's.
        return call.run() if current_graph_task_id() != -1 else self.look(call)

    def look(self, call: Call) -> Any:
        """Run a call, and count what it meets."""
        names = differentiated(call)
        if not names or not self.is_on or is_compiling():  # what is traced does not run yet
            return call.run()
        frame = user_frame()
        code, line = (None, 0) if frame is None else (frame.f_code, frame.f_lineno)
        site = self._sites.get((code, line)) or self._sites.setdefault((code, line), Site.of(frame))
        operator = user_name(call.op.op)
        try:
            met = found(call, names, self.ulps)
        except Exception as error:  # whatever looking runs into, the program goes on
            why = str(error) if isinstance(error, NotLookedAt) else f"{type(error).__name__}: {error}"
            self.miss(f"{operator} at {site} was not looked at: {why}")
            return call.run()
        self._note((code, line, self.modules.path(), operator), site, met)
        if self.switches is None:
            return call.run()
        return self.switches.run(call, names, site, operator, met)

    def miss(self, what: str) -> None:
        """Note what is not looked at, and so not covered by what is said of this step."""
        self.notes[what] = self.unseen[what] = self.missed[what] = None

    def fork(self) -> _Again | Recomputed | None:
        """For what a checkpoint calls again: counted then if autograd did not record it, and so it was not, before."""
        if not torch.is_grad_enabled():
            return _Again(self)
        return None if self.switches is None else Recomputed(self.switches)

    def _note(self, key: Key, site: Site, met: Iterable[Found]) -> None:
        for each in met:
            slot = self._slots.get((key, each.place))
            if slot is None:
                slot = self._slots[key, each.place] = _Slot(site, key[2], key[3], each.place)
            slot.calls += 1
            slot.entries += each.entries
            self._pending.append((slot, "hits", each.hits))
            if each.near is not None:
                self._pending.append((slot, "near", each.near))
            if each.beyond is not None:
                self._pending.append((slot, "beyond", each.beyond))

    def close(self, step: int) -> bool:
        """Read all that was counted in a step, at once; whether there was anything."""
        pending, self._pending = self._pending, []
        for (slot, what, _), numbers in zip(pending, read([count for *_, count in pending]), strict=True):
            if what == "beyond":
                away = [*numbers, 0]
                bins = [one - other for one, other in pairwise(away)]
                slot.distances = [a + b for a, b in zip(slot.distances or [0] * len(bins), bins, strict=True)]
            else:
                setattr(slot, what, getattr(slot, what) + numbers[0])
        met = [(slot, count) for slot in self._slots.values() if (count := slot.close(step)) is not None]
        self.last = _summary(met)
        return bool(met)

    def rows(self) -> tuple[Row, ...]:
        found: dict[Any, Row] = {}
        for row in (slot.row() for slot in self._slots.values() if slot.series):
            found[row.key] = found[row.key].merged(row) if row.key in found else row
        return ordered(found.values())


@dataclass(frozen=True)
class _Again:
    """The recording, in what a checkpoint calls in backward."""

    recording: Recording
    rules = Recording.rules

    def run(self, rule: Any, call: Call) -> Any:
        return self.recording.look(call)

    def fork(self) -> _Again:
        return self


def _summary(met: list[tuple[_Slot, Count]]) -> dict[str, float]:
    """What loggers are told of a step."""
    hits, entries = sum(count.hits for _, count in met), sum(count.entries for _, count in met)
    told: dict[str, float] = {"hits": hits, "share": hits / entries if entries else 0.0}
    for slot, count in met:
        name = f"hits/{slot.module or slot.site}"
        told[name] = told.get(name, 0) + count.hits
    return told


def read(counts: list[Tensor]) -> list[list[int]]:
    """Counts from their devices, one transfer from each."""
    found: dict[int, list[int]] = {}
    for device in {count.device for count in counts}:
        here = [(index, count) for index, count in enumerate(counts) if count.device == device]
        numbers = iter(torch.cat([count.reshape(-1) for _, count in here]).tolist())
        for index, count in here:
            found[index] = [next(numbers) for _ in range(count.numel())]
    return [found[index] for index in range(len(counts))]
