"""Kinks that are nearer than any step at which values tell a derivative, and are not met.

At 1e-20 the program is where it is, as rules say, and everything that is run a little further on lies on the other
side. What rules then find with a tolerance, by which such kinks count as met, is what the values do; if it is, the
values do not speak against what is found without one. A quantity that was rounded on its way, as an eigenvalue that
should be 0, says nothing about its side, and values are believed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from subgrad.apply.pass_kernels import PassCall
from subgrad.clarke.engine.passes import Look
from subgrad.clarke.engine.program import Program
from subgrad.clarke.engine.rule import Rule, Site

TOLERANCES = (2.0**-40, 2.0**-30, 2.0**-20)  # of the largest entry, or of 1
# What moves numbers, selects them, or turns their sign.
_EXACT = (
    *("Accumulate", "Select", "Slice", "View", "UnsafeView", "ReshapeAlias", "Unsqueeze", "Squeeze", "Permute", "T"),
    *("Transpose", "Expand", "Clone", "Neg", "Abs", "Relu", "Index", "Stack", "Cat", "Unbind", "Split", "Diagonal"),
    *("Alias", "Gather", "IndexSelect", "Max", "Min", "Amax", "Amin", "Maximum", "Minimum", "Clamp", "ClampMin"),
    *("ClampMax", "Sort", "Where", "Flip", "Repeat", "AsStrided", "Hardtanh", "Topk", "Kthvalue", "Median", "Copysign"),
)
_DIFFERENCES = ("Sub", "Rsub", "Add")  # of numbers that are close, or the other way round: nothing is rounded


@dataclass
class LookNear(Look):
    """A plain run that notes besides which sites are given numbers that may have been rounded.

    Attributes:
        rounded: for every site.
    """

    rounded: list[bool] = field(default_factory=list)

    def run(self, rule: Rule, call: PassCall) -> Any:
        given = [each for each in call.arguments.values() if isinstance(each, Tensor)]
        is_rounded = not all(_is_exact(each.grad_fn, differences=1) for each in given)
        out = super().run(rule, call)
        self.rounded += [is_rounded] * (len(self.sites) - len(self.rounded))
        return out

    def new(self, expected: Sequence[tuple[Site, bool]]) -> tuple[list[Site], list[Site]]:
        """The sites that meet a kink now and did not before: those that are sure of their side, and the others."""
        flags = self.flags()
        if [site for site, _ in self.sites] != [site for site, _ in expected]:
            return [], []
        found = [
            (site, is_rounded)
            for (site, _), flag, is_rounded, (_, before) in zip(self.sites, flags, self.rounded, expected, strict=True)
            if flag and not before
        ]
        return [site for site, is_rounded in found if not is_rounded], [site for site, each in found if each]


def _is_exact(node: Any, differences: int) -> bool:
    """Whether a number is an entry of a leaf, or one difference of such."""
    if node is None:
        return True
    name = node.name().rstrip("0123456789").removesuffix("Backward")
    if name == "torch::autograd::AccumulateGrad":
        return True
    if name in _DIFFERENCES and differences:
        differences -= 1
    elif name not in _EXACT:
        return False
    return all(_is_exact(each, differences) for each, _ in node.next_functions)


def looks_near(program: Program) -> Iterator[tuple[float, LookNear]]:
    """Plain runs by which more and more counts as met."""
    largest = max(
        (float(leaf.detach().abs().nan_to_num(0, 0, 0).amax()) for leaf in program.leaves if leaf.numel()), default=0.0
    )
    for share in TOLERANCES:
        program.rewind()
        current = LookNear(share * max(1.0, largest))
        program.plain(current)
        yield current.tol, current


def met(program: Program) -> list[tuple[Site, bool]]:
    """The sites of a plain run, and whether they meet a kink."""
    program.rewind()
    current = Look(0.0)
    program.plain(current)
    return [(site, flag) for (site, _), flag in zip(current.sites, current.flags(), strict=True)]


def has_near_kinks(program: Program, expected: Sequence[tuple[Site, bool]] | None = None) -> bool:
    """Whether a kink that is not met is known to be nearer than steps that values are told at."""
    expected = met(program) if expected is None else expected
    _, near = next(looks_near(program))
    return bool(near.new(expected)[0])
