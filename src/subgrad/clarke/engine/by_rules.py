"""The element that rules lead to: branches are decided along a direction, and replayed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import isfinite
from typing import Any

from torch import Tensor

from subgrad.clarke.engine.certificate import certified, check_value, hold_against_values
from subgrad.clarke.engine.dead_entries import is_finite
from subgrad.clarke.engine.directions import Direction, NotGeneric, known_direction, random_direction
from subgrad.clarke.engine.duals import carrying_tangents
from subgrad.clarke.engine.errors import Contradicted, Denied, Jumps, Refused
from subgrad.clarke.engine.found import Found, agree, outcome
from subgrad.clarke.engine.limits import Limit
from subgrad.clarke.engine.memory import most_of
from subgrad.clarke.engine.near_kinks import looks_near
from subgrad.clarke.engine.nearby_runs import NOT_FOLLOWED, answers_nearby
from subgrad.clarke.engine.passes import Decide, DoesNotRepeat, Look, lines
from subgrad.clarke.engine.program import Program, Vector
from subgrad.clarke.engine.quotients import Values
from subgrad.clarke.engine.rule import Site
from subgrad.clarke.engine.terms import product_of
from subgrad.clarke.rules.degenerate_bases import gradient_with_tangents


@dataclass
class Search:
    """The second and third pass, and what is asked besides where they leave doubts.

    Attributes:
        expected: the sites of the plain run, and whether they met a kink.
        looked: the plain run.
        certify: hold what is found against the values of operators and of the program.
        is_random: the direction is; beside one that is given, other branches may be as near as it gets.
        at_once: decide and record in one pass, which costs more, since a replay could not follow.
        asks_operators: certify also decision by decision.
        turned: the lines at which comparisons, indices or jumps tied.
        asks_nearby: some could not decide by derivatives.
        error: why rules did not lead to an element.
    """

    program: Program
    value: Tensor
    tol: float
    expected: list[tuple[Site, bool]]
    looked: Look
    certify: bool
    is_random: bool
    at_once: bool = False
    asks_operators: bool = True
    turned: list[str] = field(default_factory=list)
    asks_nearby: bool = False
    error: Exception | None = None

    def from_rules(self, seed: int, direction: Vector | None) -> Found | None:
        """The element that rules lead to; None if they do not, and torch's own gradients nearby may."""
        self.at_once = bool(self.looked.leaks or self.looked.customs) or self.looked.differentiates
        leaves = self.program.leaves
        if self.looked.fused:
            raise Refused(_fused(self.looked.fused[0]))
        try:
            try:
                ahead = known_direction(leaves, seed, products=True) if direction is None else Direction(direction)
                return self.along(ahead)
            except NotGeneric:
                return self.along(random_direction(leaves, seed))
        except Jumps:
            raise
        except Exception as error:  # the plain run has raised nothing: what is raised here comes of how it is run
            if self.tol:
                raise
            self.error = error
            return self._beside_kinks(seed, direction) if isinstance(error, Denied) else None

    def _beside_kinks(self, seed: int, direction: Vector | None) -> Found | None:
        """The same if values deny it for kinks that are not met, and are nearer than the steps: see `near_kinks`."""
        ahead = random_direction(self.program.leaves, seed) if direction is None else Direction(direction)
        # An operator that denies what is decided must not deny what is decided with a tolerance.
        asks_operators = isinstance(self.error, Contradicted)
        program, value, is_random, at_once = self.program, self.value, self.is_random, self.at_once
        for tol, near in looks_near(program):
            if near.new(self.expected)[1]:
                return None
            expected = [(site, flag) for (site, _), flag in zip(near.sites, near.flags(), strict=True)]
            try:
                Search(program, value, tol, expected, near, True, is_random, at_once, asks_operators).along(ahead)
                found = replace(self, asks_operators=not asks_operators)._onbranches_of(ahead)[0]
            except Exception:  # the tolerance is none for this program
                continue
            self.error, self.turned = None, [program.line]  # where it may jump
            return found
        return None

    def extrapolated(self, seed: int, direction: Vector | None, trusts: bool = False) -> Found:
        """What torch's own gradients nearby tend to."""
        limit = Limit(self.program, self.value, self.expected, self.is_random, self.error)
        return limit.found(seed, direction, trusts)

    def along(self, ahead: Vector) -> Found:
        """The element that a direction decides on, with its certificate."""
        found, current = self._onbranches_of(ahead)
        self.turned = lines(current.tied)
        if self.certify:
            assert found.slope is not None
            along = Values(self.program, ahead)
            hold_against_values(found.gradient, found.slope, along, self._doubtful(current), beside=self.is_random)
        return found

    def _onbranches_of(self, ahead: Vector) -> tuple[Found, Decide]:
        """That element; its decisions are held against the values of operators, if at all."""
        found, current = self.decided(ahead, None)
        undecided = lines(current.undecided)
        self.asks_nearby = bool(undecided)
        return self._decided_nearby(ahead, undecided[0]) if undecided else (found, current)

    def _doubtful(self, current: Decide) -> list[str]:
        seen = [*self.looked.leaks, *self.looked.customs, *self.looked.reads, *current.leaks]
        return list(dict.fromkeys(seen)) or [self.program.line]

    def _decided_nearby(self, ahead: Vector, line: str) -> tuple[Found, Decide]:
        """Values and derivatives both tie: two runs a little further on answer, and must lead to one gradient."""
        try:
            notes = answers_nearby(self.program, ahead, 2, cuts=self.at_once)
            found = [self.decided(ahead, nearby) for nearby in notes]
        except NOT_FOLLOWED:
            found = []
        if not found or not all(agree(found[0][0], other) for other, _ in found[1:]):
            raise Refused(
                f"{line} ties in its values and in their derivatives, and what follows from it differs a little "
                "further on: the program has no gradient that can be found."
            )
        return found[0]

    def decided(
        self, ahead: Vector, nearby: list[tuple[Site, Any]] | None, expect: bool = True
    ) -> tuple[Found, Decide]:
        """Decide and replay; or at once."""
        expected = self.expected if expect and not self.at_once else None
        certify = self.certify and self.asks_operators
        current = Decide(self.tol, expected, nearby, certify=certify, most=most_of(self.expected))
        current.certifies_near = self.tol > 0
        with carrying_tangents(and_a_graph=self.at_once):
            if self.at_once:
                leaves, out = self.program.with_both(current, ahead)
            else:
                leaves, (out, _) = [], self.program.with_tangents(current, ahead)
            reached, slope = outcome(out)
            gradient = gradient_with_tangents(current.script, out, leaves, self.program.line) if self.at_once else None
        if not current.is_as_expected():
            return self.decided(ahead, nearby, expect=False)
        check_decided(current, self.value, reached, self.program, ahead, slope)
        again = reached
        try:
            if not self.at_once:
                gradient, again = self.program.replay(current)
            elif gradient is None:
                gradient = self.program.gradient_of(out, leaves)
        except DoesNotRepeat as error:
            self._require_repetition(current, error)
            self.at_once = True
        if gradient is None:  # now that nothing holds the frames of the error, which may hold states of torch
            return self.decided(ahead, nearby, expect=False)
        check_value(self.value, again, current, self.program, ahead, slope)
        slope = _known_slope(slope, gradient, ahead)
        along = Values(self.program, ahead)
        product = certified(gradient, ahead, slope, along, self._doubtful(current))
        return Found(gradient, self.value, slope=slope, product=product, direction=tuple(ahead)), current

    def _require_repetition(self, current: Decide, error: DoesNotRepeat) -> None:
        """Unless Python branched otherwise, what is decided on has been met by the plain run, in this order."""
        met = iter(site for site, _ in self.expected)
        if not lines(current.changed) and not all(site in met for site, _ in current.script):
            raise Refused(
                f"The program at {self.program.line} does not do the same when it is run again: {error}."
            ) from None


def check_decided(
    current: Decide, value: Tensor, reached: Tensor, program: Program, ahead: Vector, slope: float
) -> None:
    wrong = lines(current.contradicted)
    if wrong:
        raise Contradicted(
            f"What was decided at {wrong[0]} is not what that operator's own values do a little further on: there is "
            "no right rule for it here. Please report it."
        )
    check_value(value, reached, current, program, ahead, slope)


def _known_slope(slope: float, gradient: Sequence[Tensor | None], ahead: Vector) -> float:
    """The slope; that of the gradient where tangents that take no part were multiplied with 0, and are nan."""
    return slope if isfinite(slope) or not is_finite(gradient) else product_of(gradient, ahead)


def _fused(line: str) -> str:
    return (
        f"{line} draws the random numbers of its dropout inside a fused kernel, which has no forward mode to decide "
        "with at kinks. Run attention under torch.nn.attention.sdpa_kernel(SDPBackend.MATH) and recurrent layers under "
        "torch.backends.cudnn.flags(enabled=False), or put the dropout outside of them."
    )
