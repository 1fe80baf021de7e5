"""What a checkpoint recomputes in backward sees the convention of its forward, whoever runs that backward, and when.

`torch.utils.checkpoint` keeps the function to call again in an attribute of its own, in both variants. A descriptor in
the place of that attribute ties the function to the convention in force when it is stored, during the forward.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from subgrad.apply.current_pass import Pass, fork, running
from subgrad.apply.scopes import Scope, active
from subgrad.conventions import Convention
from subgrad.torch_internals.autograd import CheckpointBackward, CheckpointFrame


@dataclass(frozen=True)
class _Tied:
    """A function and the convention to call it under."""

    function: Callable[..., Any]
    convention: Convention
    again: Pass | None = None  # the branches that a pass over the whole program has decided on

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        again = self.again and self.again.fork()
        recompute = getattr(again, "recompute", None)  # a pass may have kept what the function would save
        with Scope(self.convention), running(again):
            return recompute(self.function, *args, **kwargs) if recompute else self.function(*args, **kwargs)


class _TiedWhenStored:
    """An attribute that holds a function, tied to the convention in force when it was stored."""

    def __init__(self, name: str):
        self.name = name

    def __set__(self, instance: Any, function: Callable[..., Any]) -> None:
        instance.__dict__[self.name] = _Tied(function, active(), fork())

    def __get__(self, instance: Any, owner: type | None = None) -> Callable[..., Any]:
        if instance is None:
            raise AttributeError(self.name)
        stored = instance.__dict__[self.name]
        # Stored before subgrad was first used: under no convention.
        return stored if isinstance(stored, _Tied) else _Tied(stored, Convention("torch"))


def tie_checkpoints() -> None:
    """Once per process: tie what both variants of checkpoint call again."""
    CheckpointFrame.recompute_fn = _TiedWhenStored("recompute_fn")
    CheckpointBackward.run_function = _TiedWhenStored("run_function")
