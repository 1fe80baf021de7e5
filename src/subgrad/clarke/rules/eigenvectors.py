"""The derivatives of eigenvalues and eigenvectors of symmetric matrices, some of which repeat."""

from __future__ import annotations

from dataclasses import dataclass

import torch
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
class Eigenbasis(Basis):
    """Eigenvalues and eigenvectors along a direction.

    Attributes:
        vectors: as columns.
        group: which pairs of values are the same.
        between: 1 / (l_j - l_i) for pairs that are not.
        speeds: of the eigenvalues, along the direction.
        turning: the derivative of the vectors along the direction, up to turns inside groups.
    """

    vectors: Tensor
    group: Tensor
    between: Tensor
    speeds: Tensor
    turning: Tensor

    def tangents(self, moved: Tensor) -> tuple[Tensor, ...]:
        block = self.vectors.mH @ moved @ self.vectors
        speeds = torch.diagonal(block, dim1=-2, dim2=-1).real
        turns = block * self.between
        return (speeds, self.vectors @ turns)[: len(self.outputs)]

    def cotangent(self, given: Given, rates: Given | None) -> Tensor:
        of_values, of_vectors = (*given, None)[:2]
        core = torch.zeros_like(self.vectors)
        if of_values is not None:
            core = torch.diag_embed(of_values).to(core.dtype)
        if of_vectors is not None:
            turns = self.vectors.mH @ of_vectors
            core = core + turns * self.between + self._inside(turns, given, rates)
        return self.vectors @ core @ self.vectors.mH

    def _inside(self, turns: Tensor, given: Given, rates: Given | None) -> Tensor:
        """What pairs of the same group contribute: a limit."""
        self.require_rates(rates)
        assert rates is not None
        of_values, of_vectors, rate = given[0], given[1], rates[1]
        assert of_vectors is not None
        assert rate is not None
        growth = skew(self.turning.mH @ of_vectors + self.vectors.mH @ rate)
        paired = self.group & (self.group.sum((-2, -1), keepdim=True) > self.group.shape[-1])
        whole = on_the_whole(turns, growth, of_values, self.outputs[0], self.speeds)
        self.require_no_dependence(torch.where(paired, skew(turns), 0), whole)
        return torch.where(paired, quotient(growth, 2 * differences(self.speeds), largest(self.speeds)), 0)


def eigenbasis(found: Tensor, vectors: Tensor, moved: Tensor, values_alone: bool, line: str, tol: float) -> Eigenbasis:
    """Of symmetric matrices that move: groups of eigenvectors are turned, each matrix by itself."""
    labels = labelled(found, known_to(found, tol))
    vectors = _turned(labels, vectors, moved)
    group = alike(labels)
    between = torch.where(group, 0, 1 / torch.where(group, 1, differences(found)))
    block = vectors.mH @ moved @ vectors
    speeds, turning = torch.diagonal(block, dim1=-2, dim2=-1).real, vectors @ (block * between)
    outputs = (found,) if values_alone else (found, vectors)
    return Eigenbasis(outputs, line, tol, vectors, group, between, speeds, turning)


def _turned(labels: Tensor, vectors: Tensor, moved: Tensor) -> Tensor:
    """The bases of repeated values turned to those in which the direction parts them."""
    size = vectors.shape[-1]
    labels, moved = labels.reshape(-1, size), moved.reshape(-1, size, size)
    flat = vectors.reshape(-1, size, size).clone()
    for number in (labels[:, -1] < size - 1).nonzero().flatten().tolist():
        start, v = 0, flat[number]
        for count in labels[number].bincount().tolist():
            if count > 1:
                basis = v[:, start : start + count]
                block = basis.mH @ moved[number] @ basis
                v[:, start : start + count] = basis @ torch.linalg.eigh((block + block.mH) / 2)[1]
            start += count
    return flat.reshape(vectors.shape)
