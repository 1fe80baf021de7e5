"""Every call of backward and of `torch.autograd.grad`, told to somebody first."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from subgrad.apply.current_pass import here
from subgrad.torch_internals.autograd import current_graph_task_id, engine_run_backward, set_engine_run_backward

INNER = "the program goes on with gradients taken at {}, which are those of the convention in force"


@dataclass(frozen=True)
class Backward:
    """A walk of a graph that is about to begin.

    Attributes:
        tensors, cotangents: what it begins with; tensors may be edges of a graph.
        inputs: where it ends; everywhere if empty.
        accumulates: into ``.grad``, as `backward` does and `torch.autograd.grad` does not.
        is_recorded: the gradients can be differentiated again.
    """

    tensors: Sequence[Any]
    cotangents: Sequence[Tensor | None]
    inputs: Sequence[Any]
    accumulates: bool
    is_recorded: bool

    @property
    def is_inner(self) -> bool:
        """Whether the program goes on with the gradients, as penalties do, instead of handing them to an optimizer."""
        return self.is_recorded or not self.accumulates


def tell_first(told: Callable[[Backward], bool]) -> Callable[[], None]:
    """Call back before each walk that this thread begins, and walk only if the answer is yes.

    What a backward calls while it runs, as checkpoints do, is no walk of the program's own. What is returned takes the
    watching back.
    """
    original, thread = engine_run_backward(), threading.get_ident()

    def run(tensors: Any, *args: Any, **kwargs: Any) -> Any:
        is_the_programs = current_graph_task_id() == -1 and threading.get_ident() == thread
        if is_the_programs and len(args) >= 4:  # as torch calls it
            cotangents, _, create_graph, inputs = args[:4]
            given = (tensors,) if isinstance(tensors, Tensor) else tuple(tensors)
            accumulates = kwargs.get("accumulate_grad", False)
            if not told(Backward(given, tuple(cotangents), tuple(inputs), accumulates, bool(create_graph))):
                return ()
        try:
            return original(tensors, *args, **kwargs)
        finally:
            if is_the_programs:
                here.put_key_back()

    def undo() -> None:
        if engine_run_backward() is run:
            set_engine_run_backward(original)

    set_engine_run_backward(run)
    return undo
