"""Forward mode against reverse mode: both must return the same element."""

from __future__ import annotations

import torch

from subgrad.testing.complaint import Complaint, number, vector
from subgrad.testing.program import Program, nonconstant
from subgrad.testing.responsible import responsible
from subgrad.testing.tolerance import Tolerance

NEARBY = 2  # points beside the inputs where they are compared as well


def has_forward_mode(program: Program) -> bool:
    """Whether it can be asked at all: operators may have none, and some of torch's raise."""
    try:
        program.pushed(torch.zeros(program.inputs.size, dtype=torch.float64))
    except RuntimeError:  # of which `NotImplementedError` is one
        return False
    return True


def modes_disagree(program: Program, tolerance: Tolerance, is_fast: bool) -> Complaint | None:
    """What forward mode returns at the inputs and beside them, against backward."""
    scale = tolerance.eps * program.here.abs().clamp(min=1)
    places = [torch.zeros_like(scale), *(torch.randn(len(scale), generator=program.generator) for _ in range(NEARBY))]
    for place in places:
        at = program.inputs.rounded(torch.where(program.here.isfinite(), program.here + scale * place, program.here))
        is_here = not bool(place.any())
        found = (
            _columns_differ(program, tolerance) if is_here and not is_fast else _products_differ(program, tolerance, at)
        )
        if found is not None:
            return found
    return None


def _columns_differ(program: Program, tolerance: Tolerance) -> Complaint | None:
    forward, reverse = program.columns(), program.run().rows()
    wrong = ~((forward - reverse).abs() <= tolerance.of(reverse))
    if not bool(wrong.any()):
        return None
    entry = int(wrong.any(1).nonzero()[0])
    columns = wrong[entry].nonzero()[:, 0].tolist()
    facts = (
        ("of", program.name(entry)),
        ("point", program.inputs.in_words(program.here, columns)),
        ("forward", vector(forward[entry], columns)),
        ("reverse", vector(reverse[entry], columns)),
    )
    return Complaint(WHAT, facts, responsible(program))


def _products_differ(program: Program, tolerance: Tolerance, at: torch.Tensor) -> Complaint | None:
    """The product with a random tangent and a random cotangent, by either mode."""
    tangent, cotangent = (nonconstant(size, program.generator) for size in (program.inputs.size, program.size))
    pushed, pulled = program.pushed(tangent, at), program.run(at).pulled(cotangent)
    forward, reverse = float(pushed @ cotangent), float(pulled @ tangent)
    allowed = float((tolerance.of(pushed) @ cotangent.abs()) + tolerance.of(pulled) @ tangent.abs())
    if abs(forward - reverse) <= allowed:
        return None
    facts = (
        ("forward", f"{number(forward)}, the product of a cotangent with what forward mode makes of a tangent"),
        ("reverse", f"{number(reverse)}, the product of the tangent with what backward makes of the cotangent"),
    )
    return Complaint(WHAT, facts, responsible(program))


WHAT = "Forward mode and reverse mode disagree."
