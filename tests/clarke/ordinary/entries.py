"""What an ordinary program is: a function, where it is evaluated, and whether it is differentiable there in truth."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

ENTRIES: list[Entry] = []


def numbers(*values: Any) -> Tensor:
    """In float64, in which differences of values are sharp."""
    return torch.tensor(values if len(values) != 1 else values[0], dtype=torch.float64)


def spread(*shape: int) -> Tensor:
    """Numbers of several sizes and signs, the same in every run."""
    size = torch.Size(shape).numel()
    return (torch.arange(1, size + 1, dtype=torch.float64) * 0.7).sin().reshape(shape)


@dataclass(frozen=True)
class Entry:
    """One program.

    Attributes:
        kind: what it is about.
        program: a function of tensors; or, with ``closure``, one that takes nothing and reads its parameters.
        arguments: where it is evaluated, all of it differentiated in.
        smooth: whether it is differentiable there in truth, however it is written; None where that is not claimed.
        closure: whether it is differentiated as ``subgrad.backward(program, arguments)``.
    """

    kind: str
    program: Callable[..., Tensor]
    arguments: tuple[Tensor, ...]
    smooth: bool
    closure: bool = False

    @property
    def name(self) -> str:
        return self.program.__name__

    def at(self, point: Sequence[float]) -> float:
        """The value with other numbers in the place of the arguments; random numbers are drawn again."""
        torch.default_generator.manual_seed(0)  # torch.manual_seed takes a stack trace for each kind of device
        moved, start = [], 0
        for each in self.arguments:
            entries = torch.tensor(point[start : start + each.numel()], dtype=each.dtype)
            moved.append(entries.reshape(each.shape).requires_grad_(not self.closure))
            start += each.numel()
        if not self.closure:
            return float(self.program(*moved))
        kept = [each.detach().clone() for each in self.arguments]
        with torch.no_grad():
            for each, value in zip(self.arguments, moved, strict=True):
                each.copy_(value)
            try:
                with torch.enable_grad():
                    return float(self.program())
            finally:
                for each, value in zip(self.arguments, kept, strict=True):
                    each.copy_(value)

    def point(self) -> list[float]:
        return [entry for each in self.arguments for entry in each.detach().flatten().tolist()]


def ordinary(kind: str, *arguments: Any, smooth: bool) -> Callable[[Callable[..., Tensor]], Callable[..., Tensor]]:
    """Register a function of tensors at a point."""

    def register(program: Callable[..., Tensor]) -> Callable[..., Tensor]:
        tensors = tuple(each if isinstance(each, Tensor) else numbers(each) for each in arguments)
        ENTRIES.append(Entry(kind, program, tensors, smooth))
        return program

    return register


def of_module(kind: str, module: torch.nn.Module, smooth: bool) -> Callable[[Callable[..., Tensor]], Any]:
    """Register a loss of a module as a function of its parameters, as `torch.func.functional_call` has it."""
    names = [name for name, _ in module.named_parameters()]
    tensors = tuple(each.detach().clone() for each in module.parameters())

    def register(loss: Callable[..., Tensor]) -> Any:
        def program(*parameters: Tensor) -> Tensor:
            given = dict(zip(names, parameters, strict=True))
            return loss(lambda *inputs: torch.func.functional_call(module, given, inputs))

        program.__name__ = loss.__name__
        ENTRIES.append(Entry(kind, program, tensors, smooth))
        return loss

    return register


def trained(kind: str, *parameters: Tensor, smooth: bool) -> Callable[[Callable[[], Tensor]], Callable[[], Tensor]]:
    """Register a closure that is differentiated with `subgrad.backward`."""

    def register(program: Callable[[], Tensor]) -> Callable[[], Tensor]:
        ENTRIES.append(Entry(kind, program, parameters, smooth, closure=True))
        return program

    return register
