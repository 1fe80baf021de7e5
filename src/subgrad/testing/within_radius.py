"""What the gradients of a function at a point must be, by its values and gradients within a radius.

Gradients at points nearby are those of the values around them. So are the slopes of the values from the point to them,
and along single entries. And the gradient at the point lies in the hull of the gradients nearby.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from subgrad.testing.complaint import MOST, Complaint, number, vector
from subgrad.testing.hull import Hull, Separated
from subgrad.testing.neighbourhood import Neighbourhood, Sample
from subgrad.testing.program import Program
from subgrad.testing.tolerance import Tolerance

PAIRS = 4  # of opposite directions in which it is looked first
TILT = 1e-4  # beside a single entry
VERIFIED = 16  # gradients of a hull that are held against values, besides the first

# Makes a complaint of a sentence, the entry of the result, the entries of the inputs, and facts.
About = Callable[..., Complaint]


class WithinRadius:
    """A neighbourhood, and the gradients at the point that are in question.

    Args:
        is_thorough: whether a gradient is only refused after a long search for those nearby that would allow it.
    """

    def __init__(self, around: Neighbourhood, rows: Tensor, about: About, is_thorough: bool):
        self.around, self.rows, self.about, self.is_thorough = around, rows, about, is_thorough
        self.program, self.tolerance = around.program, around.tolerance

    def complaint(self) -> Complaint | None:
        for _ in range(PAIRS):
            place = random_place(self.program)
            for sign in (1, -1):
                found = self.not_of_values(self.around.sample(sign * place))
                if found is not None:
                    return found
        return self.not_along_entries() or self.not_inside()

    # Gradients nearby against values.

    def not_of_values(self, sample: Sample, first: int = 0) -> Complaint | None:
        """What is wrong with the gradients at a point nearby, of some entries of the result."""
        entries = slice(first, first + len(sample.value))
        is_known = sample.value.isfinite()
        wrong = is_known & ~sample.rows.isfinite().all(1)
        if bool(wrong.any()):
            what = "A gradient at a point nearby is not finite, and the values there are."
            return self.nearby(what, sample, first, int(wrong.nonzero()[0]))
        wrong = self.around.slopes_around(sample, random_place(self.program), entries) & is_known
        if bool(wrong.any()):
            what = "The gradient at a point nearby is not that of the values there."
            return self.nearby(what, sample, first, int(wrong.nonzero()[0]))
        wrong = self.around.slope_from_here(sample, entries) & is_known
        if not bool(wrong.any()):
            return None
        entry = int(wrong.nonzero()[0])
        what = "The values from this point on do not follow the gradients nearby."
        if self.is_steep(sample, first + entry):
            what = "The function jumps at this point, or its slope is infinite: no generalised derivatives exist there."
        return self.nearby(what, sample, first, entry)

    def is_steep(self, sample: Sample, entry: int) -> bool:
        """Whether quotients from the point grow as the step shrinks."""
        sizes = []
        for share in (1, 1 / 64):
            there, _ = self.around.moved(share * sample.place)
            sizes.append(abs(float(self.program.value_at(there)[entry] - self.program.value[entry])) / share)
        return sizes[1] > 4 * sizes[0]

    def not_along_entries(self) -> Complaint | None:
        """Slopes of the values along single entries, which the gradients nearby must reach."""
        unknown = torch.stack([~each.value.isfinite() for each in self.around.samples])[:, :, None]
        rows = torch.stack([each.rows for each in self.around.samples])
        low = rows.masked_fill(unknown, torch.inf).amin(0)
        high = rows.masked_fill(unknown, -torch.inf).amax(0)
        noise = self.around.noise(self.around.samples[0])
        for column in self.around.scale.nonzero()[:, 0].tolist():
            for sign in (1.0, -1.0):
                place = torch.zeros_like(self.around.scale)
                place[column] = sign
                there, _ = self.around.moved(place)
                step = float(there[column] - self.program.here[column])
                slope = (self.program.value_at(there) - self.program.value) / step
                allowed = self.tolerance.of(torch.maximum(low[:, column].abs(), high[:, column].abs())) + noise / abs(
                    step
                )
                outside = (slope < low[:, column] - allowed) | (slope > high[:, column] + allowed)
                for entry in outside.nonzero()[:, 0].tolist():
                    found = self.not_of_values(self.around.row(place + TILT * random_place(self.program), entry), entry)
                    if found is not None:
                        return found
        return None

    def nearby(self, what: str, sample: Sample, first: int, entry: int) -> Complaint:
        here, there = self.program.value[first + entry], sample.value[entry]
        facts = (
            ("moved by", vector(sample.vector - self.program.here)),
            ("gradient", f"{vector(sample.rows[entry])} there"),
            ("values", f"{float(here):.17g} at the point, {float(there):.17g} there"),
        )
        return self.about(what, first + entry, range(self.program.inputs.size), *facts)

    # The gradient at the point against those nearby.

    def not_inside(self) -> Complaint | None:
        rows = torch.stack([each.rows for each in self.around.samples])
        is_known = torch.stack([each.value.isfinite() for each in self.around.samples])
        allowed = self.tolerance.of(rows.abs().amax(0))
        are_equal = ((rows - self.rows).abs() <= allowed).all(2) & is_known
        for entry in (~are_equal.any(0)).nonzero()[:, 0].tolist():
            found = self.entry_not_inside(entry)
            if found is not None:
                return found
        return None

    def hull(self, entry: int) -> Hull:
        """Of the gradients of one entry of the result; empty yet."""

        def nearby(place: Tensor) -> Tensor | None:
            sample = self.around.row(place, entry)
            is_known = bool(sample.value.isfinite().all()) and bool(sample.rows.isfinite().all())
            return sample.rows[0] if is_known else None

        return Hull(nearby, self.tolerance.of, self.program.generator)

    def entry_not_inside(self, entry: int) -> Complaint | None:
        hull = self.hull(entry)
        known = [each for each in self.around.samples if bool(each.value[entry].isfinite())]
        hull.places += [(each.place, each.rows[entry]) for each in known]
        found = hull.separates(self.rows[entry], self.is_thorough)
        if found is not None:
            return self.outside(entry, hull.vertices, found)
        if not hull.places:
            columns = range(self.program.inputs.size)
            return self.about("No value nearby is finite: nothing can be said of the gradient.", entry, columns)
        added = (self.around.row(place, entry) for place, _ in hull.places[len(known) :][:VERIFIED])
        complaints = (self.not_of_values(each, entry) for each in added)
        return next((each for each in complaints if each is not None), None)

    def outside(self, entry: int, vertices: Tensor, found: Separated) -> Complaint:
        g, unit = self.rows[entry], self.tolerance.of(vertices.abs().amax(0))
        low, high = vertices.amin(0), vertices.amax(0)
        matter = ((high - low > unit) | (g < low - unit) | (g > high + unit)).nonzero()[:, 0].tolist()
        shown, within = in_words(vertices, matter, self.tolerance), f"within {number(self.around.radius)}"
        if not shown.startswith("hull"):
            what = "The gradient is not that of the values."
            return self.about(what, entry, matter, ("values", f"have the gradient {shown}, {within}"))
        reaches = f"{number(found.reaches)}, and the set reaches {number(found.furthest)}"
        facts = (
            ("set", f"{shown}, {within}"),
            ("nearest", vector(found.nearest, matter)),
            ("along", f"{vector(found.direction, matter)} it is {reaches}"),
        )
        what = "The gradient is no element of the set of generalised derivatives."
        return self.about(what, entry, matter, *facts)


def random_place(program: Program) -> Tensor:
    """A vector to a point nearby, in units of the radius."""
    return 2 * torch.rand(program.inputs.size, generator=program.generator, dtype=torch.float64) - 1


def in_words(vertices: Tensor, columns: Sequence[int], tolerance: Tolerance) -> str:
    """``hull of (0, 1), (1, 0)``: some entries of gradients, as far as these differ."""
    chosen = vertices[:, list(columns)]
    unit = tolerance.of(chosen.abs().amax(0))
    distinct: list[Tensor] = []
    for each in chosen:
        if not any(bool(((each - known).abs() <= unit).all()) for known in distinct):
            distinct.append(each)
    shown = ", ".join(map(vector, distinct[: MOST // 2]))
    more = f" and {len(distinct) - MOST // 2} more" if len(distinct) > MOST // 2 else ""
    return f"hull of {shown}{more}" if len(distinct) > 1 else shown
