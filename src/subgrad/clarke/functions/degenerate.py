"""Functions that jump at matrices of deficient rank, or whose gradient in torch is that of another function in places.

No kink of the table is met, so that nothing would be held against values.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from subgrad.clarke.engine.duals import values
from subgrad.clarke.engine.passes import Look
from subgrad.clarke.functions.cut_derivatives import Handler, is_differentiated, name_of

LEAST_PRODUCT = 1e-12  # of a probability and its complement, by which torch divides


def _may_turn(A: Tensor) -> bool:  # noqa: N803
    """Whether a column needs no reflection, and a little further on is reflected: its sign jumps."""
    rows, columns = A.shape[-2:]
    return bool((torch.geqrf(A)[1][..., : min(rows - 1, columns)] == 0).any())


def _is_deficient(A: Tensor) -> bool:  # noqa: N803
    return bool((torch.linalg.matrix_rank(A) < min(A.shape[-2:])).any())


def _is_singular(A: Tensor) -> bool:  # noqa: N803
    """Where torch's reverse mode may make 0 of the adjugate, which is the gradient."""
    return bool((torch.linalg.det(A) == 0).any())


def _are_short(x1: Tensor, x2: Tensor, dim: int = 1, eps: float = 1e-8) -> bool:
    """Whether norms are cut off, where torch keeps their derivative."""
    return any(bool((torch.linalg.vector_norm(each, dim=dim) <= eps).any()) for each in (x1, x2))


def _are_certain(input: Tensor) -> bool:
    """Whether torch divides by less than the product of a probability and its complement, or cuts its logarithm."""
    return bool((input * (1 - input) <= LEAST_PRODUCT).any())


def where(is_degenerate: Callable[..., bool], names: tuple[str, ...], given: int) -> Handler:
    def handler(current: Any, func: Any, args: Any, kwargs: Any) -> Any:
        if isinstance(current, Look):
            named = dict(zip(names, args, strict=False)) | {each: kwargs[each] for each in names if each in kwargs}
            if "input" in kwargs:
                named[names[0]] = kwargs["input"]
            tensors = [named[each] for each in names[:given]]
            if any(map(is_differentiated, tensors)) and all(each.numel() for each in tensors):
                with values():
                    plain = {key: each.detach() if isinstance(each, Tensor) else each for key, each in named.items()}
                    found = is_degenerate(**plain)
                if found:
                    current.reads.note(f"{name_of(func)}()")
        return func(*args, **kwargs)

    return handler


DEGENERATE: dict[str, Handler] = {
    **dict.fromkeys(("qr", "linalg_qr"), where(_may_turn, ("A",), 1)),
    **dict.fromkeys(("pinverse", "linalg_pinv"), where(_is_deficient, ("A",), 1)),
    **dict.fromkeys(("det", "linalg_det"), where(_is_singular, ("A",), 1)),
    "binary_cross_entropy": where(_are_certain, ("input",), 1),
    "cosine_similarity": where(_are_short, ("x1", "x2", "dim", "eps"), 2),
}
