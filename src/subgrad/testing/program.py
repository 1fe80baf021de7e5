"""A function of its inputs as a map between vectors: its values, and what autograd makes of it, near the inputs too."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from subgrad.audit.compare_batch import left_as_it_was
from subgrad.clarke.engine.duals import load_formulas
from subgrad.clarke.engine.environment import generator_states
from subgrad.testing.inputs import Inputs, is_number, joined, place
from subgrad.torch_internals.transforms import pytree


class Program:
    """A function and its inputs.

    It is run under the convention in force, with the same random numbers each time. What it returns counts entry by
    entry, in all tensors of floating point that depend on the inputs.

    Attributes:
        size: how many entries it returns.
        weights: one for each, by which cotangents are multiplied and rows divided: what a backward makes of a
            cotangent other than a product shows itself.
    """

    def __init__(self, f: Callable[..., Any], inputs: Inputs, seed: int = 0, states: list[Any] | None = None):
        self.f, self.inputs, self.seed = f, inputs, seed
        self.generator = torch.Generator().manual_seed(seed)
        self._states = generator_states(inputs.tensors) if states is None else states
        self.here = self.inputs.vector
        self.outputs: list[int] | None = None
        self.paths: list[str] = []
        self.shapes: list[torch.Size] = []
        first = self.run()
        self.value = first.value
        self.size = len(first.value)
        self.weights = nonconstant(self.size, self.generator)

    def run(self, vector: Tensor | None = None) -> Tape:
        """The function at a vector, with its graph."""
        leaves = self.inputs.copies(vector)
        with torch.enable_grad():
            return Tape(self, leaves, self.outputs_of(leaves))

    def outputs_of(self, tensors: list[Any]) -> list[Tensor]:
        """What the function returns for tensors in place of those of the inputs."""
        return self._outputs(self._called(tensors))

    def at(self, vector: Tensor) -> Program:
        """The same function at other inputs."""
        return Program(self.f, self.inputs.at(vector), self.seed, self._states)

    def value_at(self, vector: Tensor) -> Tensor:
        return self.run(vector).value

    def _called(self, tensors: list[Any]) -> Any:
        for generator, state in self._states:
            generator.set_state(state)
        return self.f(*self.inputs.arguments(tensors))

    def _outputs(self, result: Any) -> list[Tensor]:
        leaves = pytree.tree_leaves(result)
        if self.outputs is None:
            paths = [f"output{pytree.keystr(path)}" for path, _ in pytree.tree_flatten_with_path(result)[0]]
            numbers = [k for k, leaf in enumerate(leaves) if is_number(leaf)]
            if not numbers:
                raise ValueError("The function returns no tensor of floating point: there is nothing to differentiate.")
            self.outputs = [k for k in numbers if leaves[k].requires_grad] or numbers
            self.paths = [paths[k] for k in self.outputs]
            self.shapes = [leaves[k].shape for k in self.outputs]
        return [leaves[k] for k in self.outputs]

    def pushed(self, tangent: Tensor, vector: Tensor | None = None) -> Tensor:
        """What forward mode makes of a tangent."""
        load_formulas()
        with forward_ad.dual_level():
            pairs = zip(self.inputs.copies(vector), self.inputs.shaped(tangent), strict=True)
            duals = [forward_ad.make_dual(each.detach(), along.to(each)) for each, along in pairs]
            tensors = [forward_ad.unpack_dual(each) for each in self.outputs_of(duals)]
            return joined([torch.zeros_like(p) if t is None else t.detach() for p, t in tensors])

    def columns(self, vector: Tensor | None = None) -> Tensor:
        """The Jacobian by forward mode."""
        weights = nonconstant(self.inputs.size, self.generator)
        found = []
        for entry, weight in enumerate(weights.tolist()):
            tangent = torch.zeros(self.inputs.size, dtype=torch.float64)
            tangent[entry] = weight
            found.append(self.pushed(tangent, vector) / weight)
        return torch.stack(found, 1) if found else torch.zeros(self.size, 0, dtype=torch.float64)

    def name(self, entry: int) -> str:
        """``output[0][1, 2]`` for an entry of the result."""
        for path, shape in zip(self.paths, self.shapes, strict=True):
            if entry < shape.numel():
                return path + place(shape, entry)
            entry -= shape.numel()
        raise IndexError(entry)


class Tape:
    """One run of a function."""

    def __init__(self, program: Program, leaves: list[Tensor], tensors: list[Tensor]):
        self.program, self.leaves, self.tensors = program, leaves, tensors
        self.value = joined([each.detach() for each in tensors])

    def pulled(self, cotangent: Tensor) -> Tensor:
        """What backward makes of a cotangent."""
        parts = cotangent.split([each.numel() for each in self.tensors])
        pairs = [(y, part.view(y.shape).to(y)) for y, part in zip(self.tensors, parts, strict=True) if y.requires_grad]
        if not pairs:
            return torch.zeros(self.program.inputs.size, dtype=torch.float64)
        outputs, cotangents = zip(*pairs, strict=True)
        found = torch.autograd.grad(
            outputs, self.leaves, cotangents, retain_graph=True, allow_unused=True, materialize_grads=True
        )
        return joined(found)

    def row(self, entry: int) -> Tensor:
        """The gradient of one entry of the result."""
        cotangent = torch.zeros(len(self.value), dtype=torch.float64)
        cotangent[entry] = weight = float(self.program.weights[entry])
        return self.pulled(cotangent) / weight

    def rows(self) -> Tensor:
        """The Jacobian by reverse mode."""
        found = [self.row(entry) for entry in range(len(self.value))]
        return torch.stack(found) if found else torch.zeros(0, self.program.inputs.size, dtype=torch.float64)


def nonconstant(size: int, generator: torch.Generator) -> Tensor:
    """Factors of either sign, between 1/2 and 2, that floating-point numbers can be multiplied with and divided by."""
    sizes = 0.5 + 1.5 * torch.rand(size, generator=generator, dtype=torch.float64)
    signs = torch.randint(0, 2, (size,), generator=generator) * 2 - 1
    return (64 * sizes).round() / 64 * signs


@contextmanager
def undisturbed(inputs: Inputs) -> Iterator[None]:
    """Random generators and buffers of the modules that are called are afterwards as they were, whatever is raised.

    Inside, autograd records, also where `torch.inference_mode` is around.
    """
    given = {inputs.paths[k]: inputs.leaves[k] for k in inputs.chosen}
    with left_as_it_was(given), torch.inference_mode(False):
        yield
