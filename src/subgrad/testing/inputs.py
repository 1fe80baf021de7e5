"""The inputs of a function, as one vector of the numbers that are differentiated, and copies of them that are moved."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from subgrad.torch_internals.transforms import pytree

MOST = 8  # entries that are listed


class IsComplex(ValueError):  # noqa: N818
    """Something is differentiated in complex numbers, of which nothing here knows."""


class Inputs:
    """What a function is called with: a tensor, or a tuple of arguments, of tensors, pytrees of them, or anything.

    Those tensors are differentiated that require grad, as in `torch.autograd.gradcheck`; all of floating point if none
    does. Their entries, one after the other, are what vectors in this package run over.

    Attributes:
        leaves: all that the arguments are made of.
        chosen: which of the leaves are differentiated.
        sizes: how many entries each of those has.
    """

    def __init__(self, given: Any, paths: list[str] | None = None):
        if not isinstance(given, Tensor | tuple | list):
            raise TypeError(f"inputs are a {type(given).__name__}: give a tensor, or a tuple with all arguments.")
        args = (given,) if isinstance(given, Tensor) else tuple(given)
        self.leaves, self._spec = pytree.tree_flatten(args)
        written = [_path(path, isinstance(given, Tensor)) for path, _ in pytree.tree_flatten_with_path(args)[0]]
        self.paths = written if paths is None else paths
        numbers = [k for k, leaf in enumerate(self.leaves) if is_number(leaf)]
        self.chosen = [k for k in numbers if self.leaves[k].requires_grad] or numbers
        if not self.chosen:
            raise ValueError("No tensor of floating point is among the inputs: there is nothing to differentiate in.")
        self.sizes = [leaf.numel() for leaf in self.tensors]

    @property
    def tensors(self) -> list[Tensor]:
        """Those that are differentiated, as they were given."""
        return [self.leaves[k] for k in self.chosen]

    @property
    def size(self) -> int:
        return sum(self.sizes)

    @property
    def vector(self) -> Tensor:
        return joined([each.detach() for each in self.tensors])

    @property
    def dtype(self) -> torch.dtype:
        """The least precise of those that are differentiated."""
        return max((each.dtype for each in self.tensors), key=lambda kind: torch.finfo(kind).eps)

    def dtype_of(self, entry: int) -> torch.dtype:
        """That of the tensor to which an entry of the vector belongs."""
        for each, size in zip(self.tensors, self.sizes, strict=True):
            if entry < size:
                return each.dtype
            entry -= size
        raise IndexError(entry)

    def copies(self, vector: Tensor | None = None) -> list[Tensor]:
        """Leaves of a new graph, in the layout of the given tensors, with the entries of a vector if there is one."""
        found = [each.detach().clone() for each in self.tensors]
        if vector is not None:
            for each, part in zip(found, self.split(vector), strict=True):
                each.copy_(part.view(each.shape))
        return [each.requires_grad_() for each in found]

    def rounded(self, vector: Tensor) -> Tensor:
        """A vector of the numbers that the tensors can hold."""
        pairs = zip(self.split(vector), self.tensors, strict=True)
        return torch.cat([part.to(each.dtype).to(torch.float64) for part, each in pairs])

    def at(self, vector: Tensor) -> Inputs:
        """The same inputs with the entries of a vector."""
        return Inputs(self.arguments(self.copies(vector)), self.paths)

    def arguments(self, tensors: Sequence[Any]) -> tuple[Any, ...]:
        """The arguments with other tensors in place of those that are differentiated."""
        leaves = list(self.leaves)
        for k, tensor in zip(self.chosen, tensors, strict=True):
            leaves[k] = tensor
        return pytree.tree_unflatten(leaves, self._spec)

    def split(self, vector: Tensor) -> tuple[Tensor, ...]:
        return vector.split(self.sizes)

    def shaped(self, vector: Tensor) -> tuple[Tensor, ...]:
        """A vector as tensors of the shapes of those that are differentiated."""
        return tuple(part.view(each.shape) for part, each in zip(self.split(vector), self.tensors, strict=True))

    def name(self, entry: int) -> str:
        """``inputs[0][1, 2]`` for an entry of the vector."""
        for k, size in zip(self.chosen, self.sizes, strict=True):
            if entry < size:
                return self.paths[k] + place(self.leaves[k].shape, entry)
            entry -= size
        raise IndexError(entry)

    def in_words(self, vector: Tensor, entries: Sequence[int]) -> str:
        """Some entries of a vector, a line each, so that numbers can be written down and be the same."""
        lines = [f"{self.name(each)} = {_exactly(float(vector[each]), self.dtype_of(each))}" for each in entries[:MOST]]
        return "\n".join([*lines, *([f"and {len(entries) - MOST} more"] if len(entries) > MOST else [])])


def _exactly(value: float, dtype: torch.dtype) -> str:
    return repr(value) if dtype is torch.float64 else f"{value:.9g}"


def is_number(leaf: Any) -> bool:
    return isinstance(leaf, Tensor) and (leaf.is_floating_point() or leaf.is_complex())


def joined(tensors: Sequence[Tensor]) -> Tensor:
    """One vector, on the CPU, in double precision.

    Raises:
        IsComplex: of complex tensors.
    """
    if any(each.is_complex() for each in tensors):
        raise IsComplex("Complex tensors are not checked here: torch.autograd.gradcheck does so.")
    parts = [(each.to_dense() if each.is_sparse else each).reshape(-1).to("cpu", torch.float64) for each in tensors]
    return torch.cat(parts) if parts else torch.zeros(0, dtype=torch.float64)


def place(shape: Sequence[int], entry: int) -> str:
    """``[1, 2]`` for the number of an entry; nothing for a tensor that is one number."""
    if not shape:
        return ""
    found = []
    for size in reversed(shape):
        found.append(entry % size)
        entry //= size
    return str(found[::-1])


def _path(path: Any, is_single: bool) -> str:
    """As it is written: ``inputs``, ``inputs[0]``, ``inputs[1]['weight']``."""
    return f"inputs{'' if is_single else pytree.keystr(path)}"
