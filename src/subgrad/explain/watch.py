"""A run of an expression that notes every call on a kink, and can take single entries of it under another convention.

Forward values are the same under every convention, so an entry of a result may be taken from one convention and its
neighbour from another: what a single entry does to the gradient is found by switching it, not guessed.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import torch
from torch import Tensor

from subgrad.apply import pass_kernels
from subgrad.apply.current_pass import running
from subgrad.apply.pass_kernels import PassCall
from subgrad.apply.use import use
from subgrad.audit.counting import COMPARISONS, differentiated
from subgrad.explain.evaluation import Evaluation
from subgrad.kinks import KINKS, Kink
from subgrad.kinks.sets import Jump
from subgrad.torch_internals.autograd import current_graph_task_id

Inputs = Mapping[str, Tensor]


@dataclass(frozen=True)
class Met:
    """A call that has entries on kinks.

    Attributes:
        number: of the call, among all of the run.
        node: the part of the expression that made it.
        kinks: those that are met, each with the places where; none for a comparison, which has ``ties``.
        arguments: of the call, detached.
        names: the arguments that are differentiated.
        out: the result whose entries can be taken under another convention.
        mask: which of them lie on a kink with a set; None where that is not known by entry.
    """

    number: int
    node: ast.expr
    op: str
    kinks: tuple[tuple[Kink, Tensor], ...]
    ties: Tensor | None
    arguments: Mapping[str, Any]
    names: tuple[str, ...]
    out: Tensor | None
    mask: Tensor | None

    @property
    def has_choice(self) -> bool:
        """Whether a convention picks something here."""
        return any(not isinstance(kink.set, Jump) for kink, _ in self.kinks)


@dataclass(frozen=True)
class Switch:
    """A convention for some entries of one call, or for all where no mask is given."""

    convention: str
    mask: Tensor | None = None


@dataclass(frozen=True)
class Run:
    """The value and the gradients of one run, and the cotangents that its calls on kinks were given."""

    convention: str
    value: Tensor
    gradients: Mapping[str, Tensor]
    met: Sequence[Met]
    cotangents: Mapping[int, Tensor]

    def flat(self) -> Tensor:
        return torch.cat([each.flatten() for each in self.gradients.values()])


class Watch:
    """The pass: every call is run as it is, or as a switch says."""

    rules: Mapping[str, Any] = {}

    def __init__(self, evaluation: Evaluation, switches: Mapping[int, Switch]):
        self.evaluation, self.switches = evaluation, switches
        self.met: list[Met] = []
        self.count = 0

    @classmethod
    def install(cls) -> None:
        """Kernels for all that is watched. What `where` asks comes from a comparison, which is watched itself."""
        ops = (*(op for op in KINKS.overloads if op != "where.self"), *COMPARISONS)
        cls.rules = dict.fromkeys(ops, True)
        pass_kernels.install(ops)

    def fork(self) -> None:
        """Nothing in an expression runs again by itself."""

    def run(self, rule: Any, call: PassCall) -> Any:
        names = differentiated(call)
        if not names or current_graph_task_id() != -1:  # what formulas of backward call is not the expression's
            return call.run()
        number, self.count = self.count, self.count + 1
        switch = self.switches.get(number)
        kinks, ties = _met(call, names)
        kept = {name: _detached(each) for name, each in call.arguments.items()}
        out = call.run() if switch is None else _switched(call, names, switch)
        if kinks or ties is not None:
            result = _differentiable(out)
            mask = None if result is None else _mask(kinks, result)
            made = (number, self.evaluation.at, call.op.op, kinks, ties, kept, tuple(sorted(names)), result, mask)
            self.met.append(Met(*made))
        return out


def run(
    evaluation: Evaluation,
    inputs: Inputs,
    wrt: Sequence[str],
    convention: str,
    switches: Mapping[int, Switch] | None = None,
) -> Run:
    """The gradients under a convention, but where a switch says otherwise."""
    Watch.install()
    leaves = {name: each.detach().clone().requires_grad_(name in wrt) for name, each in inputs.items()}
    watch = Watch(evaluation, switches or {})
    with use(convention), running(watch), torch.enable_grad():
        value = evaluation.function(*leaves.values())
    outs = {met.number: met.out for met in watch.met if met.out is not None}
    ends = [*(leaves[name] for name in wrt), *outs.values()]
    if value.requires_grad:
        found = torch.autograd.grad(value, ends, allow_unused=True, materialize_grads=True)
        found = [torch.empty(each.shape, dtype=each.dtype).copy_(each) for each in found]  # some zeros have no memory
    else:
        found = [torch.zeros_like(each) for each in ends]
    gradients = dict(zip(wrt, found, strict=False))
    return Run(convention, value.detach(), gradients, watch.met, dict(zip(outs, found[len(wrt) :], strict=True)))


@torch.no_grad()
def _met(call: PassCall, names: frozenset[str]) -> tuple[tuple[tuple[Kink, Tensor], ...], Tensor | None]:
    if call.op.op in COMPARISONS:
        one, other = call.arguments["self"], call.arguments["other"]
        ties = one == other
        return (), ties if bool(ties.any()) else None
    found = []
    for kink in call.op.kinks:
        if (isinstance(kink.set, Jump) or not names.isdisjoint(kink.set.candidates)) and kink.applies(call.arguments):
            hits = kink.hits(call.arguments)
            if bool(hits.any()):
                found.append((kink, hits))
    return tuple(found), None


def _detached(argument: Any) -> Any:
    return argument.detach().clone() if isinstance(argument, Tensor) else argument


def _differentiable(out: Any) -> Tensor | None:
    """The first result that has a derivative."""
    results = [out] if isinstance(out, Tensor) else out
    return next((each for each in results if isinstance(each, Tensor) and each.requires_grad), None)


def _mask(kinks: Sequence[tuple[Kink, Tensor]], out: Tensor) -> Tensor | None:
    """The entries of the result that lie on kinks, where places and entries are of one shape but for ones."""
    masks = []
    for kink, hits in kinks:
        if isinstance(kink.set, Jump):
            continue
        if kink.is_entrywise:
            masks.append(hits.expand(out.shape))
        elif [size for size in hits.shape if size > 1] == [size for size in out.shape if size > 1]:
            masks.append(hits.reshape(out.shape))
        else:
            return None
    return reduce(torch.logical_or, masks) if masks else None


def _switched(call: PassCall, names: frozenset[str], switch: Switch) -> Any:
    """Some entries under the convention of the switch, all others under that of the run."""
    arguments = dict(call.arguments)
    if call.written:
        arguments["self"] = arguments["self"].clone()
    mask = switch.mask
    if mask is None:
        with use(switch.convention):
            out = call.native(arguments)
    else:
        # What is not taken gets no cotangent at all: a slope that is not finite would make it nan.
        taken, left = dict(arguments), dict(arguments)
        if call.op.op in KINKS.entrywise:
            for name in names:
                each = arguments[name]
                taken[name], left[name] = torch.where(mask, each, each.detach()), torch.where(mask, each.detach(), each)
        with use(switch.convention):
            of_switch = call.native(taken)
        of_run = call.native(left)
        out = _joined(mask, of_switch, of_run)
    # In place as conventions do it: negated it is -0.0, which added to the gradient leaves every bit.
    return call.arguments["self"].neg_().copy_(out) if call.written else out


def _joined(mask: Tensor, one: Any, other: Any) -> Any:
    if isinstance(one, Tensor):
        return torch.where(mask, one, other) if one.shape == mask.shape and one.is_floating_point() else other
    return type(other)([_joined(mask, a, b) for a, b in zip(one, other, strict=True)])
