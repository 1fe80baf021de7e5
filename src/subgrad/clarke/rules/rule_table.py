"""Which rule each operator has in the passes: from the table of kinks, and for what decides branches besides."""

from __future__ import annotations

from subgrad.apply.operators import exists
from subgrad.clarke.engine.rule import Rule
from subgrad.clarke.rules.comparisons import (
    COMPARISONS,
    TRUTHS,
    Comparison,
    Copysign,
    Jumping,
    Steep,
    Stepping,
    Surrogate,
)
from subgrad.clarke.rules.eigen_svd import SPECTRA
from subgrad.clarke.rules.extremes import EXTREMES
from subgrad.clarke.rules.fused_ops import AROUND
from subgrad.clarke.rules.grid_sample import CELLS
from subgrad.clarke.rules.hinge_losses import LOSSES
from subgrad.clarke.rules.max_pool import POOLS
from subgrad.clarke.rules.no_forward_mode import BY_HAND
from subgrad.clarke.rules.normalisation import NORMALISATIONS
from subgrad.clarke.rules.norms import NORMS
from subgrad.clarke.rules.order_statistics import RANKED
from subgrad.clarke.rules.piecewise_linear import BENT, Bent
from subgrad.clarke.rules.pointwise import Pointwise, WithoutForwardMode
from subgrad.kinks import KINKS
from subgrad.kinks.jumps import SURROGATE
from subgrad.kinks.sets import Jump, Pole, Set
from subgrad.kinks.table import COMPOSITES


def rules() -> dict[str, Rule]:
    """The rule of every operator that has one."""
    found: dict[str, Rule] = {op: Pointwise() for op in KINKS.entrywise if op not in COMPOSITES}
    found |= {op: Bent() for op in BENT}
    found["copysign.Tensor"] = Copysign()
    for op in KINKS.overloads:
        if op not in found and op not in COMPOSITES:
            rule = OF_KINKS.get(op, _where_it_jumps(op, [kink.set for kink in KINKS.of_overload(op)]))
            found |= {op: rule} if rule is not None else {}
    found |= {op: Comparison() for op in COMPARISONS}
    found |= {op: rule for op, rule in BESIDE_KINKS.items() if exists(op)}
    return found | rules_of_others()


def rules_of_others() -> dict[str, Rule]:
    """The rules of operators that are not torch's."""
    return {kink.op: WithoutForwardMode() for kink in KINKS.added}


# Infinite slopes that end the search for branches; of others the values tell, which are infinite or end there.
ROOTS = ("sqrt", "rsqrt", "pow.Tensor_Scalar", "pow.Tensor_Tensor")


def _where_it_jumps(op: str, sets: list[Set]) -> Rule | None:
    """The rule of an operator that no other is written for, by what the table says of its kinks."""
    if op not in ROOTS and all(isinstance(each, Pole) for each in sets):
        return None
    if SURROGATE in sets:
        return Surrogate()
    along = {each.along if isinstance(each, Jump) else None for each in sets}
    if along == {"condition"}:
        return None  # conditions come from comparisons, which have rules themselves
    if along != {"self"}:
        return Steep()
    return Jumping() if all(isinstance(each, Jump) and each.derived for each in sets) else Stepping()


OF_KINKS: dict[str, Rule] = {**EXTREMES, **RANKED, **POOLS, **NORMS, **LOSSES, **SPECTRA, **CELLS}
# Operators that are no row of the table: indices of what is selected, answers, what is only run in another way.
BESIDE_KINKS: dict[str, Rule] = {
    **EXTREMES,
    **RANKED,
    **TRUTHS,
    **BY_HAND,
    **AROUND,
    **NORMALISATIONS,
    **SPECTRA,
}
