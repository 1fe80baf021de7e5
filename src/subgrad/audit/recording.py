"""The recording of a run: a pass that counts, step by step, and reads its counts once a step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from types import CodeType, FrameType
from typing import Any

import torch
from torch import Tensor

from subgrad.apply import pass_kernels
from subgrad.apply.pass_kernels import PassCall
from subgrad.apply.source_line import user_frame
from subgrad.apply.torch_compile.guards import is_compiling
from subgrad.audit.call_site import Site
from subgrad.audit.counting import Found, NotLookedAt, Place, Sample, decades, differentiated, found, operators
from subgrad.audit.modules import Modules
from subgrad.audit.recomputing import Recomputed
from subgrad.audit.result import Count, Row, ordered
from subgrad.audit.switches import Switchboard
from subgrad.kinks.kink import user_name
from subgrad.torch_internals.autograd import current_graph_task_id

LONGEST = 4096  # counts in a series; then two steps become one
MOST = 4096  # samples that wait on their devices for the end of a step


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
        self._slots: dict[tuple[Key, tuple[Place, ...]], tuple[_Slot, ...]] = {}
        self._counts: list[tuple[tuple[_Slot, ...], str, Sequence[Tensor]]] = []
        self._samples: list[tuple[_Slot, Sample]] = []

    def run(self, rule: Any, call: PassCall) -> Any:
        # What formulas of backward call, while a graph is recorded of them, is not the program's.
        return call.run() if current_graph_task_id() != -1 else self.look(call)

    def look(self, call: PassCall) -> Any:
        """Run a call, and count what it meets."""
        names = differentiated(call)
        if not names or not self.is_on or is_compiling():  # what is traced does not run yet
            return call.run()
        frame = user_frame()
        site, operator = self.site(frame), user_name(call.op.op)
        try:
            met = found(call, names, self.ulps)
        except Exception as error:  # whatever looking runs into, the program goes on
            why = str(error) if isinstance(error, NotLookedAt) else f"{type(error).__name__}: {error}"
            self.miss(f"{operator} at {site} was not looked at: {why}")
            return call.run()
        code, line = (None, 0) if frame is None else (frame.f_code, frame.f_lineno)
        self._note((code, line, self.modules.path(), operator), site, met)
        if self.switches is None:
            return call.run()
        return self.switches.run(call, names, site, operator, met)

    def site(self, frame: FrameType | None) -> Site:
        key = (None, 0) if frame is None else (frame.f_code, frame.f_lineno)
        known = self._sites.get(key)
        if known is None:
            known = self._sites[key] = Site.of(frame)
        return known

    def miss(self, what: str) -> None:
        """Note what is not looked at, and so not covered by what is said of this step."""
        self.notes[what] = self.unseen[what] = self.missed[what] = None

    def fork(self) -> _Again | Recomputed | None:
        """For what a checkpoint calls again: counted then if autograd did not record it, and so it was not, before."""
        if not torch.is_grad_enabled():
            return _Again(self)
        return None if self.switches is None else Recomputed(self.switches)

    def _note(self, key: Key, site: Site, met: Found) -> None:
        slots = self._slots.get((key, met.places))
        if slots is None:
            slots = self._slots[key, met.places] = tuple(_Slot(site, key[2], key[3], each) for each in met.places)
        for slot, entries in zip(slots, met.entries, strict=True):
            slot.calls += 1
            slot.entries += entries
        self._counts.append((slots, "hits", met.hits))
        if met.near:
            self._counts.append((slots, "near", met.near))
        if met.sample is not None:
            self._samples.append((slots[0], met.sample))
            if len(self._samples) == MOST:
                self._read_samples()

    def _read_samples(self) -> None:
        pending, self._samples = self._samples, []
        for (slot, _), new in zip(pending, decades([sample for _, sample in pending]), strict=True):
            slot.distances = [a + b for a, b in zip(slot.distances, new, strict=True)] if slot.distances else new

    def close(self, step: int) -> bool:
        """Read all that was counted in a step, at once; whether there was anything."""
        pending, self._counts = self._counts, []
        numbers = read([count for *_, counts in pending for count in counts])
        for slots, what, _ in pending:
            for slot in slots:
                setattr(slot, what, getattr(slot, what) + next(numbers))
        self._read_samples()
        every = [slot for slots in self._slots.values() for slot in slots]
        met = [(slot, count) for slot in every if (count := slot.close(step)) is not None]
        self.last = _summary(met)
        return bool(met)

    def drop(self) -> None:
        """Forget what was counted since the last step ended."""
        met = [site for slots in self._slots.values() for site in {slot.site for slot in slots if slot.calls}]
        if met:
            lines = ", ".join(dict.fromkeys(map(str, met)))
            self.notes[f"after the last step, with no backward after it, nothing is counted: {lines}"] = None
        self._counts, self._samples = [], []
        for slots in self._slots.values():
            for slot in slots:
                slot.calls = slot.entries = slot.hits = slot.near = 0

    def rows(self) -> tuple[Row, ...]:
        found: dict[Any, Row] = {}
        for row in (slot.row() for slots in self._slots.values() for slot in slots if slot.series):
            found[row.key] = found[row.key].merged(row) if row.key in found else row
        return ordered(found.values())


@dataclass(frozen=True)
class _Again:
    """The recording, in what a checkpoint calls in backward."""

    recording: Recording
    rules = Recording.rules

    def run(self, rule: Any, call: PassCall) -> Any:
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


def read(counts: list[Tensor]) -> Iterator[int]:
    """Counts from their devices, one transfer from each, all in one row."""
    devices = list(dict.fromkeys(count.device for count in counts))
    if len(devices) == 1:
        return iter(torch.hstack(counts).tolist())
    found = {device: read([count for count in counts if count.device == device]) for device in devices}
    return (next(found[count.device]) for count in counts for _ in range(count.numel()))
