"""One element of the Clarke set of a program: look for ties, decide branches along a direction, replay them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from math import isfinite
from typing import Any

import torch
from torch import Tensor

from subgrad.apply.graph_nodes import nodes, not_of_torch
from subgrad.apply.marked_nodes import is_marked
from subgrad.clarke.engine.certificate import (
    SEED_BESIDE,
    SMALL,
    Values,
    certified,
    check_reaches,
    check_value,
    hold_against_values,
    product_of,
    sizes,
)
from subgrad.clarke.engine.dead_entries import is_finite, is_nan
from subgrad.clarke.engine.directions import Direction, NotGeneric, random_direction
from subgrad.clarke.engine.duals import carrying_tangents, parts
from subgrad.clarke.engine.errors import Contradicted, Denied, Jumps, Refused, defined_at, where_raised
from subgrad.clarke.engine.extrapolation import derivative_limit, gradient_limit
from subgrad.clarke.engine.near_kinks import has_near_kinks, looks_near
from subgrad.clarke.engine.nearby_runs import (
    NOT_FOLLOWED,
    answers_nearby,
    check_all_reach,
    check_continuity,
    check_continuity_sharply,
    check_slopes_are_bounded,
)
from subgrad.clarke.engine.passes import Beside, Decide, DoesNotRepeat, Look, Site, lines, read
from subgrad.clarke.engine.program import MustLook, Program, Vector
from subgrad.clarke.rules.degenerate_bases import gradient_with_tangents
from subgrad.torch_internals.autograd import forward_class_of


@dataclass(frozen=True)
class Found:
    """What one direction gave.

    Attributes:
        gradient: for each leaf.
        value: of the program, as it is without us.
        aux: what the program returned besides.
        kinks: how many operators met a kink.
        direction: that decided the branches; None where there was nothing to decide.
        slope: the derivative of the program in that direction, from the tangent pass.
        product: the gradient times the direction, which is the same up to rounding.
        extrapolated: no rule led to it, but torch's own gradients nearby did.
    """

    gradient: tuple[Tensor | None, ...]
    value: Tensor
    aux: Any = None
    kinks: int = 0
    direction: tuple[Tensor, ...] | None = None
    slope: float | None = None
    product: float | None = None
    extrapolated: bool = False


def look(program: Program, tol: float) -> tuple[Look, list[bool], list[Tensor], Tensor, Any]:
    current = Look(tol)
    leaves, value, aux = program.plain(current)
    _require_scalar(value)
    flags = current.flags()
    current.customs += _custom_functions(value)
    return current, flags, leaves, value, aux


def _require_scalar(value: Any) -> None:
    if not isinstance(value, Tensor) or value.numel() != 1:
        what = f"a tensor of shape {tuple(value.shape)}" if isinstance(value, Tensor) else f"{type(value).__name__}"
        raise RuntimeError(f"Expected the program to return a scalar tensor, got {what}.")


def _custom_functions(value: Tensor) -> list[str]:
    """A torch.autograd.Function that took part, if any: its derivative is what somebody says it is."""
    for node in not_of_torch(nodes([value])):
        written = forward_class_of(node)
        is_known = type(node).__name__ == "_NoopSaveInputsBackward" or is_marked(node)  # of checkpoints; has rows
        if written is not None and not is_known:
            return [f"{type(node).__name__.removesuffix('Backward')} at {defined_at(written.forward)}"]
    return []


@dataclass
class Memory:
    """What the last run of a program met: where it met kinks there is no need to look for them first.

    And the last direction, of a small program. Only the time that is taken depends on it, never the result.

    Attributes:
        expected: the sites of the last run, and whether they met a kink.
        passed: what has been held against the program's values, and need not be again.
        plain: what meets no kink, and where torch's gradient was seen to be that of the values.
        without_rules: what rules do not lead through.
        asks_nearby: comparisons tied in value and tangent.
        drawn: what a direction was drawn for, the direction, and its version.
    """

    expected: list[tuple[Site, bool]] | None = None
    tol: float = 0.0
    passed: set[int] = field(default_factory=set)
    plain: set[int] = field(default_factory=set)
    without_rules: set[int] = field(default_factory=set)
    asks_nearby: bool = False
    drawn: tuple[Any, Direction, int] | None = None

    def direction(self, leaves: Sequence[Tensor], seed: int) -> Direction:
        """A random one, with products; drawn again if anything was written into it."""
        drawn_for = seed, [(leaf.shape, leaf.stride(), leaf.dtype, leaf.device) for leaf in leaves]
        if self.drawn is not None and self.drawn[0] == drawn_for and self.drawn[1].version == self.drawn[2]:
            return self.drawn[1]
        found = random_direction(leaves, seed, products=True)
        self.drawn = (drawn_for, found, found.version) if sum(leaf.numel() for leaf in leaves) <= SMALL else None
        return found

    def expect(self, places: Iterable[int]) -> None:
        """Some sites meet kinks as well."""
        assert self.expected is not None
        for place in places:
            self.expected[place] = (self.expected[place][0], True)


def _branches(expected: list[tuple[Site, bool]], leaks: Sequence[str] = ()) -> int:
    return hash((tuple(expected), tuple(leaks)))


def find(
    program: Program,
    seed: int = 0,
    tol: float = 0.0,
    direction: Vector | None = None,
    certify: bool = False,
    memory: Memory | None = None,
) -> Found:
    """One element; the plain gradient where no kink is met, unless a certificate is asked for."""
    memory = Memory() if memory is None else memory
    with program.as_after_one_run():
        found, refusal = None, None
        try:
            found = _found(program, seed, tol, direction, certify, memory)
            if is_finite(found.gradient) or not is_finite([found.value]):
                return found
        except Refused as error:
            if tol or not _is_undefined_for_torch(program):
                raise
            refusal = error
        try:
            return _sparing_dead_entries(program, seed, tol, direction, certify)
        except Refused as error:
            if found is None or not _overflows(program):
                raise refusal or error from None
            return found


def _overflows(program: Program) -> bool:
    """Whether torch's own gradient is finite in double precision: then it is too large for that of the program."""
    try:
        still = [torch.zeros_like(leaf) for leaf in program.leaves]
        return program.may_be_widened and is_finite(program.gradient_nearby(still, 0.0, wide=True))
    except Exception:  # some operator, or the program itself, does not take double precision
        return False


