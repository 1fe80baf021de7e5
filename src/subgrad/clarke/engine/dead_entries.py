"""A reverse pass in which an entry that takes no part contributes 0, whatever its slope.

Where a slope is infinite or nan, torch multiplies it with a cotangent of 0 and gets nan, though the result does not
follow that entry: it is not selected, is masked, or lies beyond a bound. Here the product is 0. A cotangent may also be
0 where the result does follow, as in sqrt(x)^2 at 0: what is found is held against the program's values before it is
returned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from subgrad.torch_internals.autograd import dims_left_out
from subgrad.torch_internals.tensors import foreach_norm

Gradients = tuple[Tensor | None, ...]


def is_nan(tensors: Sequence[Tensor | None]) -> bool:
    """Whether any entry is, read from the device once."""
    alike: dict[Any, list[Tensor]] = {}
    for each in tensors:
        if each is not None and each.numel():
            alike.setdefault((each.dtype, each.device, each.layout), []).append(each.detach())
    found = [_has_nan(some) for some in alike.values()]
    return bool(torch.stack([each.to(found[0].device) for each in found]).any()) if found else False


def _has_nan(tensors: list[Tensor]) -> Tensor:
    """Of tensors that are alike. A sum of sizes is nan where one of them is, and nowhere else."""
    if tensors[0].layout is torch.strided and tensors[0].is_floating_point():
        return torch.stack(foreach_norm(tensors, 1)).isnan().any()
    return torch.stack([each.isnan().any() for each in tensors]).any()


def spare_dead_entries(value: Tensor) -> None:
    """Let a backward from here take products of 0 and a slope that is nan for 0, at every operator."""
    for node in _nodes(value):
        node.register_hook(partial(_without_dead, dims_left_out(node)))


def _nodes(value: Tensor) -> Iterator[Any]:
    seen, waiting = set(), [value.grad_fn]
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        waiting.extend(each for each, _ in node.next_functions)
        if node.next_functions:  # those without add to a leaf
            yield node


def _without_dead(reduced: int | Sequence[int] | None, gradients: Gradients, cotangents: Gradients) -> Gradients:
    """Called with what an operator makes of its cotangents."""
    given = [each for each in cotangents if each is not None]
    return tuple(
        each if each is None or each.layout is not torch.strided else _spared(each, given, reduced)
        for each in gradients
    )


def _spared(gradient: Tensor, cotangents: list[Tensor], reduced: int | Sequence[int] | None) -> Tensor:
    is_dead: Tensor | Callable[..., Any] | None = None
    if len(cotangents) == 1:
        is_dead = _as_wide(cotangents[0] == 0, gradient.shape, reduced)
    if is_dead is None:  # the result does not follow any entry
        is_dead = torch.stack([(each == 0).all() for each in cotangents]).all() if cotangents else None
    return gradient if is_dead is None else torch.where(gradient.isnan() & is_dead, 0, gradient)


def _as_wide(mask: Tensor, shape: torch.Size, reduced: int | Sequence[int] | None) -> Tensor | None:
    """What was said of the entries of a result, for those of the operand that it was made of."""
    if reduced is not None and mask.ndim < len(shape):
        for dim in sorted(each % len(shape) for each in ([reduced] if isinstance(reduced, int) else reduced)):
            mask = mask.unsqueeze(dim)
    try:
        return mask.expand(shape)
    except RuntimeError:
        return None
