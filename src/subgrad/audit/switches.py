"""Calls whose element can be chosen once more when backward runs, site by site.

Forward values are the same under every convention, so one forward has the graph of them all but for the elements at the
hits, and for a surrogate that passes the gradient beyond them. A call that has hits is put between two gates::

    x ──▶ enter ──▶ the operator as it is ──▶ leave ──▶ out

With no switch set both hand on what they get: the gradients are those of the run, to the bit. With one set, *enter*
gives back what the operator gives at the hits under another convention, for the cotangent that *leave* saw.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

import torch
from torch import Tensor

from subgrad.apply.autograd_nodes import Gate, alias, laid_out, outer_levels, same, through
from subgrad.apply.dispatch import install
from subgrad.apply.pass_kernels import PassCall
from subgrad.apply.plan import plan
from subgrad.apply.scopes import Scope, active
from subgrad.audit.call_site import Site
from subgrad.audit.counting import COMPARISONS, Found, applying
from subgrad.audit.graphs import Mark, marks_since
from subgrad.conventions import Convention
from subgrad.kinks import KINKS
from subgrad.kinks.sets import Jump
from subgrad.torch_internals.autograd import below_autograd_and_views as values
from subgrad.torch_internals.autograd import current_graph_task_id, forward_level, next_sequence_nr
from subgrad.torch_internals.dispatcher import disable_autocast

Line = tuple[Site, str]  # a call site and the operator it calls
# What the convention is there, or None for the one of the run.
Setting = Callable[[Line], "Convention | None"]
RANDOM = ("rrelu_with_noise",)  # called again they draw other numbers


class Switchboard:
    """The calls of one step that can be switched.

    Attributes:
        lines: where they are, as the program reached them.
        made: the nodes of all calls that were looked at, as `graphs.mark` tells them apart.
    """

    def __init__(self, conventions: Iterable[Convention]):
        self.conventions = tuple(conventions)
        for each in self.conventions:
            install(each)
        self.setting: Setting | None = None
        self.lines: list[Line] = []
        self.made: set[Mark] = set()

    def run(self, call: PassCall, names: frozenset[str], site: Site, operator: str, met: Found) -> Any:
        """Run a call as it is; between gates, if it has hits at which the conventions differ.

        What cannot be called again, because it draws random numbers, is not among what was made: a graph that holds
        it is not seen as a whole.
        """
        before = next_sequence_nr()
        if not self._differ(call, names) or not (met.has_hits() or self.differ_beyond_kinks(call)):
            out = call.run()
        elif call.op.op in RANDOM or forward_level() >= 0:
            return call.run()
        else:
            out = self._switched(call, names, site, operator)
        self.made.update(marks_since(before, out))
        return out

    def _switched(self, call: PassCall, names: frozenset[str], site: Site, operator: str) -> Any:
        line = (site, operator)
        if line not in self.lines:
            self.lines.append(line)
        return _between_gates(call, Switched.of(call, names, line, self))

    def _differ(self, call: PassCall, names: frozenset[str]) -> bool:
        """Whether the conventions, that of the run included, pick different elements."""
        if call.op.op in COMPARISONS:
            return False
        with values():  # elements may be made of operands, and autograd is to save nothing for that
            plans = [plan(call.op, each, call.arguments) for each in self.everyone]
        elements = [
            (each.shares, each.other, each.is_straight_through, [_element(meeting) for meeting in each.meetings])
            for each in plans
        ]
        return any(one != elements[0] for one in elements)

    @property
    def everyone(self) -> tuple[Convention, ...]:
        """The convention of the run, and those it is compared under."""
        return (active(), *self.conventions)

    def differ_beyond_kinks(self, call: PassCall) -> bool:
        """Whether one of them is a surrogate there, and gives another gradient to entries on no kink."""
        return any(each.is_straight_through(call.op.kinks) for each in self.everyone)


def _element(meeting: Any) -> Any:
    """What is taken out of torch's hands at a kink."""
    if meeting.choice is None:
        return None
    return {name: id(each) if isinstance(each, Tensor) else float(each) for name, each in meeting.element.items()}