def _sparing_dead_entries(program: Program, seed: int, tol: float, direction: Vector | None, certify: bool) -> Found:
    """The same where torch's own gradient is not finite though the value is: nothing is remembered of it."""
    program.spares_dead = True
    try:
        program.rewind()
        found = _looking(program, seed, tol, direction, certify, Memory())
        if not is_finite(found.gradient):
            raise Refused(f"The slope of the program at {program.line} is infinite here, or not defined.")
    finally:
        program.spares_dead = False
    return found


DIRECTIONS = 64  # that are tried


def _inward(program: Program, seed: int) -> Vector:
    """A random direction in which the program is defined, as it need not be in all: at 0 sqrt(x)^2 is in one."""
    for number in range(DIRECTIONS):
        ahead = random_direction(program.leaves, seed + 7919 * number)
        for turn in (Tensor.clone, torch.neg, torch.abs, lambda v: -v.abs()):
            turned = [turn(v) for v in ahead]
            if is_finite([program.moved(turned, 2.0**-20, program.may_be_widened)]):
                return turned
    raise Refused(f"The program at {program.line} is not finite around this point, in all directions that were tried.")


def _is_undefined_for_torch(program: Program) -> bool:
    """Whether torch's own gradient is not finite, where the value is."""
    try:
        program.rewind()
        leaves, value, _ = program.plain(Look(0.0))
        return is_finite([value]) and not is_finite(program.gradient_of(value, leaves))
    except Exception:  # torch has none
        return False


def _found(program: Program, seed: int, tol: float, direction: Vector | None, certify: bool, memory: Memory) -> Found:
    if memory.expected is not None and memory.tol == tol:
        try:
            return _without_looking(program, seed, memory)
        except MustLook:
            memory.expected = None
            program.rewind()
    return _looking(program, seed, tol, direction, certify, memory)


