"""What other frameworks return at norms of zero vectors and of tied entries, where that is not torch's own gradient.

Beside torch's own derivative, which is the least element there, stands what is lacking: a slope for each entry that
lies on the kink. It may be nan, or no element of the set: that is what the framework returns.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import inf, nan
from typing import Any

import torch
from torch import Tensor

from subgrad.apply.autograd_nodes import Gate, are_known_absent, outer_levels, through, valued
from subgrad.apply.call import Arguments, Call
from subgrad.apply.executors import Executor, Run
from subgrad.apply.plan import Plan
from subgrad.kinks.conditions import all_pairs, pairs


class OtherElements(Executor):
    """Norms and deviations under a convention named after a framework that returns something else there."""

    def accepts(self, plan: Plan, call: Call) -> Run | None:
        if plan.other is None:
            return None
        if call.form != call.op.op:  # torch's own composite calls the operator, which then comes here
            return Call.native
        return partial(_run, SLOPES[call.op.op], plan.other, plan.spares)


NANS = ("nan", "nan if live")

# Returns a tensor of vectors; for each of its entries the slope to add to torch's own, 0 away from the kink; and the
# dimensions that the operator reduces.
Slopes = Callable[[str, Arguments, Tensor], "tuple[Tensor, Tensor, list[int]] | None"]


def _run(slopes_of: Slopes, other: str, spares: bool, call: Call) -> Any:
    out = call.native(call.arguments)
    values, *rest = out if isinstance(out, tuple) else (out,)
    lacking = slopes_of(other, call.arguments, values)
    if lacking is None:
        return out
    vectors, slopes, dims = lacking
    # TensorFlow's square root takes 0 * inf for 0; it is what powers other than 2 are not made of.
    spares = spares or (other == "nan if live" and call.arguments.get("ord", call.arguments.get("p")) in (None, 2))
    added = through(_Slope, vectors, slopes, spares).sum(dims, keepdim=bool(call.arguments.get("keepdim", False)))
    found = valued(values + added.to(values.dtype), values)
    return (found, *rest) if isinstance(out, tuple) else found


def _of_norm(
    power: str, vectors_of: Callable[[Arguments], Tensor], other: str, arguments: Arguments, values: Tensor
) -> tuple[Tensor, Tensor, list[int]] | None:
    p = arguments.get(power, 2)
    p = 2 if p is None else p
    if values.numel() == 0 or (other in NANS and are_known_absent(values == 0)):  # before pairs take memory
        return None
    vectors = vectors_of(arguments)
    if vectors.numel() == 0 or vectors.is_complex():  # which keep torch's own gradient, as everywhere
        return None
    dims = _dims(vectors, arguments.get("dim")) if vectors_of in (_self, _difference) else [-1]
    with torch.no_grad():
        slopes = _slopes_of_norm(other, vectors, p, dims).to(vectors.dtype)
    return None if are_known_absent(slopes != 0) else (vectors, slopes, dims)


def _slopes_of_norm(other: str, x: Tensor, p: float, dims: list[int]) -> Tensor:
    size = x.abs()
    if other in NANS:
        hit = size == 0 if p < 0 else size.amax(dims, keepdim=True) == 0
        return torch.where(hit, nan, 0.0).expand_as(x)
    if other == "right":
        return size == 0
    extreme = size.amax(dims, keepdim=True) if p == inf else size.amin(dims, keepdim=True)
    tied = size == extreme
    return torch.where(tied, x.sign() * (1 - 1 / tied.sum(dims, keepdim=True)), 0.0)


def _dims(x: Tensor, dim: Any) -> list[int]:
    return [dim] if isinstance(dim, int) else list(dim or range(x.ndim))


def _self(arguments: Arguments) -> Tensor:
    return arguments["self"]


def _difference(arguments: Arguments) -> Tensor:
    return arguments["self"] - arguments["other"]


def _of_deviation(other: str, arguments: Arguments, values: Tensor) -> tuple[Tensor, Tensor, list[int]] | None:
    x = arguments["self"]
    if x.numel() == 0 or x.is_complex() or are_known_absent(values == 0):
        return None
    dims = _dims(x, arguments["dim"])
    with torch.no_grad():
        constant = x.amax(dims, keepdim=True) == x.amin(dims, keepdim=True)
        slopes = torch.where(constant, nan, 0.0).to(x.dtype).expand_as(x)
    return x, slopes, dims


class _Slope(Gate):
    """Zeros, whose derivative with respect to ``x`` is a given slope for each entry."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, slopes: Tensor, spares: bool) -> Tensor:
        ctx.spares = spares
        ctx.save_for_backward(slopes)
        ctx.save_for_forward(slopes)
        with outer_levels():
            return torch.zeros_like(x)

    @staticmethod
    def backward(ctx: Any, cotangent: Tensor) -> tuple[Tensor | None, ...]:
        return _times(ctx, cotangent), None, None

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, *_: Any) -> Tensor:
        return _times(ctx, tangent)


def _times(ctx: Any, vector: Tensor) -> Tensor:
    (slopes,) = ctx.saved_tensors
    without = (slopes == 0) | (vector == 0) if ctx.spares else slopes == 0
    return torch.where(without, 0, slopes * vector)


SLOPES: dict[str, Slopes] = {
    "linalg_vector_norm": partial(_of_norm, "ord", _self),
    "norm.Scalar": partial(_of_norm, "p", _self),
    "norm.ScalarOpt_dim": partial(_of_norm, "p", _self),
    "dist": partial(_of_norm, "p", _difference),
    "_cdist_forward": partial(_of_norm, "p", lambda arguments: pairs(arguments["x1"], arguments["x2"])),
    "_euclidean_dist": partial(_of_norm, "p", lambda arguments: pairs(arguments["x1"], arguments["x2"])),
    "_pdist_forward": partial(_of_norm, "p", lambda arguments: all_pairs(arguments["self"])),
    "std.correction": _of_deviation,
    "std_mean.correction": _of_deviation,
}
