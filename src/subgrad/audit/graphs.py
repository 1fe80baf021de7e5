"""What lies in a graph that backward is about to walk: its leaves, and what the audit cannot see or walk twice."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

from torch import Tensor

from subgrad.apply.graph_nodes import is_marked, nodes, not_of_torch
from subgrad.apply.operators import Operator
from subgrad.kinks import KINKS
from subgrad.kinks.sets import Jump
from subgrad.torch_internals.autograd import forward_class_of, names_of_saved, sequence_nr

Mark = tuple[int, str]

__all__ = [
    "Mark",
    "compiled_code",
    "leaves",
    "left_as_they_are",
    "mark",
    "marks_since",
    "nodes",
    "not_of_torch",
    "on_lists",
    "own_gradients",
    "saved_hooks",
    "unwatched",
]

OURS = ("torch", "subgrad")
# What calls answered in C++ record: the kinks of their operators, which are counted.
OURS_IN_CPP = tuple(f"(anonymous namespace)::{each}>" for each in ("Masked", "Clamped", "Packed", "Pooled"))
COMPILED = (
    "code that torch.compile has compiled, which is not seen; with torch.compiler.set_stance('force_eager') it runs as "
    "it is written, and is"
)
SCRIPTED = (
    "code that torch.jit has compiled, which is not seen; with PYTORCH_JIT=0 in the environment it runs as it is "
    "written, and is"
)


def leaves(tensors: Sequence[Tensor], walked: Iterable[Any]) -> list[Tensor]:
    """The leaves that a graph reaches, in the order in which it is walked."""
    found: dict[int, Tensor] = {id(each): each for each in tensors if each.requires_grad and each.is_leaf}
    for node in walked:
        variable = getattr(node, "variable", None)
        if isinstance(variable, Tensor) and type(node).__name__ == "AccumulateGrad":
            found[id(variable)] = variable
    return list(found.values())


# What the audit does not look into.


def is_compiled(node: Any) -> bool:
    return type(node).__name__.startswith("CompiledFunction")


def is_scripted(node: Any) -> bool:
    return node.name().startswith("torch::jit::")


def compiled_code(walked: Iterable[Any]) -> list[str]:
    """The kinds of compiled code in a graph, in words: its operators are not called one by one."""
    walked = list(walked)
    found = {COMPILED: any(map(is_compiled, walked)), SCRIPTED: any(map(is_scripted, walked))}
    return [words for words, is_met in found.items() if is_met]


def own_gradients(walked: Iterable[Any]) -> list[str]:
    """The functions in a graph with a backward that somebody wrote: no kink inside is theirs to choose or counted."""
    found: dict[str, None] = {}
    for node in walked:
        written = None if is_marked(node) else forward_class_of(node)
        if written is not None and written.__module__.partition(".")[0] not in OURS and not is_compiled(node):
            found[written.__qualname__] = None
        elif node.name().startswith("torch::autograd::CppNode") and not node.name().endswith(OURS_IN_CPP):
            found[node.name()] = None
    return list(found)


@cache
def _kinked() -> dict[str, str]:
    """By the name that autograd gives to the nodes of an operator: the operator, if conventions choose at its kinks."""
    chosen = [op for op in KINKS.overloads if any(not isinstance(kink.set, Jump) for kink in Operator(op).kinks)]
    bases = {op.partition(".")[0] for op in chosen}
    # As torch's code generator spells them: MaxPool2DWithIndices for max_pool2d_with_indices, Cdist for _cdist_forward.
    spelled = {base: "".join(part.title() for part in base.split("_")) for base in bases}
    return {f"{name.replace('Forward', '')}Backward": base.strip("_") for base, name in spelled.items()}


@cache
def _list_operator(kind: str) -> str | None:
    """The operator on lists of tensors that a kind of nodes is of, if conventions choose at its kinks."""
    is_on_lists = re.fullmatch(r"Foreach(\w+Backward)\d*(?:Scalar|ScalarList|List|Tensor)?", kind)
    operator = None if is_on_lists is None else _kinked().get(is_on_lists[1])
    return None if operator is None else f"torch._foreach_{operator}"


def on_lists(walked: Iterable[Any]) -> list[str]:
    """The operators with kinks in a graph that were called on lists of tensors, which are not watched."""
    found = {_list_operator(node.name()) for node in walked} - {None}  # their kinds have no names of their own
    return [f"{operator} was not watched: it works on a list of tensors" for operator in sorted(map(str, found))]


def mark(node: Any) -> Mark:
    """What tells a node apart: autograd counts them, in each thread."""
    return sequence_nr(node), type(node).__name__


def marks_since(number: int, out: Any) -> Iterator[Mark]:
    """Of the nodes that a call has made, which began when autograd had counted so far."""
    outputs = out if isinstance(out, list | tuple) else (out,)
    ahead = [each.grad_fn for each in outputs if isinstance(each, Tensor)]
    while ahead:
        node = ahead.pop()
        if node is not None and sequence_nr(node) >= number:
            yield mark(node)
            ahead += [following for following, _ in node.next_functions]


def unwatched(walked: Iterable[Any], made: Collection[Mark]) -> list[str]:
    """The operators with kinks in a graph whose calls were not watched, given the nodes of those that were."""
    named = ((node, re.sub(r"\d+$", "", type(node).__name__).replace("Forward", "")) for node in walked)
    met = ((node, _kinked().get(name)) for node, name in named)
    found = {operator for node, operator in met if operator is not None and mark(node) not in made}
    return [
        f"{operator} was not watched: called before, in another thread, or drawing random numbers"
        for operator in sorted(found)
    ]


# What walking a graph once more would disturb.


def saved_hooks(walked: Iterable[Any]) -> list[Any]:
    """What unpacks the saved tensors of a graph, each once, where that is not torch moving or checking them."""
    hooks = (getattr(saved, "unpack_hook", None) for node in walked for saved in _saved(node))
    found = {id(hook): hook for hook in hooks if hook is not None}
    return [hook for hook in found.values() if hook.__module__ != "torch.autograd.graph"]


def _saved(node: Any) -> Iterator[Any]:
    """The saved tensors of a node, still packed."""
    for name in names_of_saved(type(node)):
        try:
            found = getattr(node, name)
        except RuntimeError:  # freed; who walks the graph now will be told
            continue
        yield from found if isinstance(found, tuple | list) else (found,)


@contextmanager
def left_as_they_are(walked: Iterable[Any]) -> Iterator[None]:
    """What functions written in Python keep for their backward is theirs to drop there: it is put back."""
    kept = [(node, dict(node.__dict__)) for node in walked if getattr(node, "__dict__", None)]
    try:
        yield
    finally:
        for node, attributes in kept:
            node.__dict__.clear()
            node.__dict__.update(attributes)
