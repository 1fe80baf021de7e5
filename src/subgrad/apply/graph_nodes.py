"""The nodes of a graph, and which of them are not those of torch's own operators."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from torch import Tensor

from subgrad.torch_internals.autograd import forward_class_of, next_sequence_nr, sequence_nr


def nodes(tensors: Sequence[Tensor]) -> list[Any]:
    """The nodes of a graph, each once."""
    return reached([each.grad_fn for each in tensors if each.grad_fn is not None])


def reached(starts: Iterable[Any]) -> list[Any]:
    """The nodes that a walk from some of them reaches, each once, those among them."""
    ahead = list(dict.fromkeys(starts))
    seen, found = set(ahead), []
    while ahead:
        node = ahead.pop()
        found.append(node)
        for following, _ in node.next_functions:
            if following is not None and following not in seen:
                seen.add(following)
                ahead.append(following)
    return found


_of_torch: set[type] = set()  # kinds of nodes that torch has for one operator each


def not_of_torch(walked: Iterable[Any]) -> list[Any]:
    """The nodes that are not those of torch's own operators: compiled code, and functions that somebody wrote."""
    return [node for node in walked if type(node) not in _of_torch and not _is_of_torch(node)]


def _is_of_torch(node: Any) -> bool:
    """Whether a kind of nodes is torch's own; others share theirs, and have names besides."""
    found = forward_class_of(node) is None and node.name().rpartition("::")[2] == type(node).__name__
    if found:
        _of_torch.add(type(node))
    return found


# Some of them an operator with rows has made, where its derivative is somebody's `torch.autograd.Function`: nothing is
# known of the kinks inside such functions otherwise, and they are met with caution.
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
