"""A function around a point: its values there, and the gradients that autograd returns, held against them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from subgrad.testing.program import Program, Tape
from subgrad.testing.tolerance import Tolerance

# How far apart the values of a quotient are, in radii: near enough to miss kinks, then far enough to round little.
STEPS = (1 / 4, 1 / 32, 4.0, 64.0)
NEXT, TRIED = 1 / 1024, 6  # values that lie on a line but for rounding
ON_THE_WAY = (1 / 2, 1 / 16, 1 / 256, 1 / 4096)  # from the point to a sample


@dataclass(frozen=True)
class Sample:
    """A point nearby.

    Attributes:
        place: where it lies from the point, in units of the radius.
        vector: itself.
        value, rows: of the function, and its Jacobian.
    """

    place: Tensor
    vector: Tensor
    value: Tensor
    rows: Tensor


@dataclass
class Neighbourhood:
    """What lies within a radius.

    Attributes:
        scale: how far one unit moves each entry.
        samples: points nearby that were looked at.
        is_blurred: rounding has hidden whether something is wrong.
    """

    program: Program
    radius: float
    tolerance: Tolerance
    is_forward: bool = False
    scale: Tensor = field(init=False)
    samples: list[Sample] = field(default_factory=list)
    is_blurred: bool = False

    def __post_init__(self) -> None:
        here = self.program.here
        self.scale = torch.where(here.isfinite(), self.radius * here.abs().clamp(min=1), 0)

    def moved(self, place: Tensor) -> tuple[Tensor, Tensor]:
        """The point moved, as far as its numbers can, and by how much that is, in units of the radius."""
        vector = self.program.inputs.rounded(
            torch.where(self.scale > 0, self.program.here + self.scale * place, self.program.here)
        )
        return vector, torch.where(self.scale > 0, (vector - self.program.here) / self.scale, 0)

    def sample(self, place: Tensor) -> Sample:
        vector, actual = self.moved(place)
        tape = self.program.run(vector)
        self.samples.append(Sample(actual, vector, tape.value, self.jacobian(tape, vector)))
        return self.samples[-1]

    def jacobian(self, tape: Tape, vector: Tensor | None) -> Tensor:
        return self.program.columns(vector) if self.is_forward else tape.rows()

    def row(self, place: Tensor, entry: int) -> Sample:
        """One entry of the result at a point nearby, and its gradient."""
        vector, actual = self.moved(place)
        tape = self.program.run(vector)
        row = self.program.columns(vector)[entry] if self.is_forward else tape.row(entry)
        return Sample(actual, vector, tape.value[entry : entry + 1], row[None])

    # Gradients against values. All of them take several entries of the result at once.

    def slopes_around(self, sample: Sample, along: Tensor, entries: slice = slice(None)) -> Tensor:
        """Which gradients at a sample are not those of the values around it, along a vector.

        Quotients with several steps are tried. One that agrees, and rounds little, is enough. One that does not tells
        something if values lie on a line there, and by their gradients as well: otherwise a kink lies between.
        """
        said, allowed = sample.rows @ (self.scale * along), self.allowed(sample.rows, along)
        noise, is_measured = self.noise(sample), False
        is_open, suspects = torch.ones_like(said, dtype=torch.bool), []
        for step in STEPS:
            ends = [self.value_beside(sample, sign * step * along)[entries] for sign in (1, -1)]
            ahead, behind = (ends[0] - sample.value) / step, (sample.value - ends[1]) / step
            error = ((ahead + behind) / 2 - said).abs()
            if not is_measured and bool((is_open & ~(error <= allowed + noise / step)).any()):
                noise, is_measured = torch.maximum(noise, self.measured_noise(sample, along, entries)), True
            within = allowed + noise / step
            is_open &= ~((error <= within) & (noise / step <= allowed))
            suspects.append((step, ~(error <= within) & ((ahead - behind).abs() <= 2 * within)))
            if not bool(is_open.any()):
                break
        wrong = torch.zeros_like(is_open)
        for step, among in suspects:
            wrong |= self.are_lines(sample, (step * along, -step * along), along, entries, among & is_open & ~wrong)
        self.is_blurred |= bool((is_open & ~wrong & (noise / STEPS[0] > allowed)).any())
        return wrong

    def slope_from_here(self, sample: Sample, entries: slice = slice(None)) -> Tensor:
        """Which gradients at a sample are not the one-sided slopes of the values from the point to it.

        Where gradients change on the way, a kink lies beside the point, and nothing follows.
        """
        said = sample.rows @ (self.scale * sample.place)
        error = (sample.value - self.program.value[entries] - said).abs()
        allowed = self.allowed(sample.rows, sample.place)
        off = ~(error <= allowed)
        if not bool(off.any()):
            return off
        wrong = off & ~(error <= allowed + self.noise(sample))
        if bool(wrong.any()):
            wrong &= ~(error <= allowed + 2 * self.measured_noise(sample, sample.place, entries))
        self.is_blurred |= bool((off & ~wrong).any())
        return self.are_lines(sample, [(part - 1) * sample.place for part in ON_THE_WAY], sample.place, entries, wrong)

    def are_lines(
        self, sample: Sample, places: Sequence[Tensor], along: Tensor, entries: slice, among: Tensor
    ) -> Tensor:
        """Those of some entries whose slope along a vector is at places beside a sample, by autograd, as there.

        Values alone do not tell: quotients may agree across a sliver between kinks, as at the median of numbers.
        """
        said, allowed = sample.rows @ (self.scale * along), self.allowed(sample.rows, along)
        same, first = among.clone(), entries.start or 0
        for place in places:
            chosen = same.nonzero()[:, 0]
            if not len(chosen):
                break
            vector = self.program.inputs.rounded(sample.vector + self.scale * place)
            if self.is_forward:
                slopes = self.program.pushed(self.scale * along, vector)[first + chosen]
            else:
                tape = self.program.run(vector)
                slopes = torch.stack([tape.row(first + entry) for entry in chosen.tolist()]) @ (self.scale * along)
            same[chosen] = (slopes - said[chosen]).abs() <= 2 * allowed[chosen]
        return same

    def value_beside(self, sample: Sample, place: Tensor) -> Tensor:
        return self.program.value_at(self.program.inputs.rounded(sample.vector + self.scale * place))

    def allowed(self, rows: Tensor, along: Tensor) -> Tensor:
        """What products of gradients with a vector may be off by, in units of the radius."""
        return self.tolerance.of(rows) @ (self.scale * along).abs()

    def noise(self, sample: Sample) -> Tensor:
        """What rounding leaves of differences of values, if little cancels on the way to them."""
        terms = sample.value.abs() + sample.rows.abs() @ torch.where(sample.vector.isfinite(), sample.vector, 0).abs()
        return 16 * self.tolerance.rounding * terms

    def measured_noise(self, sample: Sample, along: Tensor, entries: slice) -> Tensor:
        """The same where much does: what values next to each other differ by from a line."""
        values = [self.value_beside(sample, number * NEXT * along)[entries] for number in range(TRIED)]
        bends = [(one - 2 * two + three).abs() for one, two, three in zip(values, values[1:], values[2:], strict=False)]
        return 4 * torch.stack(bends).amax(0).nan_to_num(0.0)
