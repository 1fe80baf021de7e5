"""One element of the Clarke set of a program: look for ties, decide branches along a direction, replay them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from math import isfinite
from typing import Any

import torch
from torch import Tensor

from subgrad.apply.graph_nodes import is_marked, nodes, not_of_torch
from subgrad.clarke.engine.by_rules import Search, check_decided
from subgrad.clarke.engine.certificate import certified, check_reaches, hold_against_values
from subgrad.clarke.engine.dead_entries import is_finite, is_nan
from subgrad.clarke.engine.directions import NotGeneric, known_direction, random_direction
from subgrad.clarke.engine.duals import carrying_tangents
from subgrad.clarke.engine.errors import Denied, Refused, defined_at
from subgrad.clarke.engine.found import Found, outcome
from subgrad.clarke.engine.limits import as_refusal
from subgrad.clarke.engine.memory import Memory, branches_of, most_of
from subgrad.clarke.engine.nearby_runs import (
    NOT_FOLLOWED,
    answers_nearby,
    check_all_reach,
    check_continuity,
    check_continuity_sharply,
    check_slopes_are_bounded,
)
from subgrad.clarke.engine.passes import Beside, Decide, DoesNotRepeat, Look, lines, read
from subgrad.clarke.engine.program import MustLook, Program, Vector
from subgrad.clarke.engine.quotients import Values
from subgrad.clarke.engine.terms import SMALL, product_of, sizes
from subgrad.torch_internals.autograd import forward_class_of


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
        try:
            found = _sparing_if_undefined(program, seed, tol, direction, certify, memory)
        except Exception:
            if direction is not None or tol or not _has_an_edge(program, seed):
                raise
        else:
            if direction is not None:
                require_values(program, direction)
            if not program.has_an_edge or tol or direction is not None:
                return found
        program.rewind()  # what is beyond its edge says nothing: values are asked on this side
        memory.forget()
        return _sparing_if_undefined(program, seed, tol, None, certify, Memory())


def _has_an_edge(program: Program, seed: int) -> bool:
    """Whether what was raised is not of branches that no point takes, but of points nearby."""
    if program.raised and program.value is not None:
        ahead = random_direction(program.leaves, seed)
        for side in (-1, 1):
            program.moved(ahead, side * 2.0**-20, program.may_be_widened)
    return program.has_an_edge


def require_values(program: Program, ahead: Vector) -> None:
    """There must be some along the direction, if there are not all around the point."""
    if program.has_an_edge and not is_finite([program.moved(ahead, 2.0**-20, program.may_be_widened)]):
        raise program.raised[-1]


def _sparing_if_undefined(
    program: Program, seed: int, tol: float, direction: Vector | None, certify: bool, memory: Memory
) -> Found:
    found, refusal = None, None
    try:
        found = _found(program, seed, tol, direction, certify, memory)
        if found.is_finite or not is_finite([found.value]):
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
    if is_nan(value):  # torch's own gradient is passed on, as the value is
        if certify:
            raise Refused(f"The value of the program at {program.line} is nan here: there is nothing to certify.")
        return Found(program.gradient_of(value, leaves), value.detach(), aux)
    kinks = sum(flags)
    expected = [(name, flag) for (name, _), flag in zip(looked.sites, flags, strict=True)]
    branches = branches_of(expected, [*looked.leaks, *looked.customs, *looked.reads])
    trusts = program.trusts_custom and bool(looked.customs)
    is_random = direction is None
    if is_random and (program.spares_dead or program.has_an_edge):
        direction = _inward(program, seed)
    is_doubtful = program.spares_dead or any(looked.undefined)
    unseen = [*looked.leaks, *looked.customs, *looked.reads, *[program.line] * looked.differentiates]
    may_jump = bool(looked.reads or looked.differentiates)  # where no rule sees it
    if not certify and (program.spares_dead or not kinks):
        gradient = _plain_gradient(value, leaves, program)
        is_plain = not (unseen or is_doubtful)
        if (
            trusts
            or is_plain
            or (not tol and branches in memory.plain and _moves_so(program, gradient, seed, direction))
            or (
                not tol and _is_what_values_do(program, gradient, _ahead(program, seed, direction), unseen, is_doubtful)
            )
        ):
            if is_doubtful and not trusts:
                _check_slopes(program, gradient, seed)
            if not (is_doubtful or may_jump):
                memory.plain.add(branches)
            return Found(gradient, value.detach(), aux)
    value = value.detach()  # its graph is not needed any more
    # What no rule sees may be right at one point, as x times its detached self is at 0, and wrong at the next.
    is_first = not tol and (is_doubtful or branches not in memory.passed)
    certify = is_first or (not tol and bool(unseen))
    search = Search(program, value, tol, expected, looked, certify, is_random)
    if trusts:
        found = search.extrapolated(seed, direction, trusts=True)
        return replace(found, value=value, aux=aux, kinks=kinks)
    found = _searched(search, seed, direction, branches, memory)
    if is_doubtful and not tol:
        _check_slopes(program, found.gradient, seed)
    is_first |= found.extrapolated and not tol  # no rule has seen any of it
    if (
        search.turned or found.extrapolated or (certify and (may_jump or is_doubtful)) or (is_first and unseen)
    ) and not tol:
        _check_around(program, found, seed, search.turned or unseen, is_first)
        if certify and unseen:
            assert found.direction is not None
            check_all_reach(Values(program, found.direction), [found.slope or 0.0], unseen)
    memory.passed.add(branches)
    if aux is None and not (search.at_once or found.extrapolated or looked.reads or is_doubtful):
        memory.expected, memory.tol, memory.asks_nearby = expected, tol, search.asks_nearby
    return replace(found, value=value, aux=aux, kinks=kinks)


def _searched(search: Search, seed: int, direction: Vector | None, branches: int, memory: Memory) -> Found:
    """What rules lead to, or the limit of torch's own gradients: first what led on at other points."""
    is_known = branches in memory.without_rules
    for asks_rules in (False, True) if is_known else (True, False):
        try:
            found = search.from_rules(seed, direction) if asks_rules else search.extrapolated(seed, direction)
        except Refused:
            if is_known and not asks_rules:
                search.program.rewind()
                continue
            raise
        if found is not None and (not (asks_rules and search.program.spares_dead) or is_finite(found.gradient)):
            return found
        memory.without_rules.add(branches)
    raise as_refusal(search.error, search.program)


