"""Gradients of gradients: at kinks the gradient jumps, and its derivative lies between those nearby, entry by entry."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from subgrad.testing.check import Check
from subgrad.testing.complaint import Complaint, number, vector
from subgrad.testing.hull import Hull
from subgrad.testing.inputs import Inputs
from subgrad.testing.neighbourhood import Neighbourhood, Sample
from subgrad.testing.program import Program, nonconstant
from subgrad.testing.responsible import responsible
from subgrad.testing.tolerance import Tolerance
from subgrad.testing.within_radius import PAIRS, random_place


def with_gradients(program: Program, grad_outputs: Any) -> tuple[Callable[..., Any], Inputs]:
    """The gradient as a function of the inputs and the cotangents, and these."""
    count = len(program.inputs.tensors)
    cotangents = _cotangents(program, grad_outputs)

    def gradients(*given: Tensor) -> tuple[Tensor, ...]:
        leaves = [each if each.requires_grad else each.requires_grad_() for each in given[:count]]
        outputs = program.outputs_of(leaves)
        pairs = [(y, u) for y, u in zip(outputs, given[count:], strict=True) if y.requires_grad]
        if not pairs:
            return tuple(torch.zeros_like(each) for each in leaves)
        return torch.autograd.grad(
            [y for y, _ in pairs],
            leaves,
            [u for _, u in pairs],
            create_graph=True,
            allow_unused=True,
            materialize_grads=True,
        )

    given = program.inputs
    paths = [*(given.paths[k] for k in given.chosen), *(f"grad_outputs[{k}]" for k in range(len(cotangents)))]
    return gradients, Inputs((*(each.detach() for each in given.tensors), *cotangents), paths)


def _cotangents(program: Program, grad_outputs: Any) -> list[Tensor]:
    outputs = program.run().tensors
    if grad_outputs is not None:
        given = [grad_outputs] if isinstance(grad_outputs, Tensor) else list(grad_outputs)
        if [each.shape for each in given] != [each.shape for each in outputs]:
            shapes = [list(each.shape) for each in outputs]
            raise ValueError(f"grad_outputs must have the shapes of the results, {shapes}.")
        return [each.detach() for each in given]
    return [nonconstant(each.numel(), program.generator).view(each.shape).to(each) for each in outputs]


class SecondOrder(Check):
    """The derivative of a gradient.

    Attributes:
        first: the function whose gradient that is.
    """

    def __init__(self, first: Program, second: Program, tolerance: Tolerance, is_forward: bool):
        self.first = first
        super().__init__(second, tolerance, is_forward)

    def lines(self) -> tuple[str, ...]:
        return responsible(self.program) or responsible(self.first)  # a gradient without a graph names nobody

    def within(self, around: Neighbourhood, is_thorough: bool) -> Complaint | None:
        for _ in range(PAIRS):
            place = random_place(self.program)
            for sign in (1, -1):
                sample = around.sample(sign * place)
                wrong = around.slopes_around(sample, random_place(self.program)) | ~sample.rows.isfinite().all(1)
                wrong &= sample.value.isfinite()
                if bool(wrong.any()):
                    return self.not_of_gradients(sample, int(wrong.nonzero()[0]))
        rows = torch.stack([each.rows for each in around.samples])
        allowed = self.tolerance.of(rows.abs().amax(0))
        outside = (self.rows < rows.amin(0) - allowed) | (self.rows > rows.amax(0) + allowed)
        complaints = (self.not_between(around, *place) for place in outside.nonzero().tolist())
        return next((each for each in complaints if each is not None), None)

    def not_of_gradients(self, sample: Sample, entry: int) -> Complaint:
        """About a second derivative at a point nearby."""
        there = float(sample.value[entry])
        facts = (
            ("moved by", vector(sample.vector - self.program.here)),
            ("second", f"{vector(sample.rows[entry])} is the derivative that autograd returns there"),
            ("gradient", f"{float(self.program.value[entry]):.17g} at the point, {there:.17g} there"),
        )
        what = "The second derivative at a point nearby is not that of the gradient there."
        return self.about(what, entry, range(self.program.inputs.size), *facts)

    def not_between(self, around: Neighbourhood, entry: int, column: int) -> Complaint | None:
        """One entry of the derivative against the same nearby."""

        def nearby(place: Tensor) -> Tensor | None:
            row = around.row(place, entry).rows[0]
            return row if bool(row.isfinite().all()) else None

        hull = Hull(nearby, self.tolerance.of, self.program.generator)
        hull.places += [(each.place, each.rows[entry]) for each in around.samples]
        if hull.covers(self.rows[entry], column):
            return None
        values = hull.vertices[:, column]
        said = number(self.rows[entry, column])
        facts = (
            ("of", f"{self.program.name(entry)}, in {self.program.inputs.name(column)}"),
            ("returned", said),
            ("nearby", f"from {number(values.min())} to {number(values.max())}, within {number(around.radius)}"),
        )
        return Complaint("A second derivative does not lie between those nearby.", facts, self.lines())
