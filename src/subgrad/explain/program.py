"""One expression at one point: which of its parts lie on kinks, and the gradient under every convention and its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any

import torch
from torch import Tensor

from subgrad import clarke
from subgrad.apply.use import use
from subgrad.audit.counting import KINDS
from subgrad.conventions import CHOICES
from subgrad.explain.evaluation import Evaluation, first_line, without_lines
from subgrad.explain.expression import Expression
from subgrad.explain.numbers import Index, Numbers
from subgrad.explain.watch import Inputs, Met, Run, run
from subgrad.kinks import Kink
from subgrad.kinks.kink import unknown, user_name
from subgrad.kinks.overloads import call_by_name, qualified
from subgrad.kinks.sets import Jump, Pole

LISTED = 4  # entries of one part on one kink
TRIES = 8  # directions in which elements of the expression are looked for
COTANGENT = 3.0  # not 1: a derivative that drops the incoming gradient would look right with it
INSTALLED = "torch"

Gradient = Mapping[str, Numbers]


@dataclass(frozen=True)
class Entry:
    """One entry on a kink: where it is in the result, and what the operator was given there."""

    index: Index
    given: Mapping[str, float]


@dataclass(frozen=True)
class Hit:
    """A part of an expression, and a kink that entries of it lie on.

    Attributes:
        source, start: what is written, and where in the expression.
        kind: corner, tie, norm, joint, jump, pole or comparison.
        set: of the generalised derivatives there, in words.
        entries: the first of them; none where a place is not one entry.
        count: of all places.
        picks: what each convention takes at the first entry, argument by argument; empty where none has a choice.
    """

    source: str
    start: int
    operator: str
    overload: str
    kind: str
    place: str
    set: str
    entries: tuple[Entry, ...]
    count: int
    picks: Mapping[str, Mapping[str, float]]


@dataclass(frozen=True)
class Own:
    """The gradient of the expression as a whole, an element of its Clarke set.

    Attributes:
        elements: the distinct ones that some directions found; one where it is differentiable.
        least: of their hull, where there are several.
        is_convex: whether they fit a convex function: then ``least`` is the least of the whole set.
        kinks: how many operators decided.
        extrapolated: no rule led to it, but gradients nearby.
        refused: why there is none, in words.
    """

    elements: tuple[Gradient, ...] = ()
    least: Gradient | None = None
    is_convex: bool = False
    kinks: int = 0
    extrapolated: bool = False
    refused: str | None = None


@dataclass(frozen=True)
class Explanation:
    """An expression at a point.

    Attributes:
        at: the inputs, of which those in ``wrt`` are differentiated.
        entries: of the result. Of more than one the sum is differentiated.
        gradients: by convention; ``torch`` is the installed one.
    """

    text: str
    at: Gradient
    wrt: tuple[str, ...]
    dtype: str
    torch: str
    entries: int
    value: float
    hits: tuple[Hit, ...]
    gradients: Mapping[str, Gradient]
    own: Own


class Subject:
    """An expression with its inputs, ready to be run."""

    def __init__(self, text: str, inputs: Inputs, wrt: Sequence[str] = (), dtype: torch.dtype = torch.float64):
        for name in wrt:
            if name not in inputs:
                raise ValueError(unknown("input", name, list(inputs)))
        self.expression = Expression.of(text, inputs)
        self.inputs, self.dtype = inputs, dtype
        self.evaluation = Evaluation(self.expression, list(inputs), dtype)
        self.wrt = tuple(wrt) or tuple(inputs)

    def value(self) -> Tensor:
        """Of the expression; what torch says no to becomes a `Mistake` at its place."""
        with torch.no_grad():
            return self.evaluation.first(*self.inputs.values())

    def run(self, convention: str, **given: Any) -> Run:
        try:
            return run(self.evaluation, self.inputs, self.wrt, convention, **given)
        except RuntimeError as error:
            why = f"Torch has no gradient of this: {first_line(error)}"
            raise self.expression.mistake(self.evaluation.at, why) from None

    def numbers(self) -> Gradient:
        return {name: Numbers.of(each) for name, each in self.inputs.items()}


def explain(text: str, inputs: Inputs, wrt: Sequence[str] = (), dtype: torch.dtype = torch.float64) -> Explanation:
    """Explain an expression at a point.

    >>> import torch
    >>> from subgrad.explain.program import explain
    >>> found = explain("F.relu(x) - F.relu(-x)", {"x": torch.tensor(0.0)}, dtype=torch.float32)
    >>> [hit.source for hit in found.hits], found.own.elements[0]["x"].entries
    (['F.relu(x)', 'F.relu(-x)'], (1.0,))

    Args:
        text: the expression.
        inputs: tensors by the names that it uses.
        wrt: those that are differentiated; all by default.
        dtype: of the constants in the expression.

    Raises:
        Mistake: for anything but an expression of these inputs, with the place. Nothing has run then.
    """
    subject = Subject(text, inputs, wrt, dtype)
    value = subject.value()
    entries = subject.evaluation.entries
    runs = {convention: subject.run(convention) for convention in CHOICES}
    return Explanation(
        text=subject.expression.text,
        at=subject.numbers(),
        wrt=subject.wrt,
        dtype=str(dtype).removeprefix("torch."),
        torch=str(torch.__version__),
        entries=entries,
        value=float(value),
        hits=tuple(hit for met in runs[INSTALLED].met for hit in hits(subject.expression, met)),
        gradients={name: gradient(each) for name, each in runs.items()},
        own=own(subject),
    )


def gradient(found: Run) -> Gradient:
    return {name: Numbers.of(each) for name, each in found.gradients.items()}


def hits(expression: Expression, met: Met) -> list[Hit]:
    """One for each kink that a call meets."""
    if met.ties is not None:
        source, start, operator, overload = _written(expression, met)
        entries, count = _entries(met, met.ties), int(met.ties.sum())
        decides = "what the answer decides"
        return [Hit(source, start, operator, overload, "comparison", "self == other", decides, entries, count, {})]
    return [hit(expression, met, kink, where) for kink, where in met.kinks]


def hit(expression: Expression, met: Met, kink: Kink, where: Tensor) -> Hit:
    """A call at those of its places that lie on one kink."""
    entries = _entries(met, where) if _is_by_entry(kink, met, where) else ()
    return Hit(
        *_written(expression, met),
        kind=KINDS[type(kink.set)],
        place=kink.words,
        set=_set(kink, met, where),
        entries=entries,
        count=int(where.sum()),
        picks=_picks(kink, met, where),
    )


def _written(expression: Expression, met: Met) -> tuple[str, int, str, str]:
    return expression.source(met.node), met.node.col_offset, user_name(met.op), qualified(met.op)


def _is_by_entry(kink: Kink, met: Met, where: Tensor) -> bool:
    return met.out is not None and (kink.is_entrywise or where.shape == met.out.shape)


def _entries(met: Met, where: Tensor) -> tuple[Entry, ...]:
    shown = where.nonzero()[:LISTED].tolist()
    operands = {name: each for name, each in met.arguments.items() if isinstance(each, Tensor)}
    return tuple(Entry(tuple(index), _at(operands, where.shape, tuple(index))) for index in shown)


def _at(tensors: Mapping[str, Tensor], shape: torch.Size, index: Index) -> dict[str, float]:
    """What is at an entry, of the tensors that are broadcast to the shape."""
    found = {}
    for name, each in tensors.items():
        ones = [1] * (len(shape) - each.ndim)  # not `broadcast_shapes`, which imports what compiling needs
        if each.ndim <= len(shape) and all(a in (1, b) for a, b in zip([*ones, *each.shape], shape, strict=True)):
            found[name] = float(each.expand(shape)[index])
    return found


def _at_entry(kink: Kink, met: Met, where: Tensor) -> dict[str, Any]:
    """The call at its first entry on a kink, in numbers where it is given tensors."""
    index = tuple(where.nonzero()[0].tolist())
    return {
        name: each.expand(where.shape)[index].clone() if isinstance(each, Tensor) else each
        for name, each in met.arguments.items()
    }


def _set(kink: Kink, met: Met, where: Tensor) -> str:
    if isinstance(kink.set, Pole):
        return f"infinite slope ({kink.set.side})"
    if isinstance(kink.set, Jump) or not kink.is_entrywise:
        return str(kink.set)
    call = _at_entry(kink, met, where)
    return str(kink.set.at({name: each.item() if isinstance(each, Tensor) else each for name, each in call.items()}))


def _picks(kink: Kink, met: Met, where: Tensor) -> dict[str, dict[str, float]]:
    """What each convention takes at the first entry, measured with that entry alone."""
    if isinstance(kink.set, Jump) or not kink.is_entrywise:
        return {}
    call = _at_entry(kink, met, where)
    names = tuple(name for name in met.names if name in kink.set.candidates)
    found = {}
    for convention in CHOICES:
        leaves = {name: call[name].clone().requires_grad_() for name in names}
        with use(convention):
            out = call_by_name(met.op, {**call, **leaves})
        # Given as an argument, the cotangent would have torch import its symbolic shapes, which takes a second.
        weights = torch.autograd.grad(out * COTANGENT, list(leaves.values()), materialize_grads=True)
        found[convention] = {name: float(each) / COTANGENT for name, each in zip(names, weights, strict=True)}
    return found


def own(subject: Subject) -> Own:
    """The expression as a whole; a refusal in words."""
    names = list(subject.inputs)
    numbers = tuple(names.index(name) for name in subject.wrt)
    arguments = [each.detach().clone() for each in subject.inputs.values()]
    function = subject.evaluation.function
    try:
        found = clarke.elements(function, argnums=numbers, tries=TRIES)(*arguments)
        least = clarke.min_norm(function, argnums=numbers)(*arguments) if len(found) > 1 else None
    except clarke.Refused as error:
        return Own(refused=without_lines(str(error), [subject.expression]))
    first = next(iter(found))
    if not isfinite(float(first.value)):
        return Own(refused=f"Its value is {float(first.value)} here.")
    gradients = tuple(_by_name(subject, each.gradient) for each in found)
    if least is None:
        return Own(gradients, kinks=first.kinks, extrapolated=first.extrapolated)
    return Own(gradients, _by_name(subject, least.element), least.convex, first.kinks, first.extrapolated)


def _by_name(subject: Subject, tensors: Sequence[Tensor]) -> Gradient:
    return {name: Numbers.of(each) for name, each in zip(subject.wrt, tensors, strict=True)}
