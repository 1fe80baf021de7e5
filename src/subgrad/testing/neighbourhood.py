"""A function around a point: its values there, and the gradients that autograd returns, held against them."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from subgrad.testing.program import Program, Tape
from subgrad.testing.tolerance import Tolerance

# How far apart the values of a quotient are, in radii: near enough to miss kinks, then far enough to round little.
STEPS = (1 / 4, 1 / 32, 4.0, 64.0)
NEXT, TRIED = 1 / 1024, 6  # values that lie on a line but for rounding


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
    """

    program: Program
    radius: float
    tolerance: Tolerance
    is_forward: bool = False
    scale: Tensor = field(init=False)
    samples: list[Sample] = field(default_factory=list)

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

        Quotients with several steps are tried, and one that agrees is enough. Where those of the small steps all differ
        from one side to the other a kink lies between, and nothing follows.
        """
        said, noise = sample.rows @ (self.scale * along), self.noise(sample)
        differs, is_bent = torch.ones_like(said, dtype=torch.bool), torch.ones_like(said, dtype=torch.bool)
        for step in STEPS:
            ends = [self.value_beside(sample, sign * step * along)[entries] for sign in (1, -1)]
            ahead, behind = (ends[0] - sample.value) / step, (sample.value - ends[1]) / step
            allowed = self.allowed(sample.rows, along) + noise / step
            if bool((((ahead + behind) / 2 - said).abs() > allowed).any()):
                noise = torch.maximum(noise, self.measured_noise(sample, along, entries))
                allowed = self.allowed(sample.rows, along) + noise / step
            differs &= ((ahead + behind) / 2 - said).abs() > allowed
            if step < 1:
                is_bent &= ~((ahead - behind).abs() <= 2 * allowed)
            if not bool(differs.any()):
                break
        return differs & ~is_bent

    def slope_from_here(self, sample: Sample, entries: slice = slice(None)) -> Tensor:
        """Which gradients at a sample are not the one-sided slopes of the values from the point to it."""
        said = sample.rows @ (self.scale * sample.place)
        error = (sample.value - self.program.value[entries] - said).abs()
        allowed = self.allowed(sample.rows, sample.place)
        wrong = error > allowed + self.noise(sample)
        if bool(wrong.any()):
            wrong &= error > allowed + 2 * self.measured_noise(sample, sample.place, entries)
        return wrong

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
