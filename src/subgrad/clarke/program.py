"""One element of the Clarke set of a program: look for ties, decide branches along a direction, replay them."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.autograd.function import BackwardCFunction
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.module import register_module_forward_pre_hook

from subgrad.apply import branches
from subgrad.apply.active import Scope
from subgrad.apply.passing import here, running
from subgrad.clarke.generic import Direction, NotGeneric, random_direction
from subgrad.clarke.linear import carries_tangents, carrying_tangents, tangent
from subgrad.clarke.passes import Decide, DoesNotRepeat, Look, Replay, Site, lines, read
from subgrad.clarke.refused import Refused, where_raised
from subgrad.clarke.rules import rules
from subgrad.clarke.watch import Watch
from subgrad.conventions import Convention

Vector = Sequence[Tensor]  # one tensor for each leaf


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


@dataclass
class Program:
    """A program and what it is differentiated in.

    Attributes:
        call: runs it with tensors in the place of the leaves; returns its value and whatever else.
        leaves: where it is evaluated.
        held: the program holds the leaves itself, as a module its parameters: they get their tangents in place.
        copied: it writes into its arguments, and is given copies.
    """

    call: Callable[[list[Tensor]], tuple[Any, Any]]
    leaves: list[Tensor]
    held: bool = False
    copied: bool = False
    generators: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        branches.install(_rules())
        if carries_tangents():
            raise Refused("The gradient of a whole program cannot be taken inside that of another.")
        if torch._C._functorch.peek_interpreter_stack() is not None:  # pyright: ignore[reportAttributeAccessIssue]
            raise Refused("The gradient of a whole program cannot be taken inside torch.func transforms.")
        for leaf in self.leaves:
            if leaf.device.type.upper() not in branches.BACKENDS:
                raise Refused(f"No rules are registered for tensors on {leaf.device.type}.")
            if not leaf.is_floating_point():
                raise Refused(f"Only real floating-point tensors have a gradient here, not {leaf.dtype}.")
        self.generators = _generator_states(self.leaves)

    def plain(self, current: Look | Replay) -> tuple[list[Tensor], Any, Any]:
        """Run it to be differentiated in reverse mode; the leaves that it met, its value and the rest."""
        try:
            return self._plain(current)
        except RuntimeError as error:
            if self.held or self.copied or "leaf Variable that requires grad" not in str(error):
                raise
            self.copied = True
            self.rewind()
            if isinstance(current, Look):
                current.sites.clear()
            return self._plain(current)

    def _plain(self, current: Look | Replay) -> tuple[list[Tensor], Any, Any]:
        leaves = self.leaves if self.held else [leaf.detach().requires_grad_() for leaf in self.leaves]
        with torch.enable_grad(), _in(current):
            given = [leaf.clone() for leaf in leaves] if self.copied else leaves
            value, aux = self.call(given)
        return leaves, value, aux

    def with_tangents(self, current: Decide, direction: Vector) -> tuple[Any, Any]:
        """Run it on values and tangents; the value with its tangent, and the rest."""
        current.factors = getattr(direction, "factors", {})
        with torch.no_grad():
            return self._forward(current, self._duals(self.leaves, direction))

    def with_both(self, current: Decide, direction: Vector) -> tuple[list[Tensor], Any]:
        """Run it on values and tangents while recording its graph, which costs more: the leaves and the value."""
        leaves = self.leaves if self.held else [leaf.detach().requires_grad_() for leaf in self.leaves]
        with torch.no_grad() if self.held else torch.enable_grad():
            duals = self._duals(leaves, direction)
        with torch.enable_grad():
            return leaves, self._forward(current, duals)[0]

    def _forward(self, current: Decide, duals: list[Tensor]) -> tuple[Any, Any]:
        self.rewind()
        with _in(current), _statistics_kept(), _without_fast_paths():
            try:
                return self.call(duals)
            except (NotImplementedError, RuntimeError) as error:
                if isinstance(error, Refused) or not _is_about_forward_mode(error):
                    raise
                line = where_raised(error)
                raise Refused(f"At {line} torch has no forward mode, and we have no rule: {error}") from error

    def _duals(self, leaves: list[Tensor], direction: Vector) -> list[Tensor]:
        if self.held:
            for leaf, ahead in zip(leaves, direction, strict=True):
                leaf.copy_(forward_ad.make_dual(leaf.detach(), ahead))  # the same values, and a tangent
            return leaves
        # What is written into would change the direction as well.
        copied = [
            (leaf.clone(), ahead.clone()) if self.copied else (leaf, ahead)
            for leaf, ahead in zip(leaves, direction, strict=True)
        ]
        return [forward_ad.make_dual(*each) for each in copied]

    def moved(self, direction: Vector, step: float) -> Tensor:
        """The value a little further on, as torch computes it."""
        self.rewind()
        pairs = list(zip(self.leaves, direction, strict=True))
        with torch.no_grad(), _statistics_kept(), _eager():
            if not self.held:
                return self.call([leaf + step * ahead for leaf, ahead in pairs])[0]
            kept = [leaf.clone() for leaf in self.leaves]
            try:
                for leaf, ahead in pairs:
                    leaf.add_(ahead, alpha=step)
                return self.call(self.leaves)[0]
            finally:
                for leaf, value in zip(self.leaves, kept, strict=True):
                    leaf.copy_(value)

    def replay(self, script: list[tuple[Site, Any]]) -> tuple[tuple[Tensor | None, ...], Any]:
        self.rewind()
        current = Replay(script)
        with _statistics_kept():
            leaves, value, _ = self.plain(current)
        current.finish()
        return _gradient(value, leaves), value.detach()

    def rewind(self) -> None:
        torch.clear_autocast_cache()  # what it has cast in one pass has no tangent in the next
        for generator, state in self.generators:
            generator.set_state(state)


def _gradient(value: Tensor, leaves: Sequence[Tensor]) -> tuple[Tensor | None, ...]:
    if not value.requires_grad:
        return tuple(None for _ in leaves)
    return torch.autograd.grad(value, leaves, torch.ones_like(value), allow_unused=True)


_known: dict[str, Any] = {}


def _rules() -> dict[str, Any]:
    if not _known:
        _known.update(rules())
    return _known


def _is_about_forward_mode(error: Exception) -> bool:
    return any(words in str(error) for words in ("forward AD", "forward mode AD", "forward-mode", "jvp"))


@contextmanager
def _in(current: Any) -> Iterator[None]:
    with Scope(Convention("torch")), _eager(), running(current), Watch(current):
        yield


# Generators, compiled functions and batch statistics: what else a program's run depends on or changes.


def _generator_states(leaves: Sequence[Tensor]) -> list[Any]:
    generators = [torch.default_generator]
    for device in {leaf.device for leaf in leaves if leaf.device.type == "cuda"}:
        generators.append(torch.cuda.default_generators[device.index or 0])
    return [(generator, generator.get_state()) for generator in generators]


_eager_lock = threading.Lock()
_eager_depth = 0
_stance: Any = None


def beside_compiled_code(run: Callable[[], Any]) -> Any:
    """Run as it is, also where a compiled function calls."""
    if "torch._dynamo" not in sys.modules:
        return run()
    return torch.compiler.disable(run)()  # pyright: ignore[reportCallIssue]


@contextmanager
def _eager() -> Iterator[None]:
    """Compiled functions run as they are written, so that their operators are met; in every thread, for that time."""
    global _eager_depth, _stance
    if "torch._dynamo" not in sys.modules:  # nothing has been compiled
        yield
        return
    with _eager_lock:
        if _eager_depth == 0:
            _stance = torch.compiler.set_stance("force_eager")
            _stance.__enter__()
        _eager_depth += 1
    try:
        yield
    finally:
        with _eager_lock:
            _eager_depth -= 1
            if _eager_depth == 0:
                _stance.__exit__(None, None, None)


@contextmanager
def _statistics_kept() -> Iterator[None]:
    """Batches are counted once, by the plain run."""

    def uncount(module: Any, _: Any) -> None:
        is_counting = isinstance(module, _NormBase) and module.training and module.num_batches_tracked is not None
        if is_counting and here.current is not None:
            module.num_batches_tracked.sub_(1)  # type: ignore[union-attr]

    hook = register_module_forward_pre_hook(uncount)
    try:
        yield
    finally:
        hook.remove()


@contextmanager
def _without_fast_paths() -> Iterator[None]:
    """Without gradients torch runs whole transformer layers as one operator, which has no forward mode."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


