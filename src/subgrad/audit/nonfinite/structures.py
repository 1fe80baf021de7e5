"""The lines of a graph's nodes, as they were noted in a step whose graph was the same.

To note the line of every call costs as much as a small call does. A training makes the same graph step by step: the
same operators, wired in the same way, of tensors of as many dimensions and of the same parameters. Lines are noted in
the first step, after a graph that is new, and now and then; where a gradient goes wrong in another step, they are those
of its twin. A graph without a twin may have calls like those of others, of the same operators around them and of the
same parameters, that were all made in one line: that line is likely theirs too, and said to be no more than that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from subgrad.audit.nonfinite.noting import Mark, mark_of
from subgrad.torch_internals.autograd import dims_of_results, sequence_nr

MOST = 16  # graphs whose lines are kept


class Structures:
    """The graphs whose lines are known."""

    def __init__(self) -> None:
        self._known: dict[Any, dict[int, Mark | None]] = {}
        self._alike: dict[Any, Mark | None] = {}  # by what lies around a call; None where lines differ

    def learn(self, nodes: Sequence[Any]) -> None:
        """Keep the lines of a graph in which they were noted. Where a twin had others, that line is not known."""
        ordered = _ordered(nodes)
        found = {place: mark for place, node in enumerate(ordered) if (mark := mark_of(node)) is not None}
        wiring = _wiring(ordered)
        for place, mark in found.items():
            around = _around(ordered[place])
            self._alike[around] = mark if self._alike.get(around, mark) == mark else None
        known = self._known.get(wiring)
        if known is None:
            if len(self._known) == MOST:
                del self._known[next(iter(self._known))]
            self._known[wiring] = dict(found)
        else:
            for place, mark in found.items():
                known[place] = mark if known.get(place, mark) == mark else None

    def marks(self, nodes: Sequence[Any]) -> Callable[[Any], Mark | None]:
        """What is known of each node of a graph: what it was told itself, or its twin."""
        ordered = _ordered(nodes)
        own = {node: mark for node in ordered if (mark := mark_of(node)) is not None}
        known = self._known.get(_wiring(ordered), {}) if len(own) < len(ordered) else {}
        twins = {node: known.get(place) for place, node in enumerate(ordered)}

        def told(node: Any) -> Mark | None:
            found = own.get(node) or twins.get(node)
            if found is None and not known and node.next_functions:
                alike = self._alike.get(_around(node))
                found = None if alike is None else Mark(*alike[:3], is_certain=False)
            return found

        return told


def _ordered(nodes: Sequence[Any]) -> list[Any]:
    """As the program has made them, without those that add to a leaf."""
    return sorted((node for node in nodes if node.next_functions), key=sequence_nr)


def _around(node: Any, depth: int = 3) -> Any:
    """An operator and those before it, as far as the parameters that are near."""
    if not depth or not node.next_functions:
        variable = getattr(node, "variable", None)
        return node.name(), None if variable is None else (variable.ndim, _parameter(variable))
    behind = (each and _around(each, depth - 1) for each, _ in node.next_functions)
    return node.name(), dims_of_results(node), tuple(behind)


def _wiring(ordered: Sequence[Any]) -> tuple[Any, ...]:
    places = {node: place for place, node in enumerate(ordered)}
    return tuple(
        (node.name(), dims_of_results(node), tuple(_end(each, places) for each in node.next_functions))
        for node in ordered
    )


def _end(following: tuple[Any, int], places: dict[Any, int]) -> Any:
    node, number = following
    if node is None or node in places:
        return (None if node is None else places[node]), number
    variable = getattr(node, "variable", None)
    return node.name(), None if variable is None else (variable.ndim, _parameter(variable))


def _parameter(variable: Any) -> int | None:
    """Which one it is; other leaves may be made anew in every step."""
    return id(variable) if type(variable).__name__ == "Parameter" else None
