"""One element of the Clarke set of a program: look for ties, decide branches along a direction, replay them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import BackwardCFunction

from subgrad.clarke.certificate import SMALL, certified, check_value
from subgrad.clarke.generic import Direction, NotGeneric, random_direction
from subgrad.clarke.linear import carrying_tangents, parts
from subgrad.clarke.passes import Decide, DoesNotRepeat, Look, Site, lines, read
from subgrad.clarke.program import Program, Vector, gradient_of
from subgrad.clarke.refused import Refused, defined_at


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
    """

    gradient: tuple[Tensor | None, ...]
    value: Tensor
    aux: Any = None
    kinks: int = 0
    direction: tuple[Tensor, ...] | None = None
    slope: float | None = None
    product: float | None = None


def look(program: Program, tol: float) -> tuple[Look, list[bool], list[Tensor], Tensor, Any]:
    current = Look(tol)
    leaves, value, aux = program.plain(current)
    _require_scalar(value)
    flags = current.flags()
    current.leaks += _custom_functions(value)
    return current, flags, leaves, value, aux


def _require_scalar(value: Any) -> None:
    if not isinstance(value, Tensor) or value.numel() != 1:
        what = f"a tensor of shape {tuple(value.shape)}" if isinstance(value, Tensor) else f"{type(value).__name__}"
        raise RuntimeError(f"Expected the program to return a scalar tensor, got {what}.")


def _custom_functions(value: Tensor) -> list[str]:
    """A torch.autograd.Function that took part, if any: its derivative is what somebody says it is."""
    seen, waiting = set(), [value.grad_fn]
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        if isinstance(node, BackwardCFunction) and type(node).__name__ != "_NoopSaveInputsBackward":  # of checkpoints
            return [f"{type(node).__name__.removesuffix('Backward')} at {defined_at(type(node)._forward_cls.forward)}"]  # type: ignore[attr-defined]
        seen.add(node)
        waiting.extend(each for each, _ in node.next_functions)
    return []


@dataclass
class Memory:
    """What the last run of a program met: where it met kinks there is no need to look for them first.

    And the last direction, of a small program. Only the time that is taken depends on it, never the result.
    """

    expected: list[tuple[Site, bool]] | None = None
    tol: float = 0.0
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


class MustLook(Exception):  # noqa: N818
    """A plain run is needed after all."""


def find(
    program: Program,
    seed: int = 0,
    tol: float = 0.0,
    direction: Vector | None = None,
    certify: bool = False,
    memory: Memory | None = None,
) -> Found:
    """One element; the plain gradient where no kink is met, unless a certificate is asked for."""
    if memory is not None and memory.expected is not None and memory.tol == tol:
        try:
            return _without_looking(program, seed, memory)
        except MustLook:
            memory.expected = None
            program.rewind()
    looked, flags, leaves, value, aux = look(program, tol)
    kinks = sum(flags)
    if not kinks and not looked.leaks and not certify:
        return Found(gradient_of(value, leaves), value.detach(), aux)
    if looked.fused:
        raise Refused(
            f"{looked.fused[0]} draws the random numbers of its dropout inside a fused kernel, which has no forward "
            "mode to decide with at kinks. Run attention under torch.nn.attention.sdpa_kernel(SDPBackend.MATH) and "
            "recurrent layers under torch.backends.cudnn.flags(enabled=False), or put the dropout outside of them."
        )
    value = value.detach()  # its graph is not needed any more
    expected = [(name, flag) for (name, _), flag in zip(looked.sites, flags, strict=True)]
    search = _Search(program, value, tol, expected, looked.leaks, at_once=bool(looked.leaks))
    try:
        ahead = random_direction(program.leaves, seed, products=True) if direction is None else Direction(direction)
        found = search.along(ahead)
    except NotGeneric:
        ahead = random_direction(program.leaves, seed)
        found = search.along(ahead)
    if search.turned:
        search.look_elsewhere(seed)
    elif memory is not None and aux is None and not (_asks_for_more(search) or looked.counts):
        memory.expected, memory.tol = expected, tol
    return Found(found.gradient, value, aux, kinks, tuple(ahead), found.slope, found.product)


def _asks_for_more(search: _Search) -> bool:
    """Whether two passes are not enough; a plain run also notices that a program writes into its arguments."""
    return search.at_once or search.undecided or search.program.copied


def _without_looking(program: Program, seed: int, memory: Memory, once_more: bool = True) -> Found:
    """As after a plain run, where the program does what it did before and no comparison turned."""
    assert memory.expected is not None
    current = Decide(memory.tol, list(memory.expected), is_first=True)
    ahead = memory.direction(program.leaves, seed)
    try:
        with carrying_tangents():
            out, aux = program.with_tangents(current, ahead)
            reached, slope = _outcome(out)
        unexpected = [flag for _, flag in current.unexpected]
        doubts = [flag for flag, _ in (*current.changed, *current.undecided)]
        flags = iter(read([*unexpected, *doubts, *current.seen]))
        elsewhere = [place for place, _ in current.unexpected if next(flags)]
        is_doubtful = any(list(islice(flags, len(doubts))))
        if current.leaks or current.expected is None or aux is not None or is_doubtful:
            raise MustLook
        if elsewhere:  # ties by chance come and go
            if not once_more:
                raise MustLook
            memory.expect(elsewhere)
            return _without_looking(program, seed, memory, once_more=False)
        gradient, value = program.replay(current)
    except (NotGeneric, DoesNotRepeat):
        raise MustLook from None
    kinks = sum(flags)
    if not kinks:
        memory.expected = None
    check_value(value, reached, current, program.line)
    product = certified(gradient, ahead, slope, value, [program.line])
    return Found(gradient, value, None, kinks, tuple(ahead), slope, product)