def look(program: Program, tol: float, by_formula: bool = False) -> tuple[Look, list[bool], list[Tensor], Tensor, Any]:
    current = Look(tol, by_formula=by_formula)
    leaves, value, aux = program.plain(current)
    _require_scalar(value)
    flags = current.flags()
    current.leaks |= _has_custom_functions(value)
    if current.redraws and (any(flags) or current.leaks):
        del leaves, value, aux
        program.rewind()
        return look(program, tol, by_formula=True)
    return current, flags, leaves, value, aux


def _require_scalar(value: Any) -> None:
    if not isinstance(value, Tensor) or value.numel() != 1:
        what = f"a tensor of shape {tuple(value.shape)}" if isinstance(value, Tensor) else f"{type(value).__name__}"
        raise RuntimeError(f"Expected the program to return a scalar tensor, got {what}.")


def _has_custom_functions(value: Tensor) -> bool:
    """Whether a torch.autograd.Function took part, whose derivative is what somebody says it is."""
    seen, waiting = set(), [value.grad_fn]
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        if isinstance(node, BackwardCFunction) and type(node).__name__ != "_NoopSaveInputsBackward":  # of checkpoints
            return True
        seen.add(node)
        waiting.extend(each for each, _ in node.next_functions)
    return False


@dataclass
class Memory:
    """What the last run of a program met: where it met kinks there is no need to look for them first.

    Only the time that is taken depends on it, never the result.
    """

    expected: list[tuple[Site, bool]] | None = None
    tol: float = 0.0


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
        return Found(_gradient(value, leaves), value.detach(), aux)
    value = value.detach()  # its graph is not needed any more
    expected = [(name, flag) for (name, _), flag in zip(looked.sites, flags, strict=True)]
    search = _Search(program, value, tol, expected, looked.leaks)
    try:
        ahead = random_direction(program.leaves, seed, products=True) if direction is None else Direction(direction)
        found = search.along(ahead)
    except NotGeneric:
        ahead = random_direction(program.leaves, seed)
        found = search.along(ahead)
    if search.turned:
        search.look_elsewhere(seed)
    elif memory is not None and aux is None and not (search.at_once or search.undecided or looked.counts):
        memory.expected, memory.tol = expected, tol
    return Found(found.gradient, value, aux, kinks, tuple(ahead), found.slope, found.product)


