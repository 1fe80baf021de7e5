"""Whether the gradients of a function at a point are elements of its generalised sets, entry by entry of the result.

In this order: they are finite; backward is a product with the cotangent; and they are what `within_radius` says of the
values and gradients nearby. Something found within one radius that is not found within smaller ones belongs to a kink
beside the point, and nothing is wrong; unless rounding hides it there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from torch import Tensor

from subgrad.testing.complaint import MOST, Complaint, number, vector
from subgrad.testing.neighbourhood import Neighbourhood
from subgrad.testing.program import Program, nonconstant
from subgrad.testing.responsible import responsible
from subgrad.testing.tolerance import Tolerance
from subgrad.testing.within_radius import WithinRadius, in_words, random_place

SMALLER = (1.0, 1 / 16, 1 / 256, 1 / 4096)  # radii, of the one that is asked for


class Check:
    """The gradients of a function at its inputs.

    Attributes:
        tape: the run whose gradients are in question.
        rows: its Jacobian, by the mode that is checked.
    """

    def __init__(self, program: Program, tolerance: Tolerance, is_forward: bool = False):
        self.program, self.tolerance, self.is_forward = program, tolerance, is_forward
        self.tape = program.run()
        self.rows = program.columns() if is_forward else self.tape.rows()

    def complaint(self) -> Complaint | None:
        found = self.not_finite() or self.not_a_product()
        return self.in_all_radii() if found is None else found

    def in_all_radii(self) -> Complaint | None:
        complaints = []
        for share in SMALLER:
            around = self.around(share)
            complaints.append(self.within(around, is_thorough=share == 1))
            if complaints[-1] is None and not (complaints[0] and around.is_blurred):
                return None
        return complaints[0]

    def within(self, around: Neighbourhood, is_thorough: bool) -> Complaint | None:
        """What is wrong within a radius."""
        return WithinRadius(around, self.rows, self.about, is_thorough).complaint()

    def around(self, share: float = 1.0) -> Neighbourhood:
        return Neighbourhood(self.program, share * self.tolerance.eps, self.tolerance, self.is_forward)

    def not_finite(self) -> Complaint | None:
        values = self.program.value
        if not bool(values.isfinite().all()):
            entry = int((~values.isfinite()).nonzero()[0])
            said = f"{self.program.name(entry)} is {number(values[entry])} at this point"
            return self.about(f"{said}: there is nothing to differentiate.", entry, ())
        wrong = ~self.rows.isfinite()
        if not bool(wrong.any()):
            return None
        entry = int(wrong.any(1).nonzero()[0])
        said = f"The gradient of {self.program.name(entry)} is not finite"
        columns = wrong[entry].nonzero()[:, 0].tolist()
        return self.about(f"{said}, and its value is {number(values[entry])}.", entry, columns)

    def not_a_product(self) -> Complaint | None:
        """Whether the derivative is no linear map: it squares what it is given, drops it, or adds to it."""
        size = self.program.inputs.size if self.is_forward else self.program.size
        given = nonconstant(size, self.program.generator)
        matrix = self.rows.T if self.is_forward else self.rows
        found = self.program.pushed(given) if self.is_forward else self.tape.pulled(given)
        wanted = given @ matrix
        allowed = self.tolerance.of(given.abs() @ matrix.abs())
        wrong = (~((found - wanted).abs() <= allowed)).nonzero()[:, 0].tolist()
        if not wrong:
            return None
        kind, mode = ("tangent", "Forward mode") if self.is_forward else ("cotangent", "Backward")
        name = self.program.name if self.is_forward else self.program.inputs.name
        facts = (
            (kind, vector(given)),
            ("returned", f"{number(found[wrong[0]])} for {name(wrong[0])}"),
            ("product", f"{number(wanted[wrong[0]])}, by what it returns for the entries of the {kind} one by one"),
        )
        what = f"{mode} does not multiply by the {kind}: what it returns is not linear in it."
        return Complaint(what, facts, self.lines())

    def set_in_words(self, entry: int, rows: Sequence[Tensor], columns: Sequence[int]) -> str | None:
        """The gradients of one entry nearby, as far as some columns go, and which of two rows are in their hull."""
        hull = WithinRadius(self.around(), self.rows, self.about, is_thorough=False).hull(entry)
        for _ in range(4):
            place = random_place(self.program)
            hull.places += [*hull.found(place), *hull.found(-place)]
        if not hull.places:
            return None
        inside = [bool(row.isfinite().all()) and hull.separates(row, is_thorough=False) is None for row in rows]
        said = {(True, True): "both are in it", (True, False): "that of f is in it, that of g is not"}
        said |= {(False, True): "that of g is in it, that of f is not", (False, False): "neither is in it"}
        return f"{in_words(hull.vertices, columns, self.tolerance)}: {said[inside[0], inside[1]]}"

    def about(self, what: str, entry: int, columns: Iterable[int], *facts: tuple[str, str]) -> Complaint:
        """A complaint about the gradient of one entry of the result, with the entries of the inputs that matter."""
        shown = list(columns)
        point = self.program.inputs.in_words(self.program.here, shown)
        returned = ("returned", vector(self.rows[entry], shown))
        given = (("point", point), returned, *facts) if shown else facts
        return Complaint(what, (("of", self.program.name(entry)), *given), self.lines())

    def lines(self) -> tuple[str, ...]:
        """Those that answer for the gradient, in words."""
        return responsible(self.program)


__all__ = ["MOST", "SMALLER", "Check"]