@dataclass
class Switched:
    """One call, and what is kept of it to differentiate it under another convention.

    Attributes:
        kept: its arguments, tensors at the hits only where it works entry by entry, and differs nowhere else.
        hits: the places of these entries; None where the whole call is kept.
        cotangents: of its outputs, with the backward that brought them.
    """

    call: PassCall
    names: tuple[str, ...]
    line: Line
    board: Switchboard
    kept: Mapping[str, Any]
    hits: Tensor | None
    cotangents: dict[int, tuple[int, Tensor]] = field(default_factory=dict)
    found: tuple[Any, dict[str, Tensor]] | None = None

    @classmethod
    def of(cls, call: PassCall, names: frozenset[str], line: Line, board: Switchboard) -> Switched:
        tensors = {name: each for name, each in call.arguments.items() if isinstance(each, Tensor)}
        chosen = tuple(name for name in call.op.tensor_names if name in names)
        with values():
            # Not `broadcast_shapes`, which imports what compiling needs.
            shape = torch.broadcast_tensors(*tensors.values())[0].shape if call.op.op in KINKS.entrywise else None
            is_whole = board.differ_beyond_kinks(call)
            if is_whole or shape is None or any(tensors[name].shape != shape for name in chosen):
                kept = {name: each.detach().clone() for name, each in tensors.items()}
                return cls(call, chosen, line, board, {**call.arguments, **kept}, None)
            kinks = [kink for kink in applying(call, names) if not isinstance(kink.set, Jump)]
            mask = reduce(torch.logical_or, (kink.hits(call.arguments) for kink in kinks)).expand(shape)
            hits = mask.reshape(-1).nonzero().squeeze(1)
            kept = {name: _at(each.detach(), shape, hits) for name, each in tensors.items()}
        return cls(call, chosen, line, board, {**call.arguments, **kept}, hits)

    def gradient(self, name: str, of_operator: Tensor) -> Tensor:
        """The gradient of an operand: that of the operator as it ran, or as the switch says."""
        setting = self.board.setting
        convention = None if setting is None else setting(self.line)
        if convention is None:
            return of_operator
        found = self._under(convention)[name]
        if self.hits is None:
            return laid_out(found.to(of_operator.dtype), of_operator)
        changed = of_operator.reshape(-1).clone()
        changed[self.hits] = found.to(changed.dtype)
        return laid_out(changed.view(of_operator.shape), of_operator)

    def _under(self, convention: Convention) -> dict[str, Tensor]:
        """The gradients of all operands under a convention, for the cotangents of this backward."""
        key = (current_graph_task_id(), convention)
        if self.found is None or self.found[0] != key:
            self.found = (key, self._differentiated(convention))
        return self.found[1]

    def _differentiated(self, convention: Convention) -> dict[str, Tensor]:
        leaves = {name: self.kept[name].detach().requires_grad_() for name in self.names}
        with torch.enable_grad(), Scope(convention), disable_autocast():
            out = self.call.native({**self.kept, **leaves})
            outputs = out if isinstance(out, list | tuple) else (out,)
            now = current_graph_task_id()
            cotangents = {index: each.detach() for index, (task, each) in self.cotangents.items() if task == now}
            if self.hits is not None:
                cotangents = {0: cotangents[0].reshape(-1)[self.hits]}
            reached = [outputs[index] for index in cotangents]
            found = torch.autograd.grad(reached, list(leaves.values()), list(cotangents.values()), allow_unused=True)
        given = zip(leaves.items(), found, strict=True)
        return {name: torch.zeros_like(leaf) if each is None else each for (name, leaf), each in given}


def _at(tensor: Tensor, shape: torch.Size, hits: Tensor) -> Tensor:
    """The entries at the hits; numbers may lie on another device."""
    return tensor.expand(shape).reshape(-1)[hits] if tensor.device == hits.device else tensor.clone()


def _between_gates(call: PassCall, switched: Switched) -> Any:
    entered = {name: through(_Enter, call.arguments[name], name, switched) for name in switched.names}
    if call.written:
        self = call.arguments["self"]
        if "self" in entered:  # its entries are about to be overwritten
            entered["self"] = laid_out(entered["self"].clone(), self)
        out = through(_Leave, call.again({**call.arguments, "self": self.clone(), **entered}), 0, switched)
        # As conventions do it in place: negated it is -0.0, which added to the gradient leaves every bit.
        return self.neg_().copy_(out)
    out = call.native({**call.arguments, **entered})
    if isinstance(out, Tensor):
        return through(_Leave, out, 0, switched)
    return tuple(through(_Leave, each, i, switched) if each.requires_grad else each for i, each in enumerate(out))


class _Enter(Gate):
    """An operand as it is; its gradient as the switch says."""

    @staticmethod
    def forward(ctx: Any, operand: Tensor, name: str, switched: Switched) -> Tensor:
        ctx.operand, ctx.switched = name, switched
        with outer_levels():
            return same(operand)

    @staticmethod
    def backward(ctx: Any, of_operator: Tensor) -> tuple[Tensor | None, ...]:
        return ctx.switched.gradient(ctx.operand, of_operator), None, None


class _Leave(Gate):
    """A result as it is; notes the cotangent that comes back."""

    @staticmethod
    def forward(ctx: Any, out: Tensor, index: int, switched: Switched) -> Tensor:
        ctx.index, ctx.switched = index, switched
        with outer_levels():
            return alias(out)

    @staticmethod
    def backward(ctx: Any, cotangent: Tensor) -> tuple[Tensor | None, ...]:
        if ctx.switched.board.setting is not None:
            ctx.switched.cotangents[ctx.index] = (current_graph_task_id(), cotangent)
        return cotangent, None, None
