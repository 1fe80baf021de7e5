"""The lines of the nodes of a graph, and the names of their operators."""

from __future__ import annotations

import re
from bisect import bisect
from collections.abc import Callable, Sequence
from functools import cache
from types import CodeType
from typing import Any

from subgrad.apply.graph_nodes import not_of_torch
from subgrad.audit.call_site import Site
from subgrad.audit.nonfinite.noting import Mark
from subgrad.audit.nonfinite.result import Line
from subgrad.torch_internals.autograd import forward_class_of, sequence_nr


def operator_of(node: Any) -> str:
    """As autograd names the node: ``"linalg_vector_norm"`` for ``LinalgVectorNormBackward0``."""
    written = forward_class_of(node)
    if written is not None:
        return written.__qualname__
    return node.name() if not_of_torch([node]) else _snake(node.name())


@cache
def _snake(name: str) -> str:
    bare = re.sub(r"Backward\d*(_.*)?$", "", name)
    return re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", bare).lower()


class Lines:
    """What is known of where the nodes of a graph come from.

    Args:
        nodes: of the graph.
        mark: what one of them was told.
    """

    def __init__(self, nodes: Sequence[Any], mark: Callable[[Any], Mark | None]):
        self.nodes, self.mark = nodes, mark
        self._order: list[tuple[int, Mark]] | None = None

    def line(self, node: Any, entry: tuple[int, ...] | None = None, inputs: tuple[tuple[str, str], ...] = ()) -> Line:
        found = self.mark(node) or self._around(node) or _own_backward(node)
        site = Site("", 0, "") if found is None else site_of(found.code, found.number)
        module, is_certain = (found.module, found.is_certain) if found else ("", True)
        return Line(site, operator_of(node), module, entry or (), inputs, is_certain)

    def _around(self, node: Any) -> Mark | None:
        """The line of a call that was not noted, if those made just before and after it have the same."""
        if self._order is None:
            noted = ((sequence_nr(each), self.mark(each)) for each in self.nodes)
            self._order = sorted(((place, mark) for place, mark in noted if mark is not None), key=lambda each: each[0])
        after = bisect([place for place, _ in self._order], sequence_nr(node))
        if not 0 < after < len(self._order):
            return None
        before, behind = self._order[after - 1][1], self._order[after][1]
        return Mark(*before[:2]) if before[:2] == behind[:2] else None


def _own_backward(node: Any) -> Mark | None:
    """Of a function with a backward that the program has written, the line where that begins."""
    written = forward_class_of(node)
    code = getattr(getattr(written, "backward", None), "__code__", None)
    is_torchs = getattr(written, "__module__", "").partition(".")[0] == "torch"
    return None if code is None or is_torchs else Mark(code, code.co_firstlineno)


def site_of(code: CodeType | None, number: int) -> Site:
    return Site("", 0, "") if code is None else Site.at(code, number)
