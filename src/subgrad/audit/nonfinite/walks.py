"""What backward did at the nodes of a graph, recorded while it runs: afterwards buffers are gone."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from subgrad.apply.autograd_nodes import values
from subgrad.apply.graph_nodes import not_of_torch, reached
from subgrad.audit.nonfinite.finite import is_finite, total
from subgrad.torch_internals.autograd import saved_values

LARGE = 2**20  # entries, beyond which a device keeps nothing of a call but sums
Gradients = tuple[Tensor | None, ...]


@dataclass
class Record:
    """What one node made of its cotangents.

    Attributes:
        cotangents, gradients: of the results of its operator, and of what it was called with.
        saved: what it had kept, by name.
        unit: what it makes of cotangents of 1, so its slopes, where these were asked for; of an operand that was
            broadcast the sum of their sizes.
        is_summed: of cotangents and gradients there are only their sums.
    """

    node: Any
    cotangents: Gradients
    gradients: Gradients
    saved: dict[str, Any] = field(default_factory=dict)
    unit: Gradients | None = None
    is_summed: bool = False

    @cached_property
    def is_given_finite(self) -> bool:
        return all(each is None or is_finite(each) for each in self.cotangents)

    @cached_property
    def is_bad(self) -> tuple[bool, ...]:
        """Which of its gradients are not finite."""
        return tuple(each is not None and not is_finite(each) for each in self.gradients)


class Walk:
    """The records of one walk of a graph, in the order in which backward reached the nodes.

    Attributes:
        is_whole: all nodes are recorded, and not only what lies behind the first that was found.
    """

    def __init__(self, nodes: Iterable[Any] = (), is_whole: bool = False):
        self.records: list[Record] = []
        self.is_whole = is_whole
        self._hooks: list[Any] = []
        self._hook(nodes)

    def _hook(self, nodes: Iterable[Any]) -> None:
        for node in nodes:
            if node.next_functions:  # those without add to a leaf
                self._hooks.append(node.register_hook(self._recorder(node)))

    def _recorder(self, node: Any) -> Callable[[Gradients, Gradients], None]:
        def record(gradients: Gradients, cotangents: Gradients) -> None:
            self.add(node, gradients, cotangents)

        return record

    def add(self, node: Any, gradients: Gradients, cotangents: Gradients) -> Record:
        """Called while the node still has what it has saved."""
        record = Record(node, _plain(cotangents), _plain(gradients), saved_values(node))
        self.records.append(record)
        is_origin = any(record.is_bad) and record.is_given_finite
        if (is_origin or _have_zeros(record.gradients)) and not not_of_torch([node]):
            record.unit = _unit(record)
        return record

    def keep(self, node: Any, gradients: Gradients, cotangents: Gradients) -> None:
        """A record from which nothing is read yet; of large tensors their sums, so that no memory is held."""
        if all(each is None or each.numel() <= LARGE for each in (*gradients, *cotangents)):
            self.records.append(Record(node, _plain(cotangents), _plain(gradients), saved_values(node)))
        else:
            self.records.append(Record(node, _sums(cotangents), _sums(gradients), is_summed=True))

    def follow(self, record: Record) -> None:
        """Record all that lies behind a node, from a hook of its."""
        self._hook(reached([following for following, _ in record.node.next_functions if following is not None]))

    def close(self) -> None:
        """Hooks hold their nodes, and nodes their hooks: they go when the walk is over."""
        while self._hooks:
            self._hooks.pop().remove()


def _sums(gradients: Gradients) -> Gradients:
    with values():
        return tuple(each if each is None else total(each) for each in gradients)


def _plain(gradients: Gradients) -> Gradients:
    return tuple(each if each is None else each.detach() for each in gradients)


def _have_zeros(gradients: Gradients) -> bool:
    with values():
        return any(each is not None and each.layout is torch.strided and bool((each == 0).any()) for each in gradients)


def _unit(record: Record) -> Gradients | None:
    ones = tuple(each if each is None else torch.ones_like(each) for each in record.cotangents)
    try:
        with torch.no_grad():
            made = record.node(*ones)
            found = _plain(made if isinstance(made, tuple) else (made,))
            pairs = zip(found, record.gradients, strict=True)
            return tuple(
                one if one is None or each is None or one.shape == each.shape else one.abs().sum_to_size(each.shape)
                for one, each in pairs
            )
    except Exception:  # a node that does not run twice
        return None
