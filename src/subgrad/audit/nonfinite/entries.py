"""One entry of what an operator took and gave: which one is not finite, and the numbers that belong to it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from subgrad.torch_internals.autograd import dims_left_out

Entry = tuple[int, ...]
# What an operator takes, where it keeps only its result.
FROM_RESULT = {
    "sqrt": lambda y: y * y,
    "rsqrt": lambda y: (y * y).reciprocal(),
    "reciprocal": lambda y: y.reciprocal(),
    "exp": lambda y: y.log(),
    "exp2": lambda y: y.log2(),
    "expm1": lambda y: y.log1p(),
}
RESULTS = (
    "result",
    "result0",
    "result1",
    "result2",
    "eigenvalues",
    "eigenvectors",
    "S",
    "U",
    "Vh",
    "inverse",
    "L",
    "Q",
    "R",
    "LU",
)


def first_bad(tensor: Tensor) -> Entry | None:
    """The first entry that is NaN; the first that is infinite if there is none."""
    dense = tensor.to_dense() if tensor.layout is not torch.strided else tensor
    for places in (dense.isnan(), dense.isinf()):
        if places.any():
            return tuple(int(each) for each in places.nonzero()[0])
    return None


def number(tensor: Tensor, entry: Entry) -> Any:
    return tensor[entry].item()


def text(value: Any) -> str:
    """A number as short as it can be told."""
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def broadcast(entry: Entry, of: torch.Size, tensor: Tensor) -> Entry | None:
    """The place in an operand that belongs to an entry of what it was broadcast to."""
    lead = len(of) - tensor.ndim
    if lead < 0 or any(size not in (1, wide) for size, wide in zip(tensor.shape, of[lead:], strict=True)):
        return None
    return tuple(0 if size == 1 else place for place, size in zip(entry[lead:], tensor.shape, strict=True))


def of_result(node: Any, entry: Entry, of: torch.Size, result: Tensor) -> Entry | None:
    """The place in the result of an operator, or in its cotangent, that belongs to an entry of an input.

    None where an entry of the result is made of others: products of matrices, indices.
    """
    if result.shape == of:
        return entry
    reduced = dims_left_out(node)
    if reduced is not None and result.ndim < len(of):
        dims = [reduced] if isinstance(reduced, int) else list(reduced)
        left = {each % len(of) for each in dims} or set(range(len(of)))
        kept = tuple(place for dim, place in enumerate(entry) if dim not in left)
        return kept if len(kept) == result.ndim else None
    if result.ndim <= len(of):
        return broadcast(entry, of, result)
    return _first_of(entry, of, result.shape)


def _first_of(entry: Entry, of: torch.Size, shape: torch.Size) -> Entry | None:
    """Of the entries that an operand was broadcast to, the first."""
    lead = len(shape) - len(of)
    pairs = zip(entry, of, shape[lead:], strict=True)
    return (0,) * lead + entry if all(size in (1, wide) for _, size, wide in pairs) else None


def inputs(operator: str, node: Any, saved: Mapping[str, Any], entry: Entry, of: torch.Size) -> dict[str, str]:
    """The numbers that an operator has kept of an entry of its input, by name; of matrices it has kept others."""
    found: dict[str, str] = {}
    if operator.startswith("linalg") and operator != "linalg_vector_norm":
        return found
    for name, value in saved.items():
        if isinstance(value, Tensor) and value.layout is torch.strided and value.numel():
            place = of_result(node, entry, of, value) if name in RESULTS else _place(entry, of, value)
            if place is not None and len(place) == value.ndim:
                found[name] = text(number(value, place))
        elif isinstance(value, float):
            found[name] = text(value)
    if "self" not in found and "result" in found and operator in FROM_RESULT:
        result: Tensor = saved["result"]
        place = of_result(node, entry, of, result)
        if place is not None:
            del found["result"]
            return {"self": text(number(FROM_RESULT[operator](result.detach()[place]), ())), **found}
    return found


def _place(entry: Entry, of: torch.Size, value: Tensor) -> Entry | None:
    if value.shape == of:
        return entry
    return broadcast(entry, of, value) if value.ndim <= len(of) else _first_of(entry, of, value.shape)


def operands(given: Mapping[str, Any], entry: Entry, of: torch.Size) -> dict[str, str]:
    """The numbers among the arguments of a call that belong to an entry of its result."""
    found: dict[str, str] = {}
    for name, value in given.items():
        if isinstance(value, Tensor) and value.layout is torch.strided and value.numel():
            place = broadcast(entry, of, value)
            if place is not None:
                found[name] = text(number(value.detach(), place))
        elif isinstance(value, float):
            found[name] = text(value)
    return found
