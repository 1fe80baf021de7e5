"""A reverse pass in which an entry that takes no part contributes 0, whatever its slope.

Where a slope is infinite or nan, torch multiplies it with a cotangent of 0 and gets nan, though the result does not
follow that entry: it is not selected, is masked, or lies beyond a bound. Here the product is 0. A cotangent may also be
0 where the result does follow, as in sqrt(x)^2 at 0: what is found is held against the program's values before it is
returned.
"""

from __future__ import annotations

from cmath import isfinite
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from math import isnan
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from subgrad.torch_internals.autograd import dims_left_out
from subgrad.torch_internals.tensors import foreach_norm

Gradients = tuple[Tensor | None, ...]


def is_finite(tensors: Sequence[Tensor | None]) -> bool:
    """Whether all entries are: then their sum is, unless it overflows."""
    given = [each for each in tensors if each is not None]
    return isfinite(_sum(given)) or all(bool(_dense(each).isfinite().all()) for each in given)


def is_nan(number: Tensor) -> bool:
    """Whether a tensor of one entry is."""
    return isnan(found) if isinstance(found := number.item(), float) else bool(number.isnan())


def _sum(tensors: Sequence[Tensor]) -> complex:
    """Of all entries; of their sizes on a device, where one launch adds them up, and is waited for once."""
    total: complex = 0.0
    elsewhere: dict[Any, list[Tensor]] = {}
    for each in tensors:
        if each.is_cpu:
            total += each.sum().item()
        elif each.numel():
            elsewhere.setdefault((each.dtype, each.device, each.layout), []).append(each.detach())
    for (dtype, _, layout), alike in elsewhere.items():
        is_plain = layout is torch.strided and dtype.is_floating_point
        sizes = foreach_norm(alike, 1) if is_plain else [_dense(each).abs().sum() for each in alike]
        total += torch.stack(list(sizes)).sum(dtype=torch.float32).item()
    return total


def _dense(each: Tensor) -> Tensor:
    return each if each.layout is torch.strided else each.to_dense()


class Sparing(TorchFunctionMode):
    """Record a graph from which dead entries can be spared one by one, also where an operator sums over them.

    What is broadcast is made as wide as the result first, so that its derivative is summed by an operator of its own.
    What products sum over is finite in their backward pass, where rows that are nan are multiplied with 0.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        if name.strip("_") in PRODUCTS:
            with torch.autograd.graph.saved_tensors_hooks(Tensor.detach, torch.nan_to_num):
                return func(*args, **(kwargs or {}))
        if len(args) > 1 and is_of_entries(name):
            args = _spread(args)
        return func(*args, **(kwargs or {}))


# Linear in each of their operands, of which they sum products.
PRODUCTS = frozenset(
    (
        *("matmul", "rmatmul", "imatmul", "mm", "bmm", "mv", "dot", "vdot", "vecdot", "inner", "outer", "ger", "kron"),
        *("einsum", "tensordot", "linear", "bilinear", "addmm", "addmv", "addr", "addbmm", "baddbmm", "multi_dot"),
        *("conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d"),
        *("scaled_dot_product_attention", "multi_head_attention_forward"),
    )
)


@cache
def is_of_entries(name: str) -> bool:
    """Whether every entry of an operator's result is made of one entry of each operand."""
    bare = name.strip("_").removeprefix("special_")
    packet = getattr(torch.ops.aten, _OTHER_NAMES.get(bare, bare), None)
    overloads = packet.overloads() if packet is not None else ()
    return any(torch.Tag.pointwise in getattr(packet, each).tags for each in overloads)


_OTHER_NAMES = {
    **dict.fromkeys(("truediv", "rtruediv", "itruediv", "rdiv", "divide", "true_divide"), "div"),
    **dict.fromkeys(("rmul", "imul", "multiply"), "mul"),
    **dict.fromkeys(("rsub", "isub", "subtract"), "sub"),
    **{"rpow": "pow", "ipow": "pow", "arctan2": "atan2"},
}


def _spread(args: tuple[Any, ...]) -> tuple[Any, ...]:
    tensors = [each for each in args if isinstance(each, Tensor) and each.layout is torch.strided]
    shapes = {each.shape for each in tensors}
    if len(shapes) < 2:
        return args
    try:
        shape = torch.broadcast_shapes(*shapes)
    except RuntimeError:  # which the operator itself will say
        return args
    dtypes = {each.dtype for each in tensors if each.ndim and (each.is_floating_point() or each.is_complex())}
    # A number of another type would change that of the result.
    wide = [each for each in tensors if each.dtype in dtypes and (each.ndim or len(dtypes) == 1)]
    return tuple(each.expand(shape) if any(each is other for other in wide) else each for each in args)


# With a slope that is not finite where their operand is 0, and a value that is.
ROOTS = ("SqrtBackward0", "PowBackward0", "Atan2Backward0")


def spare_dead_entries(value: Tensor, is_anywhere: bool = False) -> None:
    """Let a backward from here take products of 0 and a slope that is nan for 0, at every operator.

    At a point that might be anywhere, ``is_anywhere``, an operand of a root is 0 only if it always is, as the distance
    of a point from itself: then it has no derivative to be multiplied with.
    """
    for node in _nodes(value):
        node.register_hook(partial(_without_dead, dims_left_out(node)))
        if is_anywhere and type(node).__name__ in ROOTS:
            node.register_hook(_without_constants)


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


def _without_constants(gradients: Gradients, cotangents: Gradients) -> Gradients:
    (given,) = cotangents
    is_given = given is not None and bool(given.isfinite().all())
    return tuple(each if each is None or not is_given else torch.where(each.isfinite(), each, 0) for each in gradients)


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