def _looking(program: Program, seed: int, tol: float, direction: Vector | None, certify: bool, memory: Memory) -> Found:
    try:
        looked, flags, leaves, value, aux = look(program, tol)
    except Refused as error:  # there is no rule for what is met, and values nearby may tell
        if tol:
            raise
        return _without_rules(program, seed, direction, error)
    if is_nan([value]):  # torch's own gradient is passed on, as the value is
        if certify:
            raise Refused(f"The value of the program at {program.line} is nan here: there is nothing to certify.")
        return Found(program.gradient_of(value, leaves), value.detach(), aux)
    kinks = sum(flags)
    expected = [(name, flag) for (name, _), flag in zip(looked.sites, flags, strict=True)]
    branches = _branches(expected, [*looked.leaks, *looked.customs, *looked.reads])
    trusts = program.trusts_custom and bool(looked.customs)
    is_random = direction is None
    if is_random and program.spares_dead:
        direction = _inward(program, seed)
    is_doubtful = program.spares_dead or any(looked.undefined)
    unseen = [*looked.leaks, *looked.customs, *looked.reads, *[program.line] * looked.differentiates]
    if not certify and (program.spares_dead or not kinks):
        gradient = _plain_gradient(value, leaves, program)
        is_plain = not (unseen or is_doubtful)
        if (
            trusts
            or is_plain
            or (branches in memory.plain and not is_doubtful)
            or (
                not tol and _is_what_values_do(program, gradient, _ahead(program, seed, direction), unseen, is_doubtful)
            )
        ):
            if is_doubtful and not trusts:
                _check_slopes(program, gradient, seed)
            if not trusts:
                memory.plain.add(branches)
            return Found(gradient, value.detach(), aux)
    value = value.detach()  # its graph is not needed any more
    certify = not tol and (is_doubtful or branches not in memory.passed)
    search = _Search(program, value, tol, expected, looked, certify, is_random)
    if trusts:
        found = search.extrapolated(seed, direction, trusts=True)
        return replace(found, value=value, aux=aux, kinks=kinks)
    found = search.from_rules(seed, direction) if branches not in memory.without_rules else None
    if found is None or (program.spares_dead and not is_finite(found.gradient)):
        memory.without_rules.add(branches)
        found = search.extrapolated(seed, direction)
    if is_doubtful and not tol:
        _check_slopes(program, found.gradient, seed)
    if (search.turned or search.error or (certify and (unseen or is_doubtful))) and not tol:
        _check_around(program, found, seed, search.turned or unseen, certify)
        if certify and unseen:
            assert found.direction is not None
            check_all_reach(Values(program, found.direction), [found.slope or 0.0], unseen)
    memory.passed.add(branches)
    if aux is None and not (search.at_once or search.error or looked.reads or is_doubtful):
        memory.expected, memory.tol, memory.asks_nearby = expected, tol, search.asks_nearby
    return replace(found, value=value, aux=aux, kinks=kinks)


def _without_rules(program: Program, seed: int, direction: Vector | None, error: Refused) -> Found:
    """What torch's own gradients and the values tell, of a program that cannot be looked at."""
    try:
        program.rewind()
        _, value, aux = program.plain(Beside())
        _require_scalar(value)
        search = _Search(program, value.detach(), 0.0, [], Look(0.0), True, direction is None, error=error)
        found = search.extrapolated(seed, direction)
        _check_around(program, found, seed, [], certify=True)
    except Exception:  # torch does not differentiate it either, or other than the values do
        raise error from None
    return replace(found, aux=aux)


def _check_slopes(program: Program, gradient: Sequence[Tensor | None], seed: int) -> None:
    others = (random_direction(program.leaves, seed + 7919 * number) for number in range(1, 5))
    check_slopes_are_bounded(program, gradient, others)


def _check_around(program: Program, found: Found, seed: int, turned: Sequence[str], certify: bool) -> None:
    assert found.direction is not None
    count = 0 if not certify else 4 if sum(leaf.numel() for leaf in program.leaves) <= SMALL else 1
    others = (random_direction(program.leaves, seed + 7919 * number) for number in range(1, count + 1))
    for each in (found.direction, *others):
        check_continuity_sharply(program, each, found.slope or 0.0, turned or [program.line])


def _plain_gradient(value: Tensor, leaves: Sequence[Tensor], program: Program) -> tuple[Tensor | None, ...]:
    try:
        return program.gradient_of(value, leaves)
    except RuntimeError as error:  # as of operators that torch does not differentiate
        if "not implemented" not in str(error):
            raise
        raise as_refusal(error, program) from error


def _ahead(program: Program, seed: int, direction: Vector | None) -> Vector:
    return random_direction(program.leaves, seed) if direction is None else direction


def _is_what_values_do(
    program: Program, gradient: Sequence[Tensor | None], ahead: Vector, unseen: Sequence[str], is_doubtful: bool
) -> bool:
    """Whether derivatives that were cut, or are of somebody's own making, are those of the program's values."""
    if program.spares_dead and not is_finite(gradient):
        return False
    size, along = sizes(gradient, ahead, program.leaves), Values(program, ahead)
    slope = product_of(gradient, ahead)
    if is_doubtful and program.value is not None:  # what kinks decide on has not been asked
        check_reaches(program, ahead, program.value, slope, size)
    if is_doubtful or unseen:
        check_continuity_sharply(program, ahead, slope, unseen or [program.line])
    if unseen:  # which may jump, as Python numbers do; in a direction of one sign no two jumps cancel
        check_all_reach(along, [slope], unseen)
        check_continuity_sharply(program, [v.abs() for v in ahead], slope, unseen)
    return along.agree([slope], size) and along.agree_across(gradient)