def _without_rules(program: Program, seed: int, direction: Vector | None, error: Refused) -> Found:
    """What torch's own gradients and the values tell, of a program that cannot be looked at."""
    try:
        program.rewind()
        _, value, aux = program.plain(Beside())
        _require_scalar(value)
        search = Search(program, value.detach(), 0.0, [], Look(0.0), True, direction is None, error=error)
        found = search.extrapolated(seed, direction)
        _check_around(program, found, seed, [], certify=True)
    except Exception:  # torch does not differentiate it either, or other than the values do
        raise error from None
    return replace(found, aux=aux)


def _check_slopes(program: Program, gradient: Sequence[Tensor | None], seed: int) -> None:
    others = (known_direction(program.leaves, seed + 7919 * number) for number in range(1, 5))
    check_slopes_are_bounded(program, gradient, others)


def _check_around(program: Program, found: Found, seed: int, turned: Sequence[str], certify: bool) -> None:
    assert found.direction is not None
    count = 0 if not certify else 4 if sum(leaf.numel() for leaf in program.leaves) <= SMALL else 1
    others = (known_direction(program.leaves, seed + 7919 * number) for number in range(1, count + 1))
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
    return known_direction(program.leaves, seed) if direction is None else direction


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


def _moves_so(program: Program, gradient: Sequence[Tensor | None], seed: int, direction: Vector | None) -> bool:
    """Whether values move as a gradient says: two runs, where nothing jumps that no rule sees."""
    ahead = _ahead(program, seed, direction)
    along = Values(program, ahead)
    return along.agree_around(gradient, product_of(gradient, ahead), sizes(gradient, ahead, program.leaves))


def _without_looking(program: Program, seed: int, memory: Memory, once_more: bool = True) -> Found:
    """As after a plain run, where the program does what it did before."""
    assert memory.expected is not None
    branches = branches_of(memory.expected)
    certify = not memory.tol and branches not in memory.passed
    ahead = known_direction(program.leaves, seed, products=True)
    try:
        nearby = answers_nearby(program, ahead)[0] if memory.asks_nearby else None
        most = most_of(memory.expected)
        current = Decide(memory.tol, list(memory.expected), nearby, certify=certify, most=most, is_first=True)
        with carrying_tangents():
            out, aux = program.with_tangents(current, ahead)
            reached, slope = outcome(out)
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
        check_decided(current, value, reached, program, ahead, slope)
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
