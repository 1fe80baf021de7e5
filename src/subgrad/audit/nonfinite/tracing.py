"""From a recorded walk of a graph to the line that made its gradients infinite or NaN, and what lies around it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from subgrad.apply.graph_nodes import reached
from subgrad.audit.call_site import Site
from subgrad.audit.nonfinite import advice, entries, first_values, masks
from subgrad.audit.nonfinite.entries import Entry
from subgrad.audit.nonfinite.lines import Lines, operator_of
from subgrad.audit.nonfinite.result import (
    COTANGENT,
    INFINITE,
    NAN,
    OVERFLOW,
    SLOPE,
    SUM,
    UNKNOWN,
    VALUE,
    Line,
    Nonfinite,
    Reached,
)
from subgrad.audit.nonfinite.walks import Record, Walk
from subgrad.torch_internals.autograd import sequence_nr

MOST = 8  # lines that are told of one walk


@dataclass(frozen=True)
class Around:
    """What a walk was of.

    Attributes:
        lines: of its graph.
        site: that called backward.
        step: of the audit.
        reached: the parameters whose gradients are not finite.
        is_value_finite: what backward was called on.
        is_given_finite: the gradients that it was given.
    """

    lines: Lines
    site: Site
    step: int
    reached: tuple[Reached, ...]
    is_value_finite: bool = True
    is_given_finite: bool = True


def findings(walk: Walk, around: Around) -> list[Nonfinite]:
    """Why gradients of a walk are not finite: a finding for each line that made them so."""
    became = NAN if any(each.became == NAN for each in around.reached) else INFINITE
    start = Nonfinite(
        around.step, UNKNOWN, became, around.site, around.reached, is_whole=walk.is_whole, last=around.step
    )
    if not around.is_given_finite:
        return [replace(start, kind=COTANGENT)]
    trace = _Trace(walk, around)
    found: dict[Any, Nonfinite] = {}
    for origin in walk.records:
        if any(origin.is_bad) and origin.is_given_finite and trace.arrives(origin):
            one = trace.finding(origin, start)
            found.setdefault(one.key, one)
            if len(found) == MOST:
                break
    if not found:
        added = trace.added_up(start)
        value = trace.first_value(walk.records) if not around.is_value_finite else None
        one = added or replace(start, kind=start.kind if around.is_value_finite else VALUE, value=value)
        return [replace(one, advice=advice.of(one, ()))]
    return list(found.values())


class _Trace:
    def __init__(self, walk: Walk, around: Around):
        self.records, self.around, self.lines = walk.records, around, around.lines
        self._by_node = {record.node: record for record in walk.records}
        self._users: dict[Any, list[tuple[Record, int]]] = {}
        for record in walk.records:
            for place, (node, _) in enumerate(record.node.next_functions[: len(record.gradients)]):
                self._users.setdefault(node, []).append((record, place))

    # The way of what is not finite, from a line to the parameters.

    def _behind(self, record: Record) -> Iterator[tuple[Any, int]]:
        for place, (node, _) in enumerate(record.node.next_functions[: len(record.gradients)]):
            if record.is_bad[place] and node is not None:
                yield node, place

    def _followed(self, origin: Record) -> tuple[list[Record], bool]:
        """The records that it reaches, in the order of the walk, and whether it arrives at an end of the walk."""
        seen, ahead, arrives = {id(origin)}, [origin], False
        while ahead:
            for node, _ in self._behind(ahead.pop()):
                record = self._by_node.get(node)
                arrives = arrives or record is None
                if record is not None and id(record) not in seen:
                    seen.add(id(record))
                    ahead.append(record)
        return [each for each in self.records if id(each) in seen], arrives

    def arrives(self, origin: Record) -> bool:
        return self._followed(origin)[1]

    # One line.

    def finding(self, origin: Record, start: Nonfinite) -> Nonfinite:
        place = self._place(origin)
        gradient = origin.gradients[place]
        assert gradient is not None
        entry = entries.first_bad(gradient) or ()
        line = self.line(origin, place, entry)
        at, cotangent = self._cotangent(origin, entry, gradient.shape)
        became = entries.number(gradient, entry)
        is_zero = cotangent == 0
        found = replace(
            start,
            kind=self._kind(origin, place, entry),
            line=line,
            cotangent="" if cotangent is None else entries.text(cotangent),
            gradient=entries.text(became),
            nan_line=line if became != became else self._where_nan(origin),
        )
        if is_zero and became != became:
            zero = masks.zeroing(origin.node, at, self._users)
            if zero is not None:
                node, place_of_zero, is_mask = zero
                found = replace(found, **{"mask" if is_mask else "zero": self.lines.line(node, place_of_zero)})
        found = replace(found, value=self._value(origin, line))
        return replace(found, advice=advice.of(found, self._made_of(origin.node)))

    def _place(self, origin: Record) -> int:
        """The operand: one whose gradient goes on to a parameter."""
        bad = [place for place, is_bad in enumerate(origin.is_bad) if is_bad]
        on = [place for _, place in self._behind(origin)]
        return (on or bad)[0]

    def _kind(self, origin: Record, place: int, entry: Entry) -> str:
        if not self.around.is_value_finite:
            return VALUE
        unit = None if origin.unit is None else origin.unit[place]
        if unit is None or unit.shape != origin.gradients[place].shape:  # type: ignore[union-attr]
            return SLOPE
        return OVERFLOW if bool(unit[entry].isfinite()) else SLOPE

    def line(self, record: Record, place: int, entry: Entry) -> Line:
        gradient = record.gradients[place]
        assert gradient is not None
        kept = entries.inputs(operator_of(record.node), record.node, record.saved, entry, gradient.shape)
        return self.lines.line(record.node, entry, tuple(kept.items()))

    def _cotangent(self, origin: Record, entry: Entry, of: torch.Size) -> tuple[Entry | None, Any]:
        given = [each for each in origin.cotangents if each is not None]
        if len(given) != 1 or origin.is_summed or operator_of(origin.node) in masks.MOVED:
            return None, None
        at = entries.of_result(origin.node, entry, of, given[0])
        return at, None if at is None else entries.number(given[0], at)

    def _value(self, origin: Record, line: Line) -> Line | None:
        """What was not finite before there was a gradient."""
        is_bad = {"nan", "inf", "-inf"} & {value for _, value in line.inputs} or first_values.is_made_here(origin)
        if self.around.is_value_finite and not is_bad:
            return None
        return self.first_value(None if self.around.is_value_finite else self.records, origin)

    def first_value(self, among: Sequence[Record] | None, origin: Record | None = None) -> Line | None:
        """As the forward has noted it, or as nodes have saved it: of all, or of those that lead to one."""
        nodes = self.lines.nodes if among is not None or origin is None else reached([origin.node])
        marks = [(sequence_nr(node), self.lines.mark(node)) for node in nodes if node.next_functions]
        valued = [mark for _, mark in sorted(marks, key=lambda each: each[0]) if mark is not None and mark.value]
        source = next((mark.value for mark in valued if mark.is_source), None)
        others = () if self.around.is_value_finite else [mark.value for mark in valued]
        records = [record for record in (self._by_node.get(node) for node in nodes) if record is not None]
        return source or first_values.first(records, self.lines) or next(iter(others), None)

    # Where infinity becomes NaN.

    def _where_nan(self, origin: Record) -> Line | None:
        followed, _ = self._followed(origin)
        for record in followed[1:]:
            given = any(each is not None and bool(each.isnan().any()) for each in record.cotangents)
            if given:  # infinite gradients of both signs, from several uses
                return self.lines.line(record.node)
            for node, place in self._behind(record):
                gradient = record.gradients[place]
                assert gradient is not None
                if node is not None and bool(gradient.isnan().any()):
                    return self.line(record, place, entries.first_bad(gradient) or ())
        return None

    # What no single line has made.

    def added_up(self, start: Nonfinite) -> Nonfinite | None:
        """Finite gradients of several uses whose sum is not."""
        for record in self.records:
            users = [user for user, _ in self._users.get(record.node, ())]
            if users and not record.is_given_finite and not any(any(user.is_bad) for user in users):
                return replace(start, kind=SUM, line=self.lines.line(record.node))
        return None

    def _made_of(self, node: Any) -> tuple[str, ...]:
        """The operators before an operator, the nearest first, along its operands in turn."""
        found: list[str] = []
        ahead = deque((each, 1) for each, _ in node.next_functions)
        while ahead:
            each, depth = ahead.popleft()
            if each is not None and each.next_functions and depth <= 3:
                found.append(operator_of(each))
                ahead.extend((other, depth + 1) for other, _ in each.next_functions)
        return tuple(found)