def _without_looking(program: Program, seed: int, memory: Memory) -> Found:
    """As after a plain run, where the program does what it did before and no comparison turned."""
    assert memory.expected is not None
    current = Decide(memory.tol, list(memory.expected), is_first=True)
    ahead = random_direction(program.leaves, seed, products=True)
    try:
        with carrying_tangents():
            out, aux = program.with_tangents(current, ahead)
            moved = tangent(out)
            slope = 0.0 if moved is None else moved.item()
            reached = forward_ad.unpack_dual(out).primal.clone()
        doubts = [*current.unexpected, *(flag for flag, _ in (*current.changed, *current.undecided))]
        flags = read([*doubts, *current.seen])
        if current.leaks or current.expected is None or aux is not None or any(flags[: len(doubts)]):
            raise MustLook
        gradient, value = program.replay(current.script)
    except (NotGeneric, DoesNotRepeat):
        raise MustLook from None
    kinks = sum(flags[len(doubts) :])
    if not kinks:
        memory.expected = None
    check_value(value, reached, current)
    product, size = _product(gradient, ahead)
    found = Found(gradient, value, None, kinks, tuple(ahead), slope, product)
    _certify(found, size, ahead)
    return found


@dataclass
class _Search:
    """The second and third pass, and what is asked besides where they leave doubts.

    Attributes:
        expected: the sites of the plain run, and whether they met a kink.
        at_once: decide and record in one pass, which costs more, since a replay could not follow.
        turned: whether comparisons or jumps answered otherwise than their values say.
        undecided: whether some could not decide.
    """

    program: Program
    value: Tensor
    tol: float
    expected: list[tuple[Site, bool]]
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
            moved = tangent(out)
            slope = 0.0 if moved is None else moved.item()
            reached = forward_ad.unpack_dual(out).primal.detach().clone()
        if not current.is_as_expected():
            return self.decided(ahead, Decide(self.tol, flip=current.flip))
        check_value(self.value, reached, current)
        try:
            gradient, again = (_gradient(out, leaves), reached) if self.at_once else self.program.replay(current.script)
        except DoesNotRepeat as error:
            self._require_repetition(current, error)
            self.at_once = True
            return self.decided(ahead, Decide(self.tol, flip=current.flip))
        check_value(self.value, again, current)
        product, size = _product(gradient, ahead)
        found = Found(gradient, self.value, slope=slope, product=product)
        _certify(found, size, ahead)
        return found, current

    def _require_repetition(self, current: Decide, error: DoesNotRepeat) -> None:
        """Unless Python branched otherwise, what is decided on has been met by the plain run, in this order."""
        met = iter(site for site, _ in self.expected)
        if not lines(current.changed) and not all(site in met for site, _ in current.script):
            raise Refused(f"The program does not do the same when it is run again: {error}.") from None

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
            moved = tangent(self.program.with_tangents(Decide(self.tol), ahead)[0])
            return 0.0 if moved is None else moved.item()

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
                check_value(self.value, forward_ad.unpack_dual(out).primal.clone(), current)


