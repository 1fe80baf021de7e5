"""Norms, distances and deviations where they bend: the gradient in the direction of the tangent, u'/|u'| at zero."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Any

import torch
from torch import Tensor

from subgrad.apply.pass_kernels import PassCall
from subgrad.clarke.engine.duals import tangent, valued, values
from subgrad.clarke.engine.errors import Refused, here
from subgrad.clarke.engine.passes import Decide
from subgrad.clarke.engine.rule import Rule
from subgrad.kinks.conditions import all_pairs, pairs, slices


def _dims(dim: Any) -> Any:
    return tuple(dim) if isinstance(dim, list | tuple) and dim else None if not isinstance(dim, int) else dim


@dataclass(frozen=True)
class Norm(Rule):
    """The rule of an operator that is a norm of vectors made from its arguments; a branch is the gradient in these.

    Attributes:
        vectors: the vectors, linear in the arguments.
        power: which norm.
        dim: the dimensions of the vectors that it takes away; None for all.
        factor: what it is multiplied with.
        wholly: it has no forward mode of its own, so that it is always made from its vectors in the tangent pass.
    """

    vectors: Callable[[Any], Tensor]
    power: Callable[[Any], float]
    dim: Callable[[Any], Any] = lambda arguments: None
    factor: Callable[[Any, Tensor], float] = lambda arguments, vectors: 1.0
    wholly: bool = False

    def look(self, call: PassCall, tol: float) -> tuple[Any, Tensor | bool]:
        out = call.run()
        with values():
            return out, self.hits(call, tol, out)

    def hits(self, call: PassCall, tol: float, out: Any = None) -> Tensor | bool:
        if self.wholly and out is None:
            return True
        p = self.power(call.arguments)
        if 1 < p < inf and out is not None:
            found = out[0] if isinstance(out, tuple) else out
            return (found <= tol * 2).any() if found.numel() else False
        u = self.vectors(call.arguments)
        if u.numel() == 0:
            return False
        if p in (inf, -inf):
            return True  # found out where the branch is decided: it costs what looking costs
        return (u.abs() <= tol).any()

    def decide(self, call: PassCall, at: Decide) -> Tensor:
        at.require_a_direction_without_form()
        p, dim = self.power(call.arguments), self.dim(call.arguments)
        u = self.vectors(call.arguments)
        moved = tangent(u)
        with values():
            u = u.clone()
            ahead = torch.zeros_like(u) if moved is None else moved
            near = u.abs() <= at.tol
            if 0 <= p < 1 and bool(near.any()):
                raise Refused(
                    f"{call.op.op} with p = {p} at {here()} has no generalised derivative where entries are 0."
                )
            if u.is_complex():
                raise Refused(f"{call.op.op} at {here()} meets a kink with complex numbers.")
            return _gradient(u, ahead, near, p, dim) * self.factor(call.arguments, u)

    def along(self, call: PassCall, branch: Tensor) -> Any:
        with values():
            native = call.native(call.arguments)
        value = native[0] if isinstance(native, tuple) else native
        product = branch * self.vectors(call.arguments)
        dim = self.dim(call.arguments)
        found = valued((product.sum() if dim is None else product.sum(dim)).reshape(value.shape).to(value.dtype), value)
        if not isinstance(native, tuple):
            return found
        mean = (
            call.arguments["self"].mean(dim, call.arguments["keepdim"])
            if dim is not None
            else call.arguments["self"].mean()
        )
        return found, mean.reshape(native[1].shape)


def _gradient(u: Tensor, ahead: Tensor, near: Tensor, p: float, dim: Any) -> Tensor:
    """The gradient of the norm a little further on."""
    signs = torch.sign(torch.where(near, ahead, u))
    if p in (inf, -inf):
        return signs * _one_hot(u, torch.where(near, ahead.abs(), signs * ahead), near, p == inf, dim)
    if p == 1:
        return signs
    everything = tuple(range(u.ndim)) if dim is None else dim
    if p < 0:  # the entries that vanish are all that counts
        point = torch.where(near.sum(everything, keepdim=True) > 0, torch.where(near, ahead, inf), u)
    else:
        point = torch.where((~near).sum(everything, keepdim=True) == 0, ahead, u)
    size = torch.linalg.vector_norm(point, p, dim=everything, keepdim=True)
    slopes = torch.sign(point) * (point.abs() / size) ** (p - 1)
    return torch.where(size > 0, slopes, 0)


def _one_hot(u: Tensor, ahead: Tensor, near: Tensor, largest: bool, dim: Any) -> Tensor:
    """1 for the entry of largest, or smallest, size in each vector, by size and then by how that changes."""
    dims = list(range(u.ndim)) if dim is None else [dim % u.ndim] if isinstance(dim, int) else [d % u.ndim for d in dim]
    rest = [each for each in range(u.ndim) if each not in dims]
    order = [*rest, *dims]
    size, change = (each.permute(order).flatten(len(rest)) for each in (torch.where(near, 0, u.abs()), ahead))
    best = size.amax(-1, True) if largest else size.amin(-1, True)
    key = torch.where(size == best, change if largest else -change, -inf)
    hot = torch.zeros_like(key).scatter(-1, key.argmax(-1, keepdim=True), 1)
    inverse = [order.index(each) for each in range(u.ndim)]
    return hot.reshape([u.shape[each] for each in order]).permute(inverse)


def _deviations(arguments: Any) -> Tensor:
    x, dim = arguments["self"], _dims(arguments["dim"])
    return x - (x.mean() if dim is None else x.mean(dim, keepdim=True))


def _unbiased(arguments: Any, u: Tensor) -> float:
    dim, correction = _dims(arguments["dim"]), arguments["correction"]
    dims = range(u.ndim) if dim is None else [dim] if isinstance(dim, int) else dim
    count = 1
    for each in dims:
        count *= u.shape[each]
    return (count - (1 if correction is None else correction)) ** -0.5


def _cast(arguments: Any) -> Tensor:
    x, dtype = arguments["self"], arguments.get("dtype")
    return x if dtype is None else x.to(dtype)


@dataclass(frozen=True)
class Renormed(Rule):
    """The rule of `renorm`; a branch is which slices are projected, and the gradient of their norms."""

    def hits(self, call: PassCall, tol: float) -> Tensor | bool:
        if tol:
            return True
        found = [kink.hits(call.arguments).any() for kink in call.op.kinks if kink.applies(call.arguments)]
        return torch.stack(found).any() if found else False

    def decide(self, call: PassCall, at: Decide) -> tuple[Tensor, Tensor]:
        at.require_a_direction_without_form()
        p, largest = call.arguments["p"], call.arguments["maxnorm"]
        rows = slices(call.arguments["self"], call.arguments["dim"])
        moved = tangent(rows)
        with values():
            ahead = torch.zeros_like(rows) if moved is None else moved
            gradient = _gradient(rows, ahead, rows.abs() <= at.tol, p, 1)
            excess = torch.linalg.vector_norm(rows, p, dim=1) - largest
            return torch.where(excess.abs() <= at.tol, (gradient * ahead).sum(1), excess) > 0, gradient

    def along(self, call: PassCall, branch: tuple[Tensor, Tensor]) -> Tensor:
        projected, gradient = branch
        x, dim = call.arguments["self"], call.arguments["dim"]
        with values():
            value = call.native(call.arguments)
        rows = slices(x, dim)
        size = (gradient * rows).sum(1)
        factor = torch.where(projected, call.arguments["maxnorm"] / torch.where(projected, size, 1), 1)
        shape = x.movedim(dim, 0).shape
        return valued((rows * factor.unsqueeze(1)).reshape(shape).movedim(0, dim), value)


DEVIATION = Norm(_deviations, lambda _: 2.0, lambda a: _dims(a["dim"]), _unbiased)
NORMS: dict[str, Any] = {
    "linalg_vector_norm": Norm(_cast, lambda a: a["ord"], lambda a: _dims(a["dim"])),
    "norm.Scalar": Norm(_cast, lambda a: a["p"]),
    "norm.ScalarOpt_dim": Norm(_cast, lambda a: 2 if a["p"] is None else a["p"], lambda a: _dims(a["dim"])),
    "dist": Norm(lambda a: a["self"] - a["other"], lambda a: a["p"]),
    "_cdist_forward": Norm(lambda a: pairs(a["x1"], a["x2"]), lambda a: a["p"], lambda _: -1, wholly=True),
    "_euclidean_dist": Norm(lambda a: pairs(a["x1"], a["x2"]), lambda _: 2.0, lambda _: -1, wholly=True),
    "_pdist_forward": Norm(lambda a: all_pairs(a["self"]), lambda a: a["p"], lambda _: -1, wholly=True),
    "renorm": Renormed(),
    "std.correction": DEVIATION,
    "std_mean.correction": DEVIATION,
}