def _outcome(out: Tensor) -> tuple[Tensor, float]:
    """The value that a run on tangents has reached, and the slope."""
    value, moved = parts(out)
    return value.detach().clone(), 0.0 if moved is None else moved.item()


@dataclass
class _Search:
    """The second and third pass, and what is asked besides where they leave doubts.

    Attributes:
        expected: the sites of the plain run, and whether they met a kink.
        leaks: lines at which the plain run cut derivatives.
        at_once: decide and record in one pass, which costs more, since a replay could not follow.
        turned: whether comparisons or jumps answered otherwise than their values say.
        undecided: whether some could not decide.
    """

    program: Program
    value: Tensor
    tol: float
    expected: list[tuple[Site, bool]]
    leaks: list[str]
    at_once: bool
    turned: bool = False
    undecided: bool = False

    def along(self, ahead: Vector) -> Found:
        """The element that a direction decides on, with its certificate."""
        found, current = self.decided(ahead, Decide(self.tol, None if self.at_once else self.expected))
        self.turned = bool(lines(current.changed))
        undecided = lines(current.undecided)
        self.undecided = bool(undecided)
        if undecided and not self._is_the_same_otherwise(ahead, found) and not self._is_so_nearby(ahead, found):
            raise Refused(
                f"{undecided[0]} ties in its values and in their derivatives, and what follows from it differs: the "
                "program has no gradient that can be found from first derivatives."
            )
        return found

    def decided(self, ahead: Vector, current: Decide) -> tuple[Found, Decide]:
        """Decide and replay; or at once."""
        with carrying_tangents(and_a_graph=self.at_once):
            if self.at_once:
                leaves, out = self.program.with_both(current, ahead)
            else:
                leaves, (out, _) = [], self.program.with_tangents(current, ahead)
            reached, slope = _outcome(out)
        if not current.is_as_expected():
            return self.decided(ahead, Decide(self.tol, flip=current.flip))
        check_value(self.value, reached, current, self.program.line)
        try:
            gradient, again = (gradient_of(out, leaves), reached) if self.at_once else self.program.replay(current)
        except DoesNotRepeat as error:
            self._require_repetition(current, error)
            self.at_once = True
            return self.decided(ahead, Decide(self.tol, flip=current.flip))
        check_value(self.value, again, current, self.program.line)
        doubtful = [*self.leaks, *current.leaks] or [self.program.line]
        product = certified(gradient, ahead, slope, self.value, list(dict.fromkeys(doubtful)))
        return Found(gradient, self.value, slope=slope, product=product), current

    def _require_repetition(self, current: Decide, error: DoesNotRepeat) -> None:
        """Unless Python branched otherwise, what is decided on has been met by the plain run, in this order."""
        met = iter(site for site, _ in self.expected)
        if not lines(current.changed) and not all(site in met for site, _ in current.script):
            raise Refused(
                f"The program at {self.program.line} does not do the same when it is run again: {error}."
            ) from None

    def _is_the_same_otherwise(self, ahead: Vector, found: Found) -> bool:
        """Whether other answers to what nothing decides give the same gradient."""
        for flip in _flips():
            try:
                other, _ = self.decided(ahead, Decide(self.tol, flip=flip))
            except (RuntimeError, ValueError, IndexError):  # answers that no point gives may not fit together
                return False
            if not _agree(found, other):
                return False
        return True

    def _is_so_nearby(self, ahead: Vector, found: Found) -> bool:
        """Whether the values of the program a little further on agree with the slopes, in some directions."""
        assert found.slope is not None
        others = [random_direction(self.program.leaves, 104729 + number) for number in range(4)]
        return self._moves_as(ahead, found.slope) and all(self._moves_as(w, self._slope(w)) for w in others)

    def _slope(self, ahead: Vector) -> float:
        with carrying_tangents():
            return _outcome(self.program.with_tangents(Decide(self.tol), ahead)[0])[1]

    def _moves_as(self, ahead: Vector, slope: float) -> bool:
        rounding = torch.finfo(self.value.dtype).eps
        agreeing = 0
        for step in (rounding**0.5, rounding**0.4, rounding**0.3):
            moved = float(self.program.moved(ahead, step).double() - self.value.double()) / step
            agreeing += abs(moved - slope) <= 0.02 * (abs(slope) + abs(moved)) + 4 * rounding / step
        return agreeing >= 2  # the smallest may see too little, and the largest another kink

    def look_elsewhere(self, seed: int) -> None:
        """A jump may cancel in one direction: in others its value would differ."""
        size = sum(leaf.numel() for leaf in self.program.leaves)
        for number in range(1, 5 if size <= SMALL else 2):
            ahead = random_direction(self.program.leaves, seed + 7919 * number)
            current = Decide(self.tol)
            with carrying_tangents():
                out, _ = self.program.with_tangents(current, ahead)
                check_value(self.value, _outcome(out)[0], current, self.program.line)


def _flips() -> Iterator[Callable[[Tensor], Tensor]]:
    """Other answers for comparisons that nothing decides: all of them, and some at random."""
    yield lambda answers: torch.ones_like(answers)
    generator = torch.Generator().manual_seed(0)
    yield lambda answers: (torch.rand(answers.shape, generator=generator) < 0.5).to(answers.device)


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
