"""What a checkpoint recomputes in a compared step runs once, as without the audit, however often its graph is walked.

The first walk that compares runs the program's code and keeps what autograd saves meanwhile. Every other walk of the
comparison, and then the program's own backward, is handed what was kept: no code runs a second time, so that batch
statistics, random numbers and whatever else that code does come out as in a run that nobody watches.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from subgrad.apply.current_pass import running
from subgrad.audit.graphs import saved_hooks
from subgrad.audit.switches import Switchboard
from subgrad.torch_internals.autograd import graph_exec_group, top_saved_tensors_hooks

Generators = list[tuple[torch.Generator, Tensor]]  # with their states


class Recomputed:
    """The pass in force in what one checkpoint recomputes.

    Attributes:
        board: tells whether a comparison is walking.
    """

    rules: Mapping[str, Any] = {}

    def __init__(self, board: Switchboard):
        self.board = board
        self._kept: list[Tensor] | None = None
        self._generators: Generators = []

    def run(self, rule: Any, call: Any) -> Any:
        return call.run()

    def fork(self) -> Recomputed:
        return self

    def recompute(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Run the checkpoint's function, or hand out what it saved."""
        if self._kept is not None:
            return self._handed_out()
        with running(None):
            if self.board.setting is None:
                return function(*args, **kwargs)
            return self._keeping(function, *args, **kwargs)

    def _keeping(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        pack, unpack = top_saved_tensors_hooks(False)
        kept: list[Tensor] = []
        before, is_complete = _generators(), False

        @functools.wraps(pack)  # with the marks by which checkpoints know their own
        def keep(saved: Tensor) -> Any:
            nonlocal is_complete
            kept.append(saved.detach())
            is_complete = True  # if the checkpoint stops the function now: it has all that it needs
            packed = pack(saved)
            is_complete = False
            return packed

        try:
            with torch.autograd.graph.saved_tensors_hooks(keep, unpack):
                out = function(*args, **kwargs)
            is_complete = True
            return out
        finally:  # if the function itself fails, nothing is kept: in the program's backward it fails again
            if is_complete:
                pairs = zip(before, _generators(), strict=True)
                self._generators = [
                    (generator, now) for (generator, then), (_, now) in pairs if not torch.equal(then, now)
                ]
                self._kept = kept

    def _handed_out(self) -> None:
        pack, _ = top_saved_tensors_hooks(False)
        kept, generators = self._kept, self._generators
        if self.board.setting is None:  # the program's own backward; another one would run the code again
            self._kept, self._generators = None, []
        for generator, state in generators:  # which the code has advanced
            generator.set_state(state)
        for saved in kept or ():
            pack(saved)


def _generators() -> Generators:
    found = [torch.default_generator]
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        found += torch.cuda.default_generators
    return [(generator, generator.get_state()) for generator in found]


def why_walked_once(walked: Iterable[Any], board: Switchboard) -> str | None:
    """Why a graph can be walked only by the program itself, in words, or None."""
    walked = list(walked)
    if any(type(node).__name__ == "CheckpointFunctionBackward" for node in walked):
        return "reentrant checkpoints run the program's code whenever they are walked"
    for hook in saved_hooks(walked):
        if hook.__module__ != "torch.utils.checkpoint":
            return f"{hook.__qualname__}, a hook for saved tensors, would be called once more"
        if not _is_kept(hook, board):
            return "checkpoints from before this step run the program's code whenever they are walked"
        if graph_exec_group() is not None:
            return "a GraphExecGroup lets each checkpoint be walked once"
    return None


def _is_kept(hook: Any, board: Switchboard) -> bool:
    """Whether what a checkpoint recomputes is kept for this comparison; its hook has its frame in a closure."""
    inner = inspect.getclosurevars(hook).nonlocals
    frame = inner.get("frame")
    again = getattr(getattr(frame, "recompute_fn", None), "again", None)
    return isinstance(again, Recomputed) and again.board is board
