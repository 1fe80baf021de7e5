"""Every call of backward and of `torch.autograd.grad`, told to somebody first."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from torch import Tensor

from subgrad.apply.current_pass import here
from subgrad.apply.source_line import is_called_by_subgrad
from subgrad.torch_internals.autograd import current_graph_task_id, engine_run_backward, set_engine_run_backward

KEEP = "keep"  # an answer to a walk that is about to begin: yes, and it leaves what the nodes have saved
INNER = "the program goes on with gradients taken at {}, which are those of the convention in force"


class Backward(NamedTuple):
    """A walk of a graph that is about to begin.

    Attributes:
        tensors, cotangents: what it begins with; tensors may be edges of a graph.
        inputs: where it ends; everywhere if empty.
        accumulates: into ``.grad``, as `backward` does and `torch.autograd.grad` does not.
        is_recorded: the gradients can be differentiated again.
        is_ours: subgrad itself began it.
        is_kept: it leaves what the nodes have saved.
    """

    tensors: Sequence[Any]
    cotangents: Sequence[Tensor | None]
    inputs: Sequence[Any]
    accumulates: bool
    is_recorded: bool
    is_ours: bool = False
    is_kept: bool = False

    @property
    def is_inner(self) -> bool:
        """Whether the program goes on with the gradients, as penalties do, instead of handing them to an optimizer."""
        return self.is_recorded or not self.accumulates


def tell_first(
    told: Callable[[Backward], bool | str], then: Callable[[Backward, Any], None] | None = None
) -> Callable[[], None]:
    """Call back before each walk that this thread begins, and walk only if the answer is yes; afterwards ``then``.

    What a backward calls while it runs, as checkpoints do, is no walk of the program's own. ``then`` is called with
    what a walk has returned, None if it failed. What is returned takes the watching back.
    """
    original, thread = engine_run_backward(), threading.get_ident()

    def run(tensors: Any, *args: Any, **kwargs: Any) -> Any:
        is_the_programs = current_graph_task_id() == -1 and threading.get_ident() == thread
        if not is_the_programs or len(args) < 4:  # not as torch calls it
            return original(tensors, *args, **kwargs)
        cotangents, keeps, create_graph, inputs = args[:4]
        given = (tensors,) if isinstance(tensors, Tensor) else tuple(tensors)
        accumulates = kwargs.get("accumulate_grad", False)
        is_ours = is_called_by_subgrad(sys._getframe(1))
        walk = Backward(given, tuple(cotangents), tuple(inputs), accumulates, bool(create_graph), is_ours, bool(keeps))
        answer = told(walk)
        if not answer:
            return ()
        if answer == KEEP:
            args = (cotangents, True, *args[2:])
        found = None
        try:
            found = original(tensors, *args, **kwargs)
            return found
        finally:
            here.put_key_back()
            if then is not None:
                then(walk, found)

    def undo() -> None:
        if engine_run_backward() is run:
            set_engine_run_backward(original)

    set_engine_run_backward(run)
    return undo
