"""Nodes of a graph that an operator with rows has made, where its derivative is somebody's `torch.autograd.Function`.

Such functions are otherwise met with caution: nothing is known of the kinks inside them. Those of an operator with rows
are known.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from subgrad.torch_internals.autograd import forward_class_of, next_sequence_nr, sequence_nr

_MARK = "subgrad_has_rows"


def marked(run: Callable[[], Any]) -> Any:
    """Run a call, and mark the nodes it makes."""
    before = next_sequence_nr()
    out = run()
    ahead = [out.grad_fn] if isinstance(out, Tensor) else []
    while ahead:
        node = ahead.pop()
        if node is not None and sequence_nr(node) >= before:
            if forward_class_of(node) is not None:
                setattr(node, _MARK, True)
            ahead += [following for following, _ in node.next_functions]
    return out


def is_marked(node: Any) -> bool:
    return getattr(node, _MARK, False)