def _without_looking(program: Program, seed: int, memory: Memory, once_more: bool = True) -> Found:
    """As after a plain run, where the program does what it did before."""
    assert memory.expected is not None
    branches = _branches(memory.expected)
    certify = not memory.tol and branches not in memory.passed
    ahead = memory.direction(program.leaves, seed)
    try:
        nearby = answers_nearby(program, ahead)[0] if memory.asks_nearby else None
        most = _most(memory.expected)
        current = Decide(memory.tol, list(memory.expected), nearby, certify=certify, most=most, is_first=True)
        with carrying_tangents():
            out, aux = program.with_tangents(current, ahead)
            reached, slope = _outcome(out)
        if not isfinite(slope):  # a quotient of 0 and 0, say, which the point itself is kept from
            raise MustLook
        unexpected = [flag for _, flag in current.unexpected]
        doubts = [flag for flag, _ in current.undecided]
        flags = iter(read([*unexpected, *doubts, *current.seen]))
        elsewhere = [place for place, _ in current.unexpected if next(flags)]
        is_doubtful = any(list(islice(flags, len(doubts))))
        if current.leaks or current.expected is None or aux is not None or is_doubtful:
            raise MustLook
        if elsewhere:  # ties by chance come and go
            if not once_more:
                raise MustLook
            memory.expect(elsewhere)
            program.rewind()
            return _without_looking(program, seed, memory, once_more=False)
        gradient, value = program.replay(current)
    except (NotGeneric, DoesNotRepeat, *NOT_FOLLOWED):
        raise MustLook from None
    kinks = sum(flags)
    if not kinks:
        memory.expected = None
    along = Values(program, ahead)
    try:
        _check(current, value, reached, program, ahead, slope)
        product = certified(gradient, ahead, slope, along, [program.line])
        if certify:
            hold_against_values(gradient, slope, along, [program.line])
    except Denied:
        raise MustLook from None
    if certify:
        memory.passed.add(branches)
    turned = lines(current.tied)
    if turned and not memory.tol:
        check_continuity(program, ahead, value, slope, turned)
    return Found(gradient, value, None, kinks, tuple(ahead), slope, product)


def _fused(line: str) -> str:
    return (
        f"{line} draws the random numbers of its dropout inside a fused kernel, which has no forward mode to decide "
        "with at kinks. Run attention under torch.nn.attention.sdpa_kernel(SDPBackend.MATH) and recurrent layers under "
        "torch.backends.cudnn.flags(enabled=False), or put the dropout outside of them."
    )


def as_refusal(error: Exception | None, program: Program) -> Refused:
    if isinstance(error, Refused):
        return Refused(*error.args)
    if error is None:
        return Refused(f"The gradients of the program at {program.line} have no limit at this point.")
    return Refused(f"The program cannot be followed at {where_raised(error)}: {type(error).__name__}: {error}")


def _most(expected: list[tuple[Site, bool]]) -> int:
    """How many sites a run may meet before it is taken for one that does not end."""
    return 1000 + 10 * len(expected)


def _check(current: Decide, value: Tensor, reached: Tensor, program: Program, ahead: Vector, slope: float) -> None:
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


def _outcome(out: Tensor) -> tuple[Tensor, float]:
    """The value that a run on tangents has reached, and the slope."""
    value, moved = parts(out)
    return value.detach().clone(), 0.0 if moved is None else moved.item()


