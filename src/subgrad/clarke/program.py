"""A program that can be run in each of the passes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from subgrad.apply import branches
from subgrad.apply.active import Scope
from subgrad.apply.passing import running
from subgrad.clarke.generic import Direction
from subgrad.clarke.linear import carries_tangents, dual
from subgrad.clarke.passes import RULES, Decide, Look, Replay
from subgrad.clarke.refused import Refused, here, where_raised
from subgrad.clarke.rules import rules
from subgrad.clarke.surroundings import eager, generator_states, without_fast_paths
from subgrad.clarke.watch import Watch
from subgrad.conventions import Convention

Vector = Sequence[Tensor]  # one tensor for each leaf
_TORCH = Convention("torch")  # while rules of passes decide, no convention does


@dataclass
class Program:
    """A program and what it is differentiated in.

    Attributes:
        call: runs it with tensors in the place of the leaves; returns its value and whatever else.
        leaves: where it is evaluated.
        line: at which it begins.
        held: the program holds the leaves itself, as a module its parameters: they get their tangents in place.
        copied: it writes into its arguments, and is given copies.
    """

    call: Callable[[list[Tensor]], tuple[Any, Any]]
    leaves: list[Tensor]
    line: str
    held: bool = False
    copied: bool = False
    generators: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        _prepare()
        if carries_tangents():
            raise Refused(f"The gradient of a whole program, at {here()}, cannot be taken inside that of another.")
        if torch._C._functorch.peek_interpreter_stack() is not None:  # pyright: ignore[reportAttributeAccessIssue]
            raise Refused(
                f"The gradient of a whole program, at {here()}, cannot be taken inside torch.func transforms."
            )
        for device in {leaf.device.type for leaf in self.leaves}:
            if device.upper() not in branches.BACKENDS:
                raise Refused(f"No rules are registered for tensors on {device}, as given at {here()}.")
        for leaf in self.leaves:
            if not leaf.is_floating_point():
                raise Refused(f"Only real floating-point tensors have a gradient, not {leaf.dtype}, at {here()}.")
        self.generators = generator_states(self.leaves)

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
        with torch.enable_grad(), Scope(_TORCH), eager(), running(current), _watching(current):
            given = [leaf.clone() for leaf in leaves] if self.copied else leaves
            value, aux = self.call(given)
        return leaves, value, aux

    def with_tangents(self, current: Decide, direction: Vector) -> tuple[Any, Any]:
        """Run it on values and tangents; the value with its tangent, and the rest."""
        current.factors = direction.factors(self.leaves) if isinstance(direction, Direction) else {}
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
        with Scope(_TORCH), eager(), running(current), Watch(current), without_fast_paths():
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
                leaf.copy_(dual(leaf.detach(), ahead))  # the same values, and a tangent
            return leaves
        # What is written into would change the direction as well.
        copied = [
            (leaf.clone(), ahead.clone()) if self.copied else (leaf, ahead)
            for leaf, ahead in zip(leaves, direction, strict=True)
        ]
        return [dual(*each) for each in copied]

    def moved(self, direction: Vector, step: float) -> Tensor:
        """The value a little further on, as torch computes it."""
        self.rewind()
        pairs = list(zip(self.leaves, direction, strict=True))
        with torch.no_grad(), eager():
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

    def replay(self, decided: Decide) -> tuple[tuple[Tensor | None, ...], Any]:
        self.rewind()
        current = Replay(decided.script, is_watched=decided.is_watched)
        leaves, value, _ = self.plain(current)
        current.finish()
        return gradient_of(value, leaves), value.detach()

    def rewind(self) -> None:
        torch.clear_autocast_cache()  # what it has cast in one pass has no tangent in the next
        for generator, state in self.generators:
            generator.set_state(state)


def _watching(current: Look | Replay) -> AbstractContextManager[Any]:
    """To watch every call takes time, which a replay of calls that were all seen to be plain can do without."""
    return nullcontext() if isinstance(current, Replay) and not current.is_watched else Watch(current)


_is_prepared = False


def _prepare() -> None:
    """Once per process."""
    global _is_prepared
    if _is_prepared:
        return
    if not RULES:
        RULES.update(rules())
    branches.install(RULES)
    _is_prepared = True  # last: until then other threads come here too, and wait while kernels are registered


def gradient_of(value: Tensor, leaves: Sequence[Tensor]) -> tuple[Tensor | None, ...]:
    if not value.requires_grad:
        return tuple(None for _ in leaves)
    ones = None if value.is_floating_point() else torch.ones_like(value)  # which torch assumes for real numbers
    return torch.autograd.grad(value, leaves, ones, allow_unused=True)


def _is_about_forward_mode(error: Exception) -> bool:
    return any(words in str(error) for words in ("forward AD", "forward mode AD", "forward-mode", "jvp"))