SMALL = 10_000  # entries; of a larger program only one other direction is asked


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


def check_value(value: Tensor, reached: Tensor, current: Decide) -> None:
    """The branches taken must lead to the value of the program, or it jumps there."""
    # What is taken for tied is not: values move by the tolerance times slopes that nobody knows.
    rounding = max(torch.finfo(value.dtype).eps, current.tol) ** 0.5
    near = torch.isclose(reached.to(value), value, rtol=rounding, atol=rounding)
    if bool((near | ~value.isfinite()).all()):
        return
    one, other = (each[~near].flatten()[0].item() for each in (value, reached.to(value)))
    answered = lines(current.changed)
    if not answered:
        raise Refused(f"The program does not return the same when it is run again: {one:.6g}, then {other:.6g}.")
    raise Refused(
        f"The program jumps: it is {one:.6g} here and {other:.6g} a little further on, so that it has no generalised "
        f"gradient. What turns there: {'; '.join(answered[:5])}."
    )


def _product(gradient: Sequence[Tensor | None], ahead: Vector) -> tuple[float, float]:
    """The gradient times the direction, and the size of what is summed."""
    sums, sizes = [], []
    for each, v in zip(gradient, ahead, strict=True):
        if each is not None:
            if each.numel() > SMALL and each.dtype in (torch.float32, torch.float64):
                # As large as for a direction that knows nothing of the gradient, which it does not.
                sums.append(torch.dot(each.reshape(-1), v.reshape(-1)).double())
                sizes.append(torch.linalg.vector_norm(each).double() * (_length(v) / each.numel() ** 0.5))
            else:
                sums.append((each * v).sum(dtype=torch.float64))
                sizes.append(torch.linalg.vector_norm(each * v, dtype=torch.float64))
    if not sums:
        return 0.0, 0.0
    product, size = torch.stack([torch.stack(sums).sum(), torch.stack(sizes).norm()]).tolist()
    return product, size


def _length(v: Tensor) -> Tensor:
    return torch.linalg.vector_norm(
        v, dtype=None if v.dtype in (torch.float32, torch.float64) else torch.float64
    ).double()


def _certify(found: Found, size: float, ahead: Vector) -> None:
    """The gradient times the direction is the slope, to what rounding allows."""
    assert found.slope is not None
    assert found.product is not None
    if size != size or size == float("inf"):
        return  # nothing is hidden: the gradient itself is not finite
    rounding = max((torch.finfo(v.dtype).eps for v in ahead), default=0.0)
    # What cancels in the sums of a program leaves a rest, too.
    length = float(torch.stack([_length(v) for v in ahead]).norm())
    rest = 1000 * rounding * length * (1 + float(found.value.abs().max()))
    if not abs(found.product - found.slope) <= min(32 * rounding**0.5, 0.25) * (size + abs(found.slope)) + rest:
        raise Refused(
            f"The gradient that torch derives is not that of the program's values: along the direction it says "
            f"{found.product:.6g}, and the values move by {found.slope:.6g}. A part of the program has a derivative of "
            "its own making: a straight-through trick, detach, no_grad, or a custom autograd.Function. Compute what is "
            "meant to be constant outside of the function."
        )