@dataclass
class _Search:
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
                ahead = random_direction(leaves, seed, products=True) if direction is None else Direction(direction)
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
                _Search(program, value, tol, expected, near, True, is_random, at_once, asks_operators).along(ahead)
                found = replace(self, asks_operators=not asks_operators)._on_branches(ahead)[0]
            except Exception:  # the tolerance is none for this program
                continue
            self.error, self.turned = None, [program.line]  # where it may jump
            return found
        return None

    def extrapolated(self, seed: int, direction: Vector | None, trusts: bool = False) -> Found:
        """The limit of torch's own gradients, held against the program's values unless others are to be believed."""
        ahead = random_direction(self.program.leaves, seed) if direction is None else direction
        is_hidden = not trusts and bool(self.expected) and has_near_kinks(self.program, self.expected)
        gradient = None if trusts or is_hidden else self._of_torch(ahead)
        if gradient is None:
            gradient = None if is_hidden else gradient_limit(self.program, ahead)
            if gradient is None or not (trusts or self._is_limit(gradient, ahead)):
                raise as_refusal(self.error, self.program) from self.error
        slope = product_of(gradient, ahead)
        found = Found(tuple(gradient), self.value, slope=slope, product=slope, direction=tuple(ahead))
        return replace(found, extrapolated=True)

    def _of_torch(self, ahead: Vector) -> list[Tensor] | None:
        """Torch's own gradient at the point, if it is what the values do: it is exact where a limit is not quite."""
        try:
            gradient = self.program.gradient_nearby(ahead, 0.0, wide=False)
            return gradient if is_finite(gradient) and self._is_limit(gradient, ahead) else None
        except Exception:  # torch has none
            return None

    def _is_limit(self, gradient: Sequence[Tensor], ahead: Vector) -> bool:
        size = sizes(gradient, ahead, self.program.leaves)
        slope = product_of(gradient, ahead)
        check_reaches(self.program, ahead, self.value, slope, size)
        along = Values(self.program, ahead)
        agree = along.agree([slope], size) and along.agree_nearest(slope, float(self.value), size)
        if agree and (not self.is_random or along.agree_across(gradient)):
            return True
        # Beside a slope that is infinite, quotients tend to their limit as slowly as the root of the step.
        return self._is_limit_of_quotients(gradient, ahead)

    def _is_limit_of_quotients(self, gradient: Sequence[Tensor], ahead: Vector) -> bool:
        directions = [ahead, *self._beside(ahead)] if self.is_random else [ahead]
        for each in directions:
            limit, slope = derivative_limit(self.program, each), product_of(gradient, each)
            here, there = float(self.value), float(self.program.moved(each, 2.0**-8, self.program.may_be_widened))
            scale = abs(slope) + sizes(gradient, each, ()).moved
            blur = 1e-9 * abs(here) + 1e-8 * abs(there - here) / 2.0**-8
            if limit is None or not abs(float(limit[0]) - slope) <= 1e-5 * scale + blur:
                return False
        return True

    def _beside(self, ahead: Vector) -> Iterator[Vector]:
        """A direction that lies near, and in which the program is defined."""
        beside = random_direction(self.program.leaves, SEED_BESIDE)
        for share in (2.0**-1, 2.0**-4, 2.0**-7):
            found = [v + share * w.clamp(-1, 1) * v.abs() for v, w in zip(ahead, beside, strict=True)]
            if is_finite([self.program.moved(found, 2.0**-8, self.program.may_be_widened)]):
                yield found
                return

    def along(self, ahead: Vector) -> Found:
        """The element that a direction decides on, with its certificate."""
        found, current = self._on_branches(ahead)
        self.turned = lines(current.tied)
        if self.certify:
            assert found.slope is not None
            along = Values(self.program, ahead)
            hold_against_values(found.gradient, found.slope, along, self._doubtful(current), beside=self.is_random)
        return found

    def _on_branches(self, ahead: Vector) -> tuple[Found, Decide]:
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
        if not found or not all(_agree(found[0][0], other) for other, _ in found[1:]):
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
        current = Decide(self.tol, expected, nearby, certify=certify, most=_most(self.expected))
        current.certifies_near = self.tol > 0
        with carrying_tangents(and_a_graph=self.at_once):
            if self.at_once:
                leaves, out = self.program.with_both(current, ahead)
            else:
                leaves, (out, _) = [], self.program.with_tangents(current, ahead)
            reached, slope = _outcome(out)
            gradient = gradient_with_tangents(current.script, out, leaves, self.program.line) if self.at_once else None
        if not current.is_as_expected():
            return self.decided(ahead, nearby, expect=False)
        _check(current, self.value, reached, self.program, ahead, slope)
        try:
            if not self.at_once:
                gradient, again = self.program.replay(current)
            else:
                gradient, again = self.program.gradient_of(out, leaves) if gradient is None else gradient, reached
        except DoesNotRepeat as error:
            self._require_repetition(current, error)
            self.at_once = True
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


def _agree(one: Found, other: Found) -> bool:
    for mine, theirs in zip(one.gradient, other.gradient, strict=True):
        if mine is None or theirs is None:
            if mine is not theirs and bool((mine if theirs is None else theirs).any()):  # type: ignore[union-attr]
                return False
            continue
        rounding = torch.finfo(mine.dtype).eps ** 0.5
        if bool(((mine - theirs).abs() > rounding * (1 + mine.abs().amax() if mine.numel() else 1)).any()):
            return False
    return True
