"""The derivatives of singular values and singular vectors, some of which repeat or vanish."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from subgrad.clarke.rules.degenerate_bases import (
    Basis,
    Given,
    alike,
    differences,
    known_to,
    labelled,
    largest,
    on_the_whole,
    quotient,
    skew,
)


@dataclass(frozen=True)
class SingularBasis(Basis):
    """Singular values and vectors of both sides along a direction.

    All pairs of vectors are treated alike: matrices that are not square have values 0 beside those that count, and
    small tensors are filled up with zeros to the larger ``size``. Vectors of vanishing values turn on either side by
    themselves; those of one value that repeats turn together.

    Attributes:
        left: vectors as columns, those beside the matrix as well.
        right: likewise.
        sizes: the singular values, filled up.
        speeds: along the direction, filled up.
        group: which pairs of values are the same.
        vanishing: which of these pairs vanish.
        between: 1 / (s_j^2 - s_i^2) for pairs that are not the same.
        turning: the derivatives of both sides' vectors along the direction, up to turns inside groups.
    """

    left: Tensor
    right: Tensor
    sizes: Tensor
    speeds: Tensor
    group: Tensor
    vanishing: Tensor
    between: Tensor
    turning: tuple[Tensor, Tensor]

    def tangents(self, moved: Tensor) -> tuple[Tensor, ...]:
        block = self.left.mH @ moved @ self.right
        speeds = torch.diagonal(block, dim1=-2, dim2=-1).real
        if len(self.outputs) == 1:
            return (speeds,)
        of_left, of_right = _turning(self.left, self.right, block, self)
        columns = self.outputs[0].shape[-1], self.outputs[2].shape[-2]
        return of_left[..., : columns[0]], speeds, of_right[..., : columns[1]].mH

    def cotangent(self, given: Given, rates: Given | None) -> Tensor:
        of_left, of_sizes, of_right = given if len(given) == 3 else (None, given[0], None)
        rows, columns = self.left.shape[-1], self.right.shape[-1]
        core = self.left.new_zeros(*self.left.shape[:-2], rows, columns)
        if of_sizes is not None:
            torch.diagonal(core, dim1=-2, dim2=-1).copy_(of_sizes)
        if of_left is not None or of_right is not None:
            core = core + self._of_vectors(given, rates)[..., :rows, :columns]
        return self.left @ core @ self.right.mH

    def _of_vectors(self, given: Given, rates: Given | None) -> Tensor:
        self.require_rates(rates)
        assert rates is not None
        sides = (self.left, self.right)
        of_both = [_filled(given[0], self.left), _filled(_adjoint(given[2]), self.right)]
        turns = [self._wide(vectors.mH @ each) for vectors, each in zip(sides, of_both, strict=True)]
        a, b = map(skew, turns)
        s_i, s_j = self.sizes.unsqueeze(-1), self.sizes.unsqueeze(-2)
        core = (a * s_j + s_i * b) * self.between
        moving = [_filled(rates[0], self.left), _filled(_adjoint(rates[2]), self.right)]
        growth = [
            skew(self._wide(turning.mH @ each + vectors.mH @ rate))
            for turning, each, vectors, rate in zip(self.turning, of_both, sides, moving, strict=True)
        ]
        wholes = [
            on_the_whole(turn, grown, given[1], self.sizes, self.speeds)
            for turn, grown in zip(turns, growth, strict=True)
        ]
        return core + self._inside((a, b), growth, torch.maximum(*wholes))

    def _inside(self, turns: tuple[Tensor, Tensor], growth: list[Tensor], whole: Tensor) -> Tensor:
        """What pairs of the same group contribute: limits, and for a value that repeats how both sides turn apart."""
        a, b = turns
        equal, vanishing = self.group & ~self.vanishing, self.vanishing
        repeats = self.group.sum((-2, -1), keepdim=True) > self.group.shape[-1]
        self.require_no_dependence(torch.where(equal & repeats, a + b, 0), whole)
        self.require_no_dependence(torch.where(vanishing & repeats, torch.maximum(a.abs(), b.abs()), 0), whole)
        t_i, t_j, fastest = self.speeds.unsqueeze(-1), self.speeds.unsqueeze(-2), largest(self.speeds)
        together = quotient(growth[0] + growth[1], 2 * (t_j - t_i), fastest)
        apart = (a - b) / torch.where(equal, 4 * self.sizes.unsqueeze(-1), 1)
        at_zero = quotient(growth[0] * t_j + t_i * growth[1], (t_j - t_i) * (t_j + t_i), fastest**2)
        phases = torch.diag_embed(torch.diagonal(quotient(growth[0] - growth[1], 4 * t_i, fastest), dim1=-2, dim2=-1))
        return torch.where(equal, together + apart, 0) + torch.where(vanishing, at_zero + phases, 0)

    def _wide(self, block: Tensor) -> Tensor:
        return _wide(block, self.sizes.shape[-1])


def _wide(block: Tensor, size: int) -> Tensor:
    return F.pad(block, (0, size - block.shape[-1], 0, size - block.shape[-2]))


def _corner(block: Tensor, vectors: Tensor) -> Tensor:
    return block[..., : vectors.shape[-1], : vectors.shape[-1]]


def _adjoint(given: Tensor | None) -> Tensor | None:
    return None if given is None else given.mH


def _filled(columns: Tensor | None, vectors: Tensor) -> Tensor:
    """The cotangent of all vectors, from that of those which were returned."""
    if columns is None:
        return torch.zeros_like(vectors)
    return F.pad(columns, (0, vectors.shape[-1] - columns.shape[-1]))


def _turning(left: Tensor, right: Tensor, block: Tensor, at: SingularBasis | _Pairs) -> tuple[Tensor, Tensor]:
    """How the vectors of both sides move, where the matrix between them moves by a block."""
    size = at.sizes.shape[-1]
    p = _wide(block, size)
    s_i, s_j = at.sizes.unsqueeze(-1), at.sizes.unsqueeze(-2)
    equal = at.group & ~at.vanishing
    apart = torch.where(equal, skew(p) / torch.where(equal, 4 * s_i, 1), 0)
    of_left = (p * s_j + s_i * p.mH) * at.between + apart
    of_right = (s_i * p + p.mH * s_j) * at.between - apart
    return left @ _corner(of_left, left), right @ _corner(of_right, right)


@dataclass(frozen=True)
class _Pairs:
    """What is known of pairs of values before the direction is."""

    sizes: Tensor
    group: Tensor
    vanishing: Tensor
    between: Tensor


def singular_basis(
    found: Tensor,
    sides: tuple[Tensor, Tensor],
    moved: Tensor,
    returned: tuple[int, int] | None,
    line: str,
    tol: float,
) -> SingularBasis:
    """Of matrices that move; ``returned`` says how many vectors of both sides are returned, if any."""
    left, right = sides
    tolerance = known_to(found, tol)
    labels, rows, columns = labelled(found, tolerance), left.shape[-1], right.shape[-1]
    last_vanishes = found[..., -1:] <= tolerance
    is_zero = (labels == labels[..., -1:]) & last_vanishes
    left, right = _turned(labels, is_zero, left, right, moved)
    beside = max(rows, columns) - found.shape[-1]
    labels = torch.where(is_zero, -1, labels)
    labels, is_zero = F.pad(labels, (0, beside), value=-1), F.pad(is_zero, (0, beside), value=True)
    sizes, group = F.pad(found, (0, beside)), alike(labels)
    squares = differences(sizes) * (sizes.unsqueeze(-1) + sizes.unsqueeze(-2))
    between = torch.where(group, 0, 1 / torch.where(group, 1, squares))
    known = _Pairs(sizes, group, group & is_zero.unsqueeze(-1), between)
    block = left.mH @ moved @ right
    speeds = F.pad(torch.diagonal(block, dim1=-2, dim2=-1).real, (0, beside))
    outputs = (found,) if returned is None else (left[..., : returned[0]], found, right[..., : returned[1]].mH)
    turning = _turning(left, right, block, known)
    return SingularBasis(outputs, line, tol, left, right, sizes, speeds, group, known.vanishing, between, turning)


def _turned(labels: Tensor, is_zero: Tensor, left: Tensor, right: Tensor, moved: Tensor) -> tuple[Tensor, Tensor]:
    """The bases of repeated and of vanishing values turned to those in which the direction parts them."""
    size = labels.shape[-1]
    labels, is_zero = labels.reshape(-1, size), is_zero.reshape(-1, size)
    us, vs, ahead = (each.reshape(-1, *each.shape[-2:]) for each in (left.clone(), right.clone(), moved))
    for number in ((labels[:, -1] < size - 1) | is_zero[:, -1]).nonzero().flatten().tolist():
        start, zero = 0, is_zero[number].tolist()
        for count in labels[number].bincount().tolist():
            if zero[start]:
                _turn(us[number][:, start:], vs[number][:, start:], ahead[number], by_svd=True)  # and what is beside
            elif count > 1:
                group = slice(start, start + count)
                _turn(us[number][:, group], vs[number][:, group], ahead[number], by_svd=False)
            start += count
    return us.reshape(left.shape), vs.reshape(right.shape)


def _turn(u: Tensor, v: Tensor, ahead: Tensor, by_svd: bool) -> None:
    """Turn bases of both sides in place: each by itself, or together."""
    block = u.mH @ ahead @ v
    if by_svd:
        of_left, _, of_right = torch.linalg.svd(block, full_matrices=True)
        u.copy_(u @ of_left)
        v.copy_(v @ of_right.mH)
    else:
        turn = torch.linalg.eigh(block + block.mH)[1].flip(-1)
        u.copy_(u @ turn)
        v.copy_(v @ turn)
