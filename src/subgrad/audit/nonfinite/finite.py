"""Whether tensors are finite, and which of their entries are not."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import isfinite
from typing import Any

import torch
from torch import Tensor

from subgrad.apply.autograd_nodes import values
from subgrad.audit.nonfinite.result import INFINITE, NAN, Reached
from subgrad.torch_internals.tensors import flatten_dense_tensors, foreach_norm, values_of


def total(tensor: Tensor) -> Tensor:
    """The sum of all entries, in which each that is not finite shows. Half precision would overflow sooner."""
    return tensor.sum(dtype=torch.float32) if tensor.element_size() == 2 else tensor.sum()


def is_finite(tensor: Tensor) -> bool:
    """Read from its device: in one pass over it, and a second one where the sum overflows."""
    with values():
        each = local(tensor)
        if not each.is_floating_point() and not each.is_complex():
            return True
        found = total(each).item()
        return (isfinite(found.real) and isfinite(found.imag)) or bool(each.isfinite().all())


TOGETHER = 2**18  # entries of tensors that are copied into one: fewer calls


def are_plainly_finite(tensors: Iterable[Tensor]) -> bool | None:
    """Whether their sums are; None where some are not on the CPU, or no plain memory."""
    given = list(tensors)
    for each in given:
        if type(each) is not Tensor or not each.is_cpu or each.layout is not torch.strided:
            return None
    with values():
        together = in_one(given) if len(given) > 1 else None
        return isfinite(sum(abs(total(each).item()) for each in (given if together is None else [together])))


def in_one(tensors: Sequence[Tensor]) -> Tensor | None:
    """The entries of small floating-point tensors that are alike, in one; None if there are many, or of many kinds."""
    size, first = 0, tensors[0]
    for each in tensors:
        size += each.numel()
        if type(each) is not Tensor or each.dtype is not first.dtype or each.device != first.device:
            return None
        if each.layout is not torch.strided:
            return None
    if not 0 < size <= TOGETHER or not (first.is_floating_point() or first.is_complex()):
        return None
    with values():
        return flatten_dense_tensors(tensors)


def local(tensor: Tensor) -> Tensor:
    """What a device has of a tensor: the entries of a sparse one, and of a distributed one this rank's part."""
    if type(tensor) is Tensor and tensor.layout is torch.strided:
        return tensor
    part: Any = getattr(tensor, "to_local", None)
    each: Tensor = tensor.detach() if part is None else part().detach()
    return each if each.layout is torch.strided else values_of(each)


def largest(tensors: Sequence[Tensor]) -> list[tuple[list[int], Tensor]]:
    """The largest entries, one for each tensor, NaN if any is; none is read. With the places of the tensors."""
    alike: dict[Any, list[tuple[int, Tensor]]] = {}
    for place, each in enumerate(map(local, tensors)):
        if each.numel() and (each.is_floating_point() or each.is_complex()):
            alike.setdefault((each.dtype, each.device), []).append((place, each))
    with values():
        return [
            ([place for place, _ in some], torch.stack(foreach_norm([each for _, each in some], float("inf"))))
            for some in alike.values()
        ]


def reached(named: Iterable[tuple[str, Tensor]]) -> tuple[Reached, ...]:
    """Of gradients by the names of their parameters, those that are not finite."""
    found = []
    for name, each in named:
        if not is_finite(each):
            part = local(each)
            nan = int(part.isnan().sum())
            found.append(Reached(name, part.numel(), NAN if nan else INFINITE, nan, int(part.isinf().sum())))
    return tuple(found)
