"""Sums of products, of which a term is dead where its cotangent is exactly 0, whatever that is multiplied with."""

from __future__ import annotations

from cmath import isfinite
from collections.abc import Mapping, Sequence
from functools import cache, reduce
from typing import Any

import torch
from torch import Tensor

from subgrad.apply.autograd_nodes import is_memory
from subgrad.apply.strong_zero.products import PRODUCTS, Gradient
from subgrad.apply.torch_compile.guards import is_compiling
from subgrad.torch_internals.transforms import is_functorch_wrapped_tensor


def may_hold_nan(vector: Tensor | None, waits: bool = False) -> bool:
    """Whether an entry is nan, if that can be seen: on the CPU, in a device that is waited for, and not in traces.

    A sum is nan where an entry is, or where infinities cancel, and takes a tenth of the time of `isnan`.
    """
    if vector is None:
        return False
    if not is_memory(vector) or not (vector.is_cpu or (waits and can_be_waited_for(vector))):
        return vector.layout is torch.strided
    total = (vector.detach() if torch.is_grad_enabled() else vector).sum().item()
    return total != total


def can_be_waited_for(vector: Tensor) -> bool:
    """Whether its device is one that answers: CUDA, but for what is captured as a graph."""
    return vector.is_cuda and not torch.cuda.is_current_stream_capturing()


def are_known_finite(vectors: Sequence[Tensor]) -> bool:
    """Whether all entries are, if that can be seen: a sum is, unless one is not, or it overflows.

    A device is waited for once.
    """
    if not all(is_memory(each) for each in vectors):
        return False
    if all(each.is_cpu for each in vectors):
        return all(isfinite(_total(each).item()) for each in vectors)
    if len({each.device for each in vectors}) > 1 or not can_be_waited_for(vectors[0]):
        return False
    return isfinite(reduce(torch.add, map(_total, vectors)).item())


def _total(vector: Tensor) -> Tensor:
    """Half precision would overflow sooner."""
    vector = vector.detach() if torch.is_grad_enabled() else vector
    return vector.sum(dtype=torch.float32) if vector.dtype in (torch.float16, torch.bfloat16) else vector.sum()


def of_live_terms(
    gradient: Tensor, cotangent: Tensor, other: Tensor, product: Gradient, given: Mapping[str, Any], pads: bool = False
) -> Tensor:
    """A gradient that is ``product(cotangent, other)``: of the finite terms, where no other is live and one is dead.

    Also where all terms are dead: what pads multiplies infinity with zeros that are no cotangents.
    """
    is_finite, is_live = other.isfinite(), cotangent != 0
    truth = real_type(gradient)

    def any_of(one: Tensor, another: Tensor) -> Tensor:
        return product(one.to(truth), another.to(truth), gradient, given) != 0

    is_spared = any_of(~is_live, ~is_finite)
    if pads:
        is_spared = is_spared | ~any_of(is_live, torch.ones_like(is_finite))
    is_spared = gradient.isnan() & is_spared & ~any_of(is_live, ~is_finite)
    rest = product(cotangent, torch.where(is_finite, other, 0), gradient, given) * given.get("alpha", 1)
    return torch.where(is_spared, rest.to(gradient.dtype), gradient)


def real_type(like: Tensor) -> torch.dtype:
    return like.real.dtype if like.is_complex() else like.dtype


def of_product(
    gradient: Tensor, cotangent: Tensor, other: Tensor, name: str, operand: str, given: Mapping[str, Any]
) -> Tensor:
    """The gradient of one operand of a product, made of its live terms.

    A compiled graph cannot look first, and three further products would be too much: there it is one operator, which
    looks when it is run.
    """
    tensors = gradient, cotangent, other
    if is_compiling() and not torch.is_grad_enabled() and not any(map(is_functorch_wrapped_tensor, tensors)):
        return _operator()(*tensors, name, operand, *_numbers(given))
    _, product = PRODUCTS[name].gradient(operand) or (None, None)
    assert product is not None
    return of_live_terms(*tensors, product, given, pads=name == "convolution")


_LISTS = ("stride", "padding", "dilation", "output_padding")


def _numbers(given: Mapping[str, Any]) -> tuple[Any, ...]:
    lists = (given.get(each, ()) for each in _LISTS)
    return given.get("alpha", 1), *lists, given.get("transposed", False), given.get("groups", 1)


@cache
def _operator() -> Any:
    """Known to torch as an operator of its own, so that graphs can hold it."""
    library = torch.library.Library("subgrad", "FRAGMENT")
    library.define(
        "of_live_terms(Tensor gradient, Tensor cotangent, Tensor other, str name, str operand, Scalar alpha, "
        "SymInt[] stride, SymInt[] padding, SymInt[] dilation, SymInt[] output_padding, bool transposed, SymInt groups)"
        " -> Tensor"
    )
    library.impl("of_live_terms", _run, "CompositeExplicitAutograd")
    library.impl("of_live_terms", lambda gradient, *_: torch.empty_like(gradient), "Meta")
    _kept.append(library)
    return torch.ops.subgrad.of_live_terms.default


_kept: list[torch.library.Library] = []  # operators live as long as these


def _run(gradient: Tensor, cotangent: Tensor, other: Tensor, name: str, operand: str, *numbers: Any) -> Tensor:
    if not may_hold_nan(gradient, waits=True):
        return gradient.clone()
    alpha, *lists, transposed, groups = numbers
    given = {"alpha": alpha, **dict(zip(_LISTS, lists, strict=True)), "transposed": transposed, "groups": groups}
    return of_product(gradient, cotangent, other, name, operand, given)
