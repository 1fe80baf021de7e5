"""The entries of PyTorch's operator database, as functions of the tensors that are differentiated."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import TreeSpec, tree_flatten, tree_unflatten

Point = tuple[torch.Tensor, ...]

SEED = 0
DATABASE_SEED = 1234  # torch's own
LARGE = 5_000  # entries of all inputs together: a larger sample shows nothing that a small one does not
LARGEST = {"nn.functional.ctc_loss": 20_000, "slice_scatter": 20_000}  # have no small samples


@dataclass(frozen=True)
class Program:
    """One sample of one entry: a function of its differentiated float64 inputs, all else held fixed."""

    entry: Any
    sample: Any
    leaves: tuple[Any, ...]
    structure: TreeSpec
    moving: tuple[int, ...]

    @property
    def point(self) -> Point:
        """The inputs as the database samples them."""
        return tuple(self.leaves[index].detach().clone() for index in self.moving)

    @property
    def constants(self) -> Point:
        """The floating inputs that are not differentiated: targets, running means."""
        fixed = (leaf for index, leaf in enumerate(self.leaves) if index not in self.moving)
        return tuple(leaf.detach() for leaf in fixed if isinstance(leaf, torch.Tensor) and leaf.is_floating_point())

    @property
    def description(self) -> str:
        """Shapes and parameters, in one line."""
        return ", ".join(
            str(tuple(leaf.shape)) if isinstance(leaf, torch.Tensor) else repr(leaf) for leaf in self.leaves
        )

    def numbers(self) -> list[float]:
        """The numeric parameters of the sample."""
        return [float(leaf) for leaf in self.leaves if isinstance(leaf, int | float) and not isinstance(leaf, bool)]

    def holding(self, held: set[int]) -> Program:
        """The same function with some more of its inputs held fixed."""
        return replace(self, moving=tuple(index for k, index in enumerate(self.moving) if k not in held))

    def call(self, point: Point) -> Any:
        """The operator itself, with the randomness of every call the same."""
        # Constants are copied: batch norm overwrites its running means.
        leaves = [leaf.detach().clone() if isinstance(leaf, torch.Tensor) else leaf for leaf in self.leaves]
        for index, tensor in zip(self.moving, point, strict=True):
            leaves[index] = tensor
        first, args, kwargs = tree_unflatten(leaves, self.structure)
        torch.default_generator.manual_seed(SEED)  # torch.manual_seed takes a stack trace, a millisecond each
        return self.entry.gradcheck_wrapper(self.entry.op, first, *args, **kwargs)

    def outputs(self, point: Point) -> list[torch.Tensor]:
        """The floating outputs, reduced by the database's own rule to what is well defined."""
        with torch.no_grad():
            outputs = self.call(point)
            reduced = self.sample.output_process_fn_grad(outputs)
            if reduced is not outputs:
                with Squares():
                    reduced = self.sample.output_process_fn_grad(outputs)
        tensors = [leaf for leaf in tree_flatten(reduced)[0] if isinstance(leaf, torch.Tensor)]
        return [tensor for tensor in tensors if tensor.is_floating_point() or tensor.is_complex()]

    def __call__(self, point: Point) -> torch.Tensor:
        """All floating outputs in one row of float64."""
        rows = [_real(tensor).flatten().double() for tensor in self.outputs(point)]
        return torch.cat(rows) if rows else torch.empty(0, dtype=torch.float64)

    def precision(self, point: Point) -> torch.Tensor:
        """The rounding of every output, by its own type: casts return less than float64."""
        rows = [_real(tensor).flatten() for tensor in self.outputs(point)]
        return torch.cat([torch.full((len(row),), torch.finfo(row.dtype).eps, dtype=torch.float64) for row in rows])


class Squares(TorchDispatchMode):
    """Squares for absolute values: as free of the sign of an eigenvector, and without a kink of their own."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten.abs.default:
            return (args[0] * args[0].conj()).real if args[0].is_complex() else args[0] * args[0]
        return func(*args, **(kwargs or {}))


def _real(tensor: torch.Tensor) -> torch.Tensor:
    dense = (tensor if tensor.layout is torch.strided else tensor.to_dense()).detach()
    return torch.view_as_real(dense.resolve_conj()) if dense.is_complex() else dense


@cache
def entries() -> dict[str, Any]:
    """The differentiable entries by full name; variants count as their own."""
    from torch.testing._internal.common_methods_invocations import op_db  # takes 15 seconds: only where it is needed

    return {entry.full_name: entry for entry in op_db if entry.supports_autograd}


def programs(name: str, limit: int) -> list[Program]:
    """At most ``limit`` samples of an entry, chosen so that as many values of their parameters as possible occur."""
    _seed(SEED)
    smallest: dict[frozenset[str], Program] = {}
    for program in _all(entries()[name]):
        key = _parameters(program)
        if key not in smallest or _preference(program) < _preference(smallest[key]):
            smallest[key] = program
    chosen: list[Program] = []
    seen: set[str] = set()
    while smallest and len(chosen) < limit:
        key = max(smallest, key=lambda key: len(key - seen))
        seen |= key
        chosen.append(smallest.pop(key))
    return chosen


def _all(entry: Any) -> Iterator[Program]:
    for sample in _samples(entry):
        leaves, structure = tree_flatten((sample.input, sample.args, sample.kwargs))
        moving = tuple(index for index, leaf in enumerate(leaves) if _moves(leaf))
        if 0 < sum(leaves[index].numel() for index in moving) <= LARGEST.get(entry.full_name, LARGE):
            yield Program(entry, sample, tuple(leaves), structure, moving)


def _samples(entry: Any) -> Iterator[Any]:
    """Those of ``sample_inputs``, which reads the whole stack for every one to know which test it is in."""
    drawn = iter(entry.sample_inputs_func(entry, "cpu", torch.float64, requires_grad=True))
    while True:
        _seed(DATABASE_SEED)  # as torch: each sample is drawn afresh
        try:
            sample = next(drawn)
        except StopIteration:
            return
        yield sample


def _seed(seed: int) -> None:
    random.seed(seed)
    numpy.random.seed(seed)
    torch.default_generator.manual_seed(seed)


def _moves(leaf: Any) -> bool:
    strided = isinstance(leaf, torch.Tensor) and leaf.layout is torch.strided and not leaf.is_nested
    return strided and leaf.requires_grad and leaf.dtype is torch.float64


def _parameters(program: Program) -> frozenset[str]:
    """What tells samples apart: every argument that is no tensor, and how many dimensions the tensors have."""
    shown = [leaf.ndim if isinstance(leaf, torch.Tensor) else leaf for leaf in program.leaves]
    return frozenset([*(f"{place}: {value!r}" for place, value in enumerate(shown)), str(program.structure)])


def _preference(program: Program) -> tuple[bool, int]:
    """Small samples first, but not so small that nothing in them can tie."""
    sizes = [program.leaves[index].numel() for index in program.moving]
    return max(sizes) < 4, sum(sizes)
