"""The graphs that a run makes again and again: their leaves, and the way to the nodes that may have infinite slopes.

A training makes the same graph step by step. To see that one is the same takes a third of what it takes to look through
one that is new: half a microsecond for each operator.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor

from subgrad.apply.graph_nodes import not_of_torch
from subgrad.apply.source_line import user_frame
from subgrad.audit import graphs
from subgrad.audit.nonfinite.poles import POLES, Pole
from subgrad.torch_internals.autograd import next_sequence_nr, saved_values

SMALL = 2**22  # bytes, which a graph may hold until the next one is made


class _Step(NamedTuple):
    """One step of the way: from a node that was reached, -1 for what backward is called on, along an edge.

    Attributes:
        is_asked: the node may have an infinite slope, and this is how to ask it, if it can be.
    """

    start: int
    edge: int
    kind: type
    is_asked: bool
    pole: Pole | None


@dataclass
class Known:
    """A graph that was looked through.

    Attributes:
        made: how many nodes the program had made since the last backward.
        is_small: so little is saved in it, by operators of torch alone, that it may be walked a second time.
        away: which of the nodes that are asked have what they saved on a device that is not read.
        names: of leaves that were filled with gradients, with their places among these, by the identities of them.
    """

    made: int
    leaves: list[weakref.ref[Tensor]]
    way: list[_Step]
    is_small: bool = False
    away: set[int] = field(default_factory=set)
    names: dict[tuple[int, ...], list[tuple[str, int]]] = field(default_factory=dict)


class Seen(NamedTuple):
    """A graph that backward is about to walk.

    Attributes:
        leaves: that it may fill with gradients.
        asked: the nodes that may have infinite slopes, and how; None for those of other packages.
        is_known: the graph was made before.
        is_small: and it may be walked a second time; it was not looked through then.
        graph: what is kept of it, for the next time.
    """

    leaves: list[Tensor]
    asked: list[tuple[Any, Pole | None]]
    is_known: bool
    graph: Known
    is_small: bool = False


class KnownGraphs:
    """The graphs of a run, by the line that calls backward.

    One is taken for known where as many nodes were made, its leaves are still there, and the way leads to nodes of the
    same kinds. All parameters of the run are among the leaves, so that none is missed that another graph fills.
    """

    def __init__(self, parameters: Iterable[Tensor]) -> None:
        self._known: dict[Any, Known] = {}
        self._parameters = {id(each): weakref.ref(each) for each in parameters if each.requires_grad}
        self._last = next_sequence_nr()
        self._key: Any = None
        self._key_of_walks: set[Any] = set()

    def add(self, parameters: Iterable[Tensor]) -> None:
        """More parameters, of an optimizer."""
        for each in parameters:
            if each.requires_grad and id(each) not in self._parameters:
                self._parameters[id(each)] = weakref.ref(each)
                self._known.clear()

    def see(self, tensors: Sequence[Tensor], walks_twice: bool = False) -> Seen:
        """The graph behind tensors. ``walks_twice``: one that is small need not be looked through."""
        frame = user_frame()
        self._key = key = None if frame is None else (frame.f_code, frame.f_lasti)
        now = next_sequence_nr()
        made, self._last = now - self._last, now
        known = self._known.get(key)
        if known is not None and known.made == made:
            leaves = [each for each in (alive() for alive in known.leaves) if each is not None]
            if walks_twice and known.is_small and len(leaves) == len(known.leaves):
                return Seen(leaves, [], True, known, True)
            asked = _followed(known.way, tensors)
            if asked is not None and len(leaves) == len(known.leaves):
                return Seen(leaves, asked, True, known)
        nodes = graphs.nodes(tensors)
        found = {id(each): each for each in graphs.leaves(tensors, nodes)}
        found |= {id(each): each for each in (alive() for alive in self._parameters.values()) if each is not None}
        leaves, way = list(found.values()), _way(tensors)
        known = self._known[key] = Known(made, [weakref.ref(each) for each in leaves], way, self._is_small(nodes))
        return Seen(leaves, _followed(way, tensors) or [], False, known)

    def walk_once(self) -> None:
        """The graph that was seen last is to be looked through from now on."""
        self._key_of_walks.add(self._key)
        if self._key in self._known:
            self._known[self._key].is_small = False

    def _is_small(self, nodes: Sequence[Any]) -> bool:
        if self._key in self._key_of_walks or not_of_torch(nodes):
            return False
        size = 0
        for node in nodes:
            for each in saved_values(node).values():
                if isinstance(each, Tensor):
                    if not each.is_cpu or each.layout is not torch.strided:
                        return False
                    size += each.nbytes
        return size < SMALL


def _is_asked(node: Any) -> bool:
    """Those of other packages may do anything."""
    return type(node).__name__ in POLES or bool(not_of_torch([node]))


def _way(tensors: Sequence[Tensor]) -> list[_Step]:
    """To all nodes, each reached once, but for those that add to a leaf."""
    reached: list[Any] = []
    way: list[_Step] = []
    seen: set[Any] = set()

    def reach(start: int, edge: int, node: Any) -> None:
        if node is not None and node not in seen and node.next_functions:
            seen.add(node)
            reached.append(node)
            way.append(_Step(start, edge, type(node), _is_asked(node), POLES.get(type(node).__name__)))

    for edge, each in enumerate(tensors):
        reach(-1, edge, each.grad_fn)
    for start, node in enumerate(reached):  # which grows meanwhile
        for edge, (following, _) in enumerate(node.next_functions):
            reach(start, edge, following)
    return way


def _followed(way: Sequence[_Step], tensors: Sequence[Tensor]) -> list[tuple[Any, Pole | None]] | None:
    """The nodes that are asked; None where the way is another one."""
    behind: list[Any] = []
    asked = []
    for start, edge, kind, is_asked, pole in way:
        try:
            node: Any = tensors[edge].grad_fn if start < 0 else behind[start][edge][0]
        except IndexError:
            return None
        if type(node) is not kind:
            return None
        behind.append(node.next_functions)
        if is_asked:
            asked.append((node, pole))
    return asked
