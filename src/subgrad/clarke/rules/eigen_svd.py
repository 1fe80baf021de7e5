"""Repeated eigenvalues and singular values, and their vectors.

The tangent picks the basis in which they part (Kato, degenerate perturbation); values then move by u' A' v, and at a
vanishing singular value by the size of that. What a program makes of the vectors must not depend on the basis.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from subgrad.apply.pass_kernels import PassCall
from subgrad.clarke.engine.duals import tangent, values
from subgrad.clarke.engine.errors import Refused, here
from subgrad.clarke.engine.passes import Decide
from subgrad.clarke.engine.rule import Rule
from subgrad.clarke.rules.degenerate_bases import along, differences, known_to, repeats
from subgrad.clarke.rules.eigenvectors import Eigenbasis, eigenbasis
from subgrad.clarke.rules.singular_vectors import SingularBasis, singular_basis


class _Spectrum(Rule):
    def held(self, out: Any) -> list[tuple[int, Tensor]]:
        """Values alone: vectors may have any sign."""
        return [(number, each) for number, each in super().held(out) if each is self.spectrum(out)]

    def look(self, call: PassCall, tol: float) -> tuple[Any, Tensor | bool]:
        out = call.run()
        with values():
            return out, self._met(self.spectrum(out), tol)

    def hits(self, call: PassCall, tol: float) -> Tensor | bool:
        return self._met(self.spectrum(call.native(call.arguments)), tol)

    def _met(self, found: Tensor, tol: float) -> Tensor | bool:
        if found.numel() == 0:
            return False
        repeated = repeats(found, tol)
        return (repeated | (found[..., -1:] <= known_to(found, tol))).any() if self.vanishes else repeated.any()

    vanishes = False

    def spectrum(self, out: Any) -> Tensor:
        raise NotImplementedError


def _judged(at: Decide, name: str, basis: Any, native: tuple[Tensor, ...], vanish: Tensor | None = None) -> Any:
    """Note that vectors are others than in the plain run, so that the value tells whether the program depends on them.

    Where values vanish the sides of vectors are others in other directions, which are then asked as well.
    """
    if len(basis.outputs) == 1:
        return basis
    known = torch.finfo(native[0].dtype).eps ** 0.5
    pairs = zip(basis.outputs, native, strict=True)
    changed = torch.stack([((one - other).abs() > known).any() for one, other in pairs]).any()
    turned = changed if vanish is None else changed | vanish.any()
    at.answered(name, turned, torch.zeros_like(turned), turned)
    # Values that follow are those of the plain run up to rounding: what ties there may not tie to the bit here.
    size = max(1.0, *(float(each.abs().max()) for each in native))
    at.tol = max(at.tol, 4 * native[-1].shape[-1] * torch.finfo(native[0].dtype).eps * size)
    return basis


class Eigenvalues(_Spectrum):
    """The rule of `eigh`; a branch is the basis."""

    def spectrum(self, out: Any) -> Tensor:
        return out[0]

    def decide(self, call: PassCall, at: Decide) -> Eigenbasis:
        at.require_a_direction_without_form()
        side, moved = call.arguments["UPLO"], tangent(call.arguments["A"])
        assert moved is not None
        with values():
            found, vectors = call.native(call.arguments)
            alone = not call.arguments["compute_v"]
            if alone:
                vectors = torch.linalg.eigh(call.arguments["A"], side)[1]
            ahead = _read(moved, found, side, at.tol)
            basis = eigenbasis(found, vectors, ahead, alone, f"eigh at {here()}", at.tol)
            return _judged(at, "eigh", basis, (found, vectors))

    def along(self, call: PassCall, branch: Eigenbasis) -> Any:
        matrix = call.arguments["A"]
        outputs = along(_read(matrix, branch.outputs[0], call.arguments["UPLO"], branch.tol), branch)
        return outputs if len(outputs) == 2 else (outputs[0], matrix.new_empty(0))


def _read(matrix: Tensor, found: Tensor, side: str, tol: float) -> Tensor:
    """What `eigh` reads of matrices with repeated values: a triangle; others have torch's gradient, half in each."""
    strict = matrix.tril(-1) if side == "L" else matrix.triu(1)
    read = strict + strict.mH + torch.diag_embed(torch.diagonal(matrix, dim1=-2, dim2=-1))
    return torch.where(repeats(found, tol).unsqueeze(-1), read, (matrix + matrix.mH) / 2)


class SingularValues(_Spectrum):
    """The rule of `svd`; a branch is the bases of both sides."""

    vanishes = True

    def spectrum(self, out: Any) -> Tensor:
        return out[1]

    def decide(self, call: PassCall, at: Decide) -> SingularBasis:
        at.require_a_direction_without_form()
        matrix, moved = call.arguments["A"], tangent(call.arguments["A"])
        assert moved is not None
        with values():
            left, found, right = native = call.native(call.arguments)
            alone = not call.arguments["compute_uv"]
            if alone:
                left, _, right = torch.linalg.svd(matrix, full_matrices=False)
            returned = None if alone else (left.shape[-1], right.shape[-2])
            sides = _completed(left), _completed(right.mH)
            basis = singular_basis(found, sides, moved, returned, f"svd at {here()}", at.tol)
            return _judged(at, "svd", basis, native, found[..., -1:] <= known_to(found, at.tol))

    def along(self, call: PassCall, branch: SingularBasis) -> Any:
        outputs = along(call.arguments["A"], branch)
        empty = call.arguments["A"].new_empty(0)
        return outputs if len(outputs) == 3 else (empty, outputs[0], empty)


def _completed(vectors: Tensor) -> Tensor:
    """An orthonormal basis of the whole space that begins with these columns."""
    count = vectors.shape[-1]
    if count == vectors.shape[-2]:
        return vectors
    return torch.cat((vectors, torch.linalg.qr(vectors, mode="complete")[0][..., count:]), -1)


class WithoutSymmetry(_Spectrum):
    """The rule of `eig`: where values repeat they part like roots, faster than any slope, or their vectors do."""

    def spectrum(self, out: Any) -> Tensor:
        return out[0]

    def _met(self, found: Tensor, tol: float) -> Tensor | bool:
        if found.numel() == 0:
            return False
        apart = differences(found).abs() + torch.diag_embed(torch.full_like(found.real, torch.inf))
        unknown = torch.finfo(found.dtype).eps ** 0.5 * found.abs().amax(-1)[..., None, None]  # like roots, too
        return (apart <= unknown.clamp(min=tol)).any()

    def decide(self, call: PassCall, at: Decide) -> Any:
        raise Refused(
            f"eig at {here()} meets an eigenvalue that repeats, where eigenvalues and eigenvectors of a matrix without "
            "symmetry have no generalised derivative. If the matrix is symmetric, use torch.linalg.eigh."
        )


SPECTRA: dict[str, Any] = {
    "_linalg_eigh": Eigenvalues(),
    "_linalg_svd": SingularValues(),
    "linalg_eig": WithoutSymmetry(),
}
