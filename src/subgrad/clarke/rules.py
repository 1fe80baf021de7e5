"""Which rule each operator has in the passes: from the table of kinks, and for what decides branches besides."""

from __future__ import annotations

from typing import Any

from subgrad.apply.operators import exists
from subgrad.clarke.bent import BENT, Bent
from subgrad.clarke.comparisons import (
    COMPARISONS,
    SEARCHES,
    TRUTHS,
    Comparison,
    Copysign,
    Jumping,
    Steep,
    Stepping,
    Surrogate,
)
from subgrad.clarke.lowered import AROUND, BY_HAND, CELLS, LOSSES
from subgrad.clarke.norms import NORMS
from subgrad.clarke.pointwise import Pointwise
from subgrad.clarke.selections import SELECTIONS
from subgrad.clarke.spectra import SPECTRA
from subgrad.kinks import KINKS
from subgrad.kinks.jumps import SURROGATE
from subgrad.kinks.sets import Jump
from subgrad.kinks.table import COMPOSITES

# Conditions come from comparisons, which have rules themselves.
FOLLOWS = ("where.self",)
# One-sided values exist for these; the others have none, or a slope that is not finite.
STEPS = ("floor", "ceil", "trunc", "frac", "round", "round.decimals", "remainder.Tensor", "remainder.Scalar")
STEPS += ("fmod.Tensor", "fmod.Scalar", "div.Tensor_mode", "div.Scalar_mode", "sign", "sgn", "heaviside", "hardshrink")
STEPS += ("softplus", "angle")


def rules() -> dict[str, Any]:
    """The rule of every operator that has one."""
    found: dict[str, Any] = {op: Pointwise() for op in KINKS.entrywise if op not in COMPOSITES}
    found |= {op: Bent() for op in BENT}
    found["copysign.Tensor"] = Copysign()
    for op in KINKS.overloads:
        if op in found or op in FOLLOWS or op in COMPOSITES:
            continue
        sets = [kink.set for kink in KINKS.of_overload(op)]
        if SURROGATE in sets:
            found[op] = Surrogate()
        elif all(isinstance(each, Jump) for each in sets):
            found[op] = Stepping() if op == "heaviside" else Jumping() if op in STEPS else Steep()
        else:
            found[op] = OF_KINKS.get(op, Steep())
    found |= {op: Comparison() for op in COMPARISONS}
    found |= {op: rule for op, rule in {**SELECTIONS, **SEARCHES, **TRUTHS, **BY_HAND, **AROUND}.items() if exists(op)}
    return found


OF_KINKS: dict[str, Any] = {**SELECTIONS, **NORMS, **LOSSES, **SPECTRA, **CELLS}
