"""Bases of eigenvectors and singular vectors where values repeat, and their derivatives there.

Values that repeat have no vectors of their own: any basis of their common space will do, and what a program makes of
them has a derivative only if it does not depend on which. Between vectors of different values derivatives are the usual
ones. Inside such a *group* the formula for cotangents divides what vanishes (it would be the derivative along a turn of
the basis) by the difference of two values, which vanishes too. Along the direction of a pass both grow with a rate, and
the limit is the quotient of their rates. The rate of a cotangent is its tangent: reverse mode has to run while the
program still carries tangents (`gradient_with_tangents`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from subgrad.apply.autograd_nodes import Gate, alias, through
from subgrad.clarke.engine.duals import carries_tangents, carries_tangents_alone, dual, parts, tangent, values
from subgrad.clarke.engine.errors import Refused, where_raised
from subgrad.clarke.engine.passes import DoesNotRepeat
from subgrad.torch_internals.autograd import forward_level

Given = tuple[Tensor | None, ...]  # cotangents, None where nothing depends on an output


@dataclass(frozen=True)
class Basis:
    """What a decomposition returns along a direction; it knows the derivatives of that.

    Attributes:
        outputs: values as torch computes them, and vectors, turned inside groups to how the direction parts these.
        line: of the program.
        tol: values that are closer than this count as the same.
    """

    outputs: tuple[Tensor, ...]
    line: str
    tol: float

    def tangents(self, moved: Tensor) -> tuple[Tensor, ...]:
        """Of the outputs, where the matrix moves."""
        raise NotImplementedError

    def cotangent(self, given: Given, rates: Given | None) -> Tensor:
        """Of the matrix; with the tangents of cotangents, if there are tangents."""
        raise NotImplementedError

    def require_rates(self, rates: Given | None) -> None:
        if rates is None:
            raise DoesNotRepeat(f"vectors of repeated values, of {self.line}, have derivatives only beside tangents")

    def require_no_dependence(self, turn: Tensor, whole: Tensor) -> None:
        """The derivative along turns inside groups, which must vanish beside what there is on the whole."""
        rounding = max(torch.finfo(turn.dtype).eps, self.tol) ** 0.5
        if bool((turn.abs() > rounding * whole).any()):
            # To first order; what it depends on beyond, gradients nearby and values tell.
            raise Refused(
                f"The program depends on which basis {self.line} returns for a value that repeats: any other would do "
                "as well, so that it has no derivative. Use the vectors of a repeated value together, as in "
                "Q @ diag(f(l)) @ Q.T, or the values alone."
            )


def on_the_whole(turns: Tensor, growth: Tensor, of_values: Tensor | None, found: Tensor, speeds: Tensor) -> Tensor:
    """The size of derivatives of one matrix: along turns, and what values as large as its own would change."""
    size, speed = largest(found), largest(speeds)
    time = torch.where(speed > 0, size / torch.where(speed > 0, speed, 1), 0)  # in which values change by as much
    sizes = [_largest_of(turns), _largest_of(growth) * time]
    if of_values is not None:
        sizes.append(largest(of_values) * size)
    return torch.stack(sizes).amax(0)


def _largest_of(matrix: Tensor) -> Tensor:
    return matrix.abs().amax((-2, -1), keepdim=True)


def along(matrix: Tensor, basis: Basis) -> tuple[Tensor, ...]:
    """The outputs, differentiable in the matrix, in either mode."""
    if not carries_tangents_alone():
        return through(_Decomposed, matrix, basis, carries_tangents())
    moved = tangent(matrix)
    if moved is None:
        return basis.outputs
    with values():
        found = basis.tangents(moved)
    return tuple(map(dual, map(alias, basis.outputs), found))


class _Decomposed(Gate):
    @staticmethod
    def forward(ctx: Any, matrix: Tensor, basis: Basis, beside_tangents: bool) -> tuple[Tensor, ...]:
        ctx.basis, ctx.beside_tangents = basis, beside_tangents
        ctx.set_materialize_grads(False)
        return tuple(map(alias, basis.outputs))

    @staticmethod
    def backward(ctx: Any, *given: Tensor | None) -> tuple[Tensor | None, None, None]:
        rates = None
        if forward_level() >= 0:  # not asked by thread: on a GPU reverse mode has its own
            given, rates = zip(*(_with_rate(each) for each in given), strict=True)
        try:
            with values():
                return ctx.basis.cotangent(given, rates), None, None
        except DoesNotRepeat as error:  # that would ask for tangents once more
            if not ctx.beside_tangents:
                raise
            raise Refused(f"{error}, which are gone when the gradient is taken.") from None

    @staticmethod
    def jvp(ctx: Any, moved: Tensor, *_: Any) -> tuple[Tensor, ...]:
        return ctx.basis.tangents(moved)


def _with_rate(given: Tensor | None) -> tuple[Tensor | None, Tensor | None]:
    if given is None:
        return None, None
    value, rate = parts(given)
    return value, torch.zeros_like(value) if rate is None else rate


def gradient_with_tangents(
    script: Sequence[tuple[Any, Any]], value: Tensor, leaves: Sequence[Tensor], line: str
) -> tuple[Tensor | None, ...] | None:
    """The gradient of a value that carries tangents, if there are bases whose derivatives ask for these; else None."""
    bases = [branch for _, branch in script if isinstance(branch, Basis) and len(branch.outputs) > 1]
    if not value.requires_grad or not bases:
        return None
    try:
        found = torch.autograd.grad(value, leaves, torch.ones_like(parts(value)[0]), allow_unused=True)
    except (NotImplementedError, RuntimeError) as error:
        if isinstance(error, Refused) or "forward" not in str(error):
            raise
        raise Refused(
            f"Vectors of repeated values, of {bases[0].line}, have derivatives that ask for tangents of a gradient, "
            f"which torch does not have for all of the program at {line}: {error} (at {where_raised(error)})"
        ) from error
    return tuple(None if each is None else parts(each)[0].detach() for each in found)


def skew(matrix: Tensor) -> Tensor:
    return matrix - matrix.mH


def quotient(numerator: Tensor, denominator: Tensor, scale: Tensor) -> Tensor:
    """0 where the denominator is no more than the rounding of what has a scale.

    Values that move alike in a random direction go on being the same, and nothing that the program can do turns them
    into each other: what they contribute is never used.
    """
    none = denominator.abs() <= 4 * denominator.shape[-1] * torch.finfo(scale.dtype).eps * scale
    return torch.where(none, 0, numerator / torch.where(none, 1, denominator))


def largest(entries: Tensor) -> Tensor:
    """The largest size in each row, as a matrix of one entry."""
    return entries.abs().amax(-1)[..., None, None]


def differences(row: Tensor) -> Tensor:
    """Of all pairs of entries: the second's less the first's."""
    return row.unsqueeze(-2) - row.unsqueeze(-1)


def known_to(found: Tensor, tol: float) -> Tensor:
    """How far apart values may be that count as the same: of computed matrices they are not known better."""
    size = found.abs().amax(-1, keepdim=True)
    return ((16 + found.shape[-1]) * torch.finfo(found.dtype).eps * size).clamp(min=tol)


def repeats(found: Tensor, tol: float) -> Tensor:
    """Whether any value of each matrix, sorted, repeats."""
    return (found.diff(dim=-1).abs() <= known_to(found, tol)).any(-1, keepdim=True)


def labelled(found: Tensor, tolerance: Tensor) -> Tensor:
    """The number of the group that each value, sorted, belongs to."""
    begins = (found.diff(dim=-1).abs() > tolerance).long()
    return torch.cat((torch.zeros_like(found[..., :1], dtype=torch.long), begins.cumsum(-1)), -1)


def alike(labels: Tensor) -> Tensor:
    return labels.unsqueeze(-2) == labels.unsqueeze(-1)
