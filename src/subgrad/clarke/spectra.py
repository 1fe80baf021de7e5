"""Repeated eigenvalues and singular values: the tangent picks the basis in which they part (Kato, degenerate
perturbation); values then move by u' A' v, and at a vanishing singular value by the size of that."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from subgrad.apply.branches import Call
from subgrad.clarke.linear import tangent, valued, values
from subgrad.clarke.passes import Decide, Rule
from subgrad.kinks.places import rounding, same_spectrum


class _Spectrum(Rule):
    def look(self, call: Call, tol: float) -> tuple[Any, Tensor | bool]:
        out = call.run()
        with values():
            return out, self._met(self.spectrum(out), tol)

    def hits(self, call: Call, tol: float) -> Tensor | bool:
        return self._met(self.spectrum(call.native(call.arguments)), tol)

    def _met(self, found: Tensor, tol: float) -> Tensor | bool:
        if found.numel() == 0:
            return False
        near = (found.diff(dim=-1).abs() <= tol).any() | ((found[..., -1:].abs() <= tol).any() & self.vanishes)
        return same_spectrum(found, vanishing=self.vanishes).any() | near

    vanishes = False

    def spectrum(self, out: Any) -> Tensor:
        raise NotImplementedError


def _groups(found: Tensor, tol: float) -> list[slice]:
    """The runs of values that are the same, as far as they are known."""
    same = (found.diff().abs() <= rounding(found).clamp(min=tol)).tolist()
    starts = [0, *(place + 1 for place, is_same in enumerate(same) if not is_same)]
    return [slice(start, end) for start, end in zip(starts, [*starts[1:], len(found)], strict=True)]


class Eigenvalues(_Spectrum):
    """The rule of `eigh`; a branch is the vectors."""

    def spectrum(self, out: Any) -> Tensor:
        return out[0]

    def decide(self, call: Call, at: Decide) -> Tensor:
        at.require_a_direction_without_form()
        moved = tangent(call.arguments["A"])
        assert moved is not None
        with values():
            found, vectors = torch.linalg.eigh(call.arguments["A"], call.arguments["UPLO"])
            ahead = _hermitian(moved, call.arguments["UPLO"]).reshape(-1, *moved.shape[-2:])
            flat = vectors.reshape(-1, *vectors.shape[-2:]).clone()
            for one, v, a in zip(found.reshape(-1, found.shape[-1]), flat, ahead, strict=True):
                for group in _groups(one, at.tol):
                    basis = v[:, group]
                    v[:, group] = basis @ torch.linalg.eigh(basis.mH @ a @ basis)[1]
            return flat.reshape(vectors.shape)

    def along(self, call: Call, branch: Tensor) -> Any:
        with values():
            found = call.native(call.arguments)[0]
        matrix = _hermitian(call.arguments["A"], call.arguments["UPLO"])
        return valued((branch.conj() * (matrix @ branch)).sum(-2).real, found), branch


def _hermitian(matrix: Tensor, side: str) -> Tensor:
    """The matrix that `eigh` reads from one triangle."""
    strict = matrix.tril(-1) if side == "L" else matrix.triu(1)
    return strict + strict.mH + torch.diag_embed(torch.diagonal(matrix, dim1=-2, dim2=-1))


class SingularValues(_Spectrum):
    """The rule of `svd`; a branch is the vectors of both sides."""

    vanishes = True

    def spectrum(self, out: Any) -> Tensor:
        return out[1]

    def decide(self, call: Call, at: Decide) -> tuple[Tensor, Tensor]:
        at.require_a_direction_without_form()
        moved = tangent(call.arguments["A"])
        assert moved is not None
        with values():
            left, found, right = torch.linalg.svd(call.arguments["A"], full_matrices=True)
            us = left.reshape(-1, *left.shape[-2:]).clone()
            vs = right.mH.reshape(-1, *right.shape[-2:]).clone()
            for one, u, v, a in zip(
                found.reshape(-1, found.shape[-1]), us, vs, moved.reshape(-1, *moved.shape[-2:]), strict=True
            ):
                _part(one, u, v, a, at.tol)
            count = found.shape[-1]
            return (
                us[..., :count].reshape(*left.shape[:-1], count),
                vs[..., :count].reshape(*right.shape[:-1], count),
            )

    def along(self, call: Call, branch: tuple[Tensor, Tensor]) -> Any:
        with values():
            native = call.native(call.arguments)
        u, v = branch
        found = valued((u.conj() * (call.arguments["A"] @ v)).sum(-2).real, native[1])
        if not native[0].numel():  # values alone were asked for
            return native[0], found, native[2]
        if call.arguments["full_matrices"]:
            return native[0], found, native[2]
        return u, found, v.mH


def _part(found: Tensor, u: Tensor, v: Tensor, ahead: Tensor, tol: float) -> None:
    """Turn the bases of repeated singular values, in place, to those in which the tangent parts them."""
    for group in _groups(found, tol):
        if bool(found[group.stop - 1] <= rounding(found).clamp(min=tol)):
            rest = slice(group.start, None)  # and what is beside the matrix, if it is not square
            left, _, right = torch.linalg.svd(u[:, rest].mH @ ahead @ v[:, rest], full_matrices=True)
            u[:, rest], v[:, rest] = u[:, rest] @ left, v[:, rest] @ right.mH
        else:
            block = u[:, group].mH @ ahead @ v[:, group]
            turned = torch.linalg.eigh(block + block.mH)[1].flip(-1)
            u[:, group], v[:, group] = u[:, group] @ turned, v[:, group] @ turned


SPECTRA: dict[str, Any] = {"_linalg_eigh": Eigenvalues(), "_linalg_svd": SingularValues()}
