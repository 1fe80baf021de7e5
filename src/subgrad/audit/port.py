"""`compare` with a reference: how much of the difference to another framework's gradients the kinks explain."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from subgrad.apply.scopes import active
from subgrad.audit.attribution import Gradients, Graph, responsible
from subgrad.audit.call_site import Site
from subgrad.audit.compare_batch import Parameters, graph_of, left_as_it_was, named_parameters
from subgrad.audit.effects import Cause, listed, not_seen, plural, size, spelled
from subgrad.audit.switches import Line
from subgrad.conventions import CHOICES, Convention, several

Reference = str | PathLike[str] | Mapping[str, Any]
# Frameworks add up in orders of their own: so many times the spacing of numbers are no difference.
ROUNDINGS = 4096


@dataclass(frozen=True)
class Unexplained:
    """What the kinks do not explain of one parameter.

    Attributes:
        entries: of the parameter.
        differ: how many of its gradient still differ from the reference.
        relative: the norm of the difference over that of the reference; None where that is 0.
    """

    parameter: str
    entries: int
    differ: int
    relative: float | None


@dataclass(frozen=True)
class Port:
    """How far gradients here are from a reference, before and after the kinks are answered as there.

    Attributes:
        reference: the file, or "the reference".
        before: the convention in force.
        convention: the one under which the gradients are nearest to the reference.
        also: others under which they are the same as under that one.
        elsewhere: lines that come nearer under another convention yet, with its name.
        distance: the norm of the difference over that of the reference, as the program runs; None where that is 0.
        left: the same under the convention.
        differ: how many entries differ as the program runs.
        causes: the call sites that make the difference between the two.
        unexplained: the parameters that still differ.
        unseen: what the gradients depend on and was not looked at, in words.
    """

    reference: str
    before: str
    convention: str
    also: tuple[str, ...]
    elsewhere: tuple[tuple[Site, str, str], ...]
    distance: float | None
    left: float | None
    differ: int
    causes: tuple[Cause, ...]
    unexplained: tuple[Unexplained, ...]
    unseen: tuple[str, ...] = ()

    @property
    def explained(self) -> float:
        """The share of the difference that is gone when the kinks are answered as in the reference, from 0 to 1."""
        if not self.unexplained:
            return 1.0
        if not self.distance or self.left is None:
            return 0.0
        return max(0.0, 1.0 - self.left / self.distance)

    @property
    def verdict(self) -> str:
        """In sentences: what the kinks explain, under which convention, in which lines, and what they do not."""
        if not self.differ:
            return f"These gradients are those of {self.reference}, under {self.before}: there is nothing to explain."
        return " ".join(filter(None, (self._said(), self._how(), self._rest(), not_seen(self.unseen))))

    def _said(self) -> str:
        apart = f"Gradients under {self.before} differ from {self.reference} by {size(self.distance)} of its norm"
        if not self.causes:
            return f"{apart}, in {plural(self.differ, 'entry', 'entries')}. The kinks explain none of it."
        return f"{apart}. The kinks explain {self.explained:.0%} of that: {self.convention} answers them as it does."

    def _how(self) -> str:
        if not self.causes:
            return ""
        lines = f"The lines are {listed(self.causes)}."
        others = "".join(f" At {site} (`{operator}`) it is {name}." for site, operator, name in self.elsewhere)
        around = "".join(
            f", subgrad.use({spelled(name)}) around {'your call of ' * site.is_installed}{site}"
            for site, _, name in self.elsewhere
        )
        return f"{lines}{others} To have its gradients: subgrad.set_default({spelled(self.convention)}){around}."

    def _rest(self) -> str:
        if not self.unexplained:
            return ""
        named = ", ".join(
            f"{each.parameter} ({each.differ:,} of {plural(each.entries, 'entry', 'entries')}, {size(each.relative)})"
            for each in self.unexplained
        )
        return f"Not explained: {named}. Look there for another cause than kinks."

    def __str__(self) -> str:
        return self.verdict


def compare_with(
    closure: Callable[[], Any],
    params: Parameters,
    reference: Reference,
    conventions: Sequence[str | Convention] | None,
    rtol: float | None,
) -> Port:
    """See `compare`."""
    chosen = several("conventions", CHOICES if conventions is None else conventions, least=1)
    named = named_parameters(params)
    wanted = _read(reference, named)
    with left_as_it_was(named):
        graph = graph_of(closure, named, (active(), *chosen))
        return _Search(graph, wanted, rtol).port(_label(reference), chosen)


def _label(reference: Reference) -> str:
    return "the reference" if isinstance(reference, Mapping) else Path(reference).name


def _read(reference: Reference, named: Mapping[str, Tensor]) -> list[Tensor]:
    """The gradients of the reference in the order of the parameters.

    Raises:
        ValueError: for names and shapes that are not those of the parameters.
    """
    given = reference if isinstance(reference, Mapping) else _of_file(reference)
    missing, spare = [name for name in named if name not in given], [name for name in given if name not in named]
    if missing or spare:
        raise ValueError(
            f"The reference does not hold the gradients of these parameters. Missing: {', '.join(missing) or 'none'}; "
            f"not a parameter: {', '.join(spare) or 'none'}. Name each array as the parameter is named: "
            f"{', '.join(named)}."
        )
    found = []
    for name, parameter in named.items():
        dtype = torch.promote_types(parameter.dtype, torch.float64)
        gradient = torch.as_tensor(given[name], dtype=dtype, device=parameter.device).detach()
        if gradient.shape != parameter.shape:
            turned = " It is that of its transpose: give it as .T." if gradient.shape == parameter.shape[::-1] else ""
            raise ValueError(
                f"The reference has {tuple(gradient.shape)} for the gradient of {name}, which is "
                f"{tuple(parameter.shape)}.{turned}"
            )
        found.append(gradient)
    return found


def _of_file(path: str | PathLike[str]) -> Mapping[str, Any]:
    import numpy  # needed for files alone

    with numpy.load(path) as arrays:
        return {name: arrays[name] for name in arrays.files}


@dataclass(frozen=True)
class _Distance:
    """How many entries differ from the reference, and the norm of the difference."""

    differ: int
    norm: float

    def is_less(self, other: _Distance) -> bool:
        return (self.differ, self.norm) < (other.differ, other.norm)


class _Search:
    """Gradients of one graph, held against a reference."""

    def __init__(self, graph: Graph, wanted: list[Tensor], rtol: float | None):
        self.graph, self.wanted = graph, wanted
        self.rtol = _roundings(graph) if rtol is None else rtol
        self.norm = sum(float(each.norm()) ** 2 for each in wanted) ** 0.5

    def port(self, reference: str, conventions: Sequence[Convention]) -> Port:
        before = self.graph.gradients(lambda line: None)
        own, names = self.distance(before), [*self.graph.parameters]
        best, also, choices = self._nearest(conventions, own)
        elsewhere = self._elsewhere(choices, conventions) if best is not None else ()
        after = self.graph.gradients(choices.get)
        causes = responsible(self.graph, before, after, None, choices.get) if own.differ else ()
        left = zip(names, self._apart(after), strict=True)
        unexplained = [Unexplained(name, size, differ, ratio) for name, (size, differ, _, ratio) in left if differ]
        return Port(
            reference,
            str(active()),
            str(active() if best is None else best),
            tuple(map(str, also)),
            tuple((*line, str(choice)) for line, choice in elsewhere),
            self._relative(own.norm),
            self._relative(self.distance(after).norm),
            own.differ,
            causes,
            tuple(unexplained),
            self.graph.unseen,
        )

    def _nearest(
        self, conventions: Sequence[Convention], own: _Distance
    ) -> tuple[Convention | None, list[Convention], dict[Line, Convention]]:
        """The convention that comes nearest, those that come as near, and what it says line by line."""
        best, also, least = None, [], own
        for each in conventions:
            found = self.distance(self.graph.gradients(lambda line, each=each: each))
            if found.is_less(least):
                best, also, least = each, [], found
            elif best is not None and found == least:
                also.append(each)
        return best, also, {} if best is None else dict.fromkeys(self.graph.board.lines, best)

    def _elsewhere(
        self, choices: dict[Line, Convention], conventions: Sequence[Convention]
    ) -> Sequence[tuple[Line, Convention]]:
        """Lines at which another convention leaves fewer entries different, line by line; it is taken there."""
        found = []
        least = self.distance(self.graph.gradients(choices.get))
        for line in choices:
            for each in conventions if least.differ else ():
                tried = self.distance(self.graph.gradients({**choices, line: each}.get))
                if tried.differ < least.differ:
                    least, choices[line] = tried, each
                    found.append((line, each))
        return [(line, choice) for line, choice in dict(found).items()]

    def distance(self, gradients: Gradients) -> _Distance:
        apart = self._apart(gradients)
        return _Distance(sum(differ for _, differ, _, _ in apart), sum(norm**2 for *_, norm, _ in apart) ** 0.5)

    def _apart(self, gradients: Gradients) -> list[tuple[int, int, float, float | None]]:
        """For each parameter its entries, how many differ, the norm of that, and over the norm of the reference."""
        rows = []
        for each, wanted in zip(gradients, self.wanted, strict=True):
            found = torch.zeros_like(wanted) if each is None else each.to(wanted.dtype)
            scale = wanted.abs().max() if wanted.numel() else 0.0
            is_same = (found == wanted) | (found.isnan() & wanted.isnan())
            difference = torch.where(is_same, 0, found - wanted)
            differ = ~is_same & ~(difference.abs() <= self.rtol * scale)
            norm, of_wanted = float(difference.norm()), float(wanted.norm())
            rows.append((wanted.numel(), int(differ.sum()), norm, norm / of_wanted if of_wanted > 0 else None))
        return rows

    def _relative(self, norm: float) -> float | None:
        return norm / self.norm if self.norm > 0 else None


def _roundings(graph: Graph) -> float:
    """What two frameworks may differ by, of the largest entry."""
    spacings = [torch.finfo(each.dtype).eps for each in graph.parameters.values()]
    return ROUNDINGS * max(spacings, default=0.0)
