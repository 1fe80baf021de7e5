"""A program that can be run in each of the passes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property, reduce
from math import nan
from typing import Any

import torch
from torch import Tensor

from subgrad.apply import pass_kernels
from subgrad.apply.current_pass import running
from subgrad.apply.scopes import Scope
from subgrad.clarke.engine.dead_entries import Sparing, spare_dead_entries
from subgrad.clarke.engine.directions import Direction, NotGeneric
from subgrad.clarke.engine.double_precision import NARROW, standing_in
from subgrad.clarke.engine.duals import carries_tangents, dual
from subgrad.clarke.engine.environment import eager, generator_states, without_fast_paths
from subgrad.clarke.engine.errors import Refused, here, where_raised
from subgrad.clarke.engine.function_mode import Watch
from subgrad.clarke.engine.inference_tensors import is_about_inference, with_copies
from subgrad.clarke.engine.module_state import ModuleState
from subgrad.clarke.engine.passes import Beside, Decide, DoesNotRepeat, Look, NotFollowed, Replay
from subgrad.clarke.engine.rule import RULES
from subgrad.clarke.engine.side_effects import WritesIntoArgument, Written
from subgrad.clarke.rules.rule_table import rules, rules_of_others
from subgrad.conventions import Convention
from subgrad.kinks import KINKS
from subgrad.torch_internals.tensors import foreach_add_, is_zero_tensor
from subgrad.torch_internals.transforms import peek_interpreter_stack, pytree

Vector = Sequence[Tensor]  # one tensor for each leaf
_TORCH = Convention("torch")  # while rules of passes decide, no convention does


@dataclass
class Program:
    """A program and what it is differentiated in.

    Attributes:
        call: runs it with tensors in the place of the leaves; returns its value and whatever else.
        leaves: where it is evaluated.
        line: at which it begins.
        reached_from: the program as it was given, and what else it is given: by these it reaches its modules.
        held: the program holds the leaves itself, as a module its parameters: they get their tangents in place.
        copied: it writes into its arguments, and is given copies.
        copies_constants: it has constants that autograd does not take, and is given copies.
        trusts_custom: derivatives of custom functions are taken as they are given.
        generators: of random numbers, and their states before the first run.
        drawn: their states after one run.
        is_known: it has been run once.
        differentiates: it takes gradients itself, for which it needs leaves that require them.
        narrows: it computes in less than double precision, or may do so with numbers that it reads.
        is_watched: it calls what is done in another way in every pass.
        spares_dead: in reverse mode, products of 0 and a slope that is nan are 0.
        value: of the plain run.
        raised: errors of the program at other points, or when it was run again.
        has_an_edge: it raises at points nearby.
    """

    call: Callable[[list[Tensor]], tuple[Any, Any]]
    leaves: list[Tensor]
    line: str
    reached_from: Sequence[Any] = ()
    held: bool = False
    copied: bool = False
    copies_constants: bool = False
    trusts_custom: bool = False
    generators: list[Any] = field(default_factory=list)
    drawn: list[Any] = field(default_factory=list)
    is_known: bool = False
    differentiates: bool = False
    narrows: bool = False
    is_watched: bool = False
    spares_dead: bool = False
    value: Tensor | None = None
    raised: list[Exception] = field(default_factory=list)
    has_an_edge: bool = False

    def __post_init__(self) -> None:
        _prepare()
        if carries_tangents():
            raise Refused(f"The gradient of a whole program, at {here()}, cannot be taken inside that of another.")
        if peek_interpreter_stack() is not None:
            raise Refused(
                f"The gradient of a whole program, at {here()}, cannot be taken inside torch.func transforms."
            )
        for leaf in self.leaves:
            if not leaf.is_cpu and leaf.device.type.upper() not in pass_kernels.BACKENDS:
                raise Refused(f"No rules are registered for tensors on {leaf.device.type}, as given at {here()}.")
            if not leaf.is_floating_point():
                raise Refused(f"Only real floating-point tensors have a gradient, not {leaf.dtype}, at {here()}.")
        if any(map(Tensor.is_inference, self.leaves)):
            if self.held:
                what = f"Parameters made inside inference_mode, as given at {here()},"
                raise Refused(f"{what} have no gradient in torch.")
            with torch.inference_mode(False):  # what was made in it cannot be recorded
                self.leaves = [leaf.clone() if leaf.is_inference() else leaf for leaf in self.leaves]
        self.generators = generator_states(self.leaves)
        self.written = Written(self.leaves)
        self.modules = ModuleState(self.reached_from)
        self._is_fresh = True  # nothing has been run
        self._has_run = False  # and nothing has been put back since

    @contextmanager
    def as_after_one_run(self) -> Iterator[None]:
        """In the end all that the program writes into is as after one run; as before it if anything is raised."""
        try:
            yield
        except BaseException as error:
            self.rewind()
            if any(error is each for each in self.raised):
                raise self._as_refusal(error) from error
            raise
        self.raised.clear()  # their frames hold this program, and may hold states of torch
        self.modules.settle()
        self.written.settle()
        if not self._has_run:
            for generator, state in self.drawn:
                generator.set_state(state)

    def _as_refusal(self, error: BaseException) -> Refused:
        return Refused(
            f"The program at {self.line} runs here, and a little further on, or when it is run again, it raises "
            f"{type(error).__name__} at {where_raised(error)}: {error}"
        )

    def _run(self, given: list[Tensor]) -> tuple[Any, Any]:
        self._is_fresh = False
        try:
            return self.call(given)
        except Exception as error:
            if not self.is_known or isinstance(error, (Refused, *_OURS, torch.OutOfMemoryError)):
                raise
            if isinstance(error, StopIteration):  # which generators on the way take for their own
                error = RuntimeError("StopIteration").with_traceback(error.__traceback__)
            self.raised.append(error)
            raise error from error.__cause__

    def plain(self, current: Look | Replay | Beside) -> tuple[list[Tensor], Any, Any]:
        """Run it to be differentiated in reverse mode; the leaves that it met, its value and the rest."""
        while True:
            try:
                found = self._plain(current)
                break
            except (RuntimeError, WritesIntoArgument) as error:
                if not (self._is_about_to_copy(error) or self._is_about_to_copy_constants(error)):
                    raise
            self.rewind()
            if isinstance(current, Look):
                current.sites.clear()
                current.leaks.clear()
        self._note_one_run()
        self.value = found[1].detach() if isinstance(found[1], Tensor) else None
        if isinstance(current, Look):
            self.differentiates, self.narrows = current.differentiates, current.narrows or bool(current.reads)
            self.is_watched = current.is_watched
        return found

    def _note_one_run(self) -> None:
        self.is_known = True
        self.written.note_one_run()
        self.modules.note_one_run()
        self._has_run = True

    @property
    def is_random(self) -> bool:
        """Whether it draws random numbers."""
        states = generator_states(self.leaves) if self._has_run else self.drawn
        return any(not torch.equal(a, b) for (_, a), (_, b) in zip(self.generators, states, strict=False))

    def _is_about_to_copy(self, error: Exception) -> bool:
        """Whether the program writes into its arguments, and is given copies from now on."""
        if self.copied or not (
            isinstance(error, WritesIntoArgument) or "leaf Variable that requires grad" in str(error)
        ):
            return False
        if self.held:
            raise Refused(f"The program writes into what it is differentiated in, at {where_raised(error)}.") from None
        self.copied = True
        return True

    def _is_about_to_copy_constants(self, error: Exception) -> bool:
        """Whether the program has constants from inside `inference_mode`, and is given copies of them from now on."""
        if not is_about_inference(error):
            return False
        if self.copies_constants:
            raise Refused(f"At {where_raised(error)} torch differentiates nothing: {error}") from error
        self.copies_constants, self.call = True, with_copies(self.call, self.leaves if self.held else ())
        return True

    def _plain(self, current: Look | Replay | Beside) -> tuple[list[Tensor], Any, Any]:
        leaves = self.leaves if self.held else [leaf.detach().requires_grad_() for leaf in self.leaves]
        current.keep = self.written.keep
        places = list(map(Tensor.data_ptr, leaves))
        with torch.enable_grad(), Scope(_TORCH), eager(), self._sparing(), running(current), _watching(current):
            given = [leaf.clone() for leaf in leaves] if self.copied else leaves
            value, aux = self._run(given)
        if places != list(map(Tensor.data_ptr, leaves)):  # as `set_` does, of which torch tells nobody
            raise Refused(f"The program at {self.line} puts other memory under what it is differentiated in.")
        return leaves, value, aux

    def with_tangents(self, current: Decide, direction: Vector) -> tuple[Any, Any]:
        """Run it on values and tangents; the value with its tangent, and the rest."""
        current.factors = direction.factors(self.leaves) if isinstance(direction, Direction) else {}
        try:
            with torch.no_grad():
                return self._forward(current, self._duals(self.leaves, direction))
        except WritesIntoArgument as error:
            self._is_about_to_copy(error)
            raise MustLook from None
        finally:
            self.is_watched |= current.is_watched

    def with_both(self, current: Decide, direction: Vector) -> tuple[list[Tensor], Any]:
        """Run it on values and tangents while recording its graph, which costs more: the leaves and the value."""
        leaves = self.leaves if self.held else [leaf.detach().requires_grad_() for leaf in self.leaves]
        with torch.no_grad() if self.held else torch.enable_grad():
            duals = self._duals(leaves, direction)
        with torch.enable_grad():
            return leaves, self._forward(current, duals)[0]

    def nearby(self, current: Decide, direction: Vector, step: float, wide: bool) -> None:
        """Run it a little further on, to meet the same sites: with a graph, or with tangents if these are carried."""
        leaves = self._moved_leaves(direction, step, wide)
        if carries_tangents():
            leaves = [dual(leaf, ahead.to(leaf)) for leaf, ahead in zip(leaves, direction, strict=True)]
        else:
            leaves = [leaf.requires_grad_() for leaf in leaves]
        with torch.set_grad_enabled(not carries_tangents()):
            self._forward(current, [leaf.clone() for leaf in leaves] if self.copied else leaves, wide)

    def _forward(self, current: Decide, duals: list[Tensor], wide: bool = False) -> tuple[Any, Any]:
        self.rewind()
        current.keep = self.written.keep
        standing = self._standing_in(duals, wide)
        with (
            Scope(_TORCH),
            eager(),
            self._sparing(),
            running(current),
            Watch(current),
            standing,
            without_fast_paths(),
        ):
            try:
                return self._run(duals)
            except (NotImplementedError, RuntimeError) as error:
                if isinstance(error, Refused) or not _is_about_forward_mode(error):
                    raise
                line = where_raised(error)
                raise Refused(f"At {line} torch has no forward mode, and we have no rule: {error}") from error

    def _duals(self, leaves: list[Tensor], direction: Vector) -> list[Tensor]:
        if self.held:
            for leaf, ahead in zip(leaves, direction, strict=True):
                leaf.copy_(dual(leaf.detach(), ahead))  # the same values, and a tangent
            return leaves
        # What is written into would change the direction as well.
        copied = [
            (leaf.clone(), ahead.clone()) if self.copied else (leaf, ahead)
            for leaf, ahead in zip(leaves, direction, strict=True)
        ]
        return [dual(*each) for each in copied]

    @property
    def may_be_widened(self) -> bool:
        """Whether to run it in double precision would say more; random numbers must not be other ones."""
        is_narrow = self.narrows or any(leaf.dtype in NARROW for leaf in self.leaves)
        return is_narrow and (not self.is_random or self._draws_the_same)

    @cached_property
    def _draws_the_same(self) -> bool:
        """Whether the program returns the same in double precision, to what single precision tells."""
        if not isinstance(self.value, Tensor) or self.value.numel() != 1:
            return False
        try:
            wide = float(self.moved([torch.zeros_like(leaf) for leaf in self.leaves], 0.0, wide=True))
        except Exception:  # some operator, or the program itself, does not take double precision
            return False
        value = float(self.value)
        return abs(wide - value) <= 1e-3 * abs(value)

    def evaluate(self, current: Look | Beside) -> tuple[Any, Any]:
        """Its value, and the rest."""
        _, value, aux = self.plain(current)
        return pytree.tree_map_only(Tensor, Tensor.detach, (value, aux))

    def moved(self, direction: Vector, step: float, wide: bool, beside: tuple[Vector, float] | None = None) -> Any:
        """The value a little further on, and beside, in double precision if it is to be wide; nan if it has none."""
        try:
            return self._moved(direction, step, wide, beside)
        except Exception as error:
            is_number = self.value is not None and self.value.numel() == 1
            if not any(error is each for each in self.raised) or not is_number or (wide and not self._takes_doubles):
                raise
            self.has_an_edge = True  # as of a program that asserts that its argument is positive
            return torch.full((), nan, dtype=torch.float64)

    @cached_property
    def _takes_doubles(self) -> bool:
        try:
            self._moved([torch.zeros_like(leaf) for leaf in self.leaves], 0.0, True, None)
        except Exception:
            return False
        return True

    def _moved(self, direction: Vector, step: float, wide: bool, beside: tuple[Vector, float] | None) -> Any:
        leaves = self._moved_leaves(direction, step, wide)
        if beside and leaves:
            foreach_add_(leaves, beside[0], alpha=beside[1])
        if self.differentiates:
            leaves = [leaf.requires_grad_() for leaf in leaves]
        self.rewind()
        grad = torch.set_grad_enabled(self.differentiates)
        with grad, Scope(_TORCH), eager(), self._beside(), self._standing_in(leaves, wide):
            out = self._run(leaves)[0]
        return out.detach() if isinstance(out, Tensor) else pytree.tree_map_only(Tensor, Tensor.detach, out)

    def _sparing(self) -> AbstractContextManager[Any]:
        return Sparing() if self.spares_dead else nullcontext()

    def _beside(self) -> AbstractContextManager[Any]:
        """A run at another point, for its values alone."""
        is_plain = self.is_known and not (self.written or self.is_watched)  # as earlier passes have seen
        return nullcontext() if is_plain else _watched(Beside(self.written.keep))

    def gradient_nearby(self, direction: Vector, step: float, wide: bool, is_random: bool = False) -> list[Tensor]:
        """Torch's own gradient a little further on; in a random direction that is a point like any other."""
        leaves = [leaf.requires_grad_() for leaf in self._moved_leaves(direction, step, wide)]
        self.rewind()
        standing = self._standing_in(leaves, wide)
        with torch.enable_grad(), Scope(_TORCH), eager(), self._sparing(), self._beside(), standing:
            value = self._run([leaf.clone() for leaf in leaves] if self.copied else leaves)[0]
        found = self.gradient_of(value, leaves, is_anywhere=is_random and step != 0)
        return [torch.zeros_like(leaf) if each is None else each for each, leaf in zip(found, leaves, strict=True)]

    def _moved_leaves(self, direction: Vector, step: float, wide: bool) -> list[Tensor]:
        if not wide:
            return [leaf.detach() + step * ahead for leaf, ahead in zip(self.leaves, direction, strict=True)]
        leaves = [leaf.detach().to(torch.float64, copy=True) for leaf in self.leaves]
        if leaves:
            foreach_add_(leaves, direction, alpha=step)
        return leaves

    def _standing_in(self, leaves: list[Tensor], wide: bool) -> AbstractContextManager[Any]:
        dtypes = {leaf.dtype for leaf in self.leaves} or {torch.float64}
        return standing_in(self._others(leaves), wide, reduce(torch.promote_types, dtypes))

    def _others(self, leaves: list[Tensor]) -> dict[int, Tensor]:
        """What stands for leaves that the program holds itself."""
        if not self.held or leaves is self.leaves:
            return {}
        return {id(leaf): other for leaf, other in zip(self.leaves, leaves, strict=True)}

    def replay(self, decided: Decide) -> tuple[tuple[Tensor | None, ...], Any]:
        self.rewind()
        current = Replay(decided.script, is_watched=decided.is_watched)
        leaves, value, _ = self.plain(current)
        current.finish()
        return self.gradient_of(value, leaves), value.detach()

    def gradient_of(
        self, value: Tensor, leaves: Sequence[Tensor], is_anywhere: bool = False
    ) -> tuple[Tensor | None, ...]:
        """What reverse mode makes of one run."""
        if not value.requires_grad:
            return tuple(None for _ in leaves)
        if self.spares_dead:
            spare_dead_entries(value, is_anywhere)
        ones = None if value.is_floating_point() else torch.ones_like(value)  # which torch assumes for real numbers
        try:
            found = torch.autograd.grad(value, leaves, ones, allow_unused=True)
        except RuntimeError as error:
            if "use_reentrant=True" not in str(error):
                raise
            raise Refused(
                f"The program at {self.line} has a reentrant checkpoint, whose gradient torch only adds to .grad. "
                "Pass use_reentrant=False to it."
            ) from error
        # Of what has derivatives that are 0 everywhere torch may return a tensor without memory.
        return tuple([each.clone() if each is not None and is_zero_tensor(each) else each for each in found])

    def rewind(self) -> None:
        torch.clear_autocast_cache()  # what it has cast in one pass has no tangent in the next
        if self._is_fresh:
            return
        if self._has_run:
            self.drawn, self._has_run = generator_states(self.leaves), False
        self.written.restore()
        self.modules.restore()
        for generator, state in self.generators:
            generator.set_state(state)


@contextmanager
def _watched(current: Beside) -> Iterator[None]:
    with running(current), Watch(current):
        yield


def _watching(current: Look | Replay | Beside) -> AbstractContextManager[Any]:
    """To watch every call takes time, which a replay of calls that were all seen to be plain can do without."""
    return nullcontext() if isinstance(current, Replay) and not current.is_watched else Watch(current)


_OURS = (WritesIntoArgument, DoesNotRepeat, NotFollowed, NotGeneric)  # that end a run


class MustLook(Exception):  # noqa: N818
    """A plain run is needed after all."""


_prepared_rows = 0


def _prepare() -> None:
    """Once per process, and again where rows were added to the table."""
    global _prepared_rows
    rows = len(KINKS)
    if _prepared_rows == rows:
        return
    if not RULES:
        RULES.update(rules())
    RULES.update(rules_of_others())
    pass_kernels.install(RULES)
    _prepared_rows = rows  # last: until then other threads come here too, and wait while kernels are registered


def _is_about_forward_mode(error: Exception) -> bool:
    return any(words in str(error) for words in ("forward AD", "forward mode AD", "forward-mode", "jvp"))
