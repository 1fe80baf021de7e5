"""Operators on lists of tensors, `torch._foreach_*`: torch differentiates each by a formula of its own.

Where a convention is in force their values are kept, and the derivative is that of the operator on one tensor, which
takes the convention's element.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from subgrad.apply.autograd_nodes import below_autograd, overwritten, valued
from subgrad.apply.torch_compile import guards
from subgrad.kinks.overloads import overload

# By operator on one tensor: the forms on lists, and what they do with each tensor.
FORMS = {
    "abs": ("abs",),
    "clamp_min": ("clamp_min.Scalar", "clamp_min.ScalarList"),
    "clamp_min.Tensor": ("clamp_min.List",),
    "clamp_max": ("clamp_max.Scalar", "clamp_max.ScalarList"),
    "clamp_max.Tensor": ("clamp_max.List",),
    "maximum": ("maximum.Scalar", "maximum.ScalarList", "maximum.List"),
    "minimum": ("minimum.Scalar", "minimum.ScalarList", "minimum.List"),
}


def forms(op: str) -> Iterator[str]:
    """The overloads on lists that do what an operator does on one tensor; those that return first."""
    for form in FORMS.get(op, ()):
        name, dot, kind = form.partition(".")
        yield from (f"_foreach_{name}{dot}{kind}", f"_foreach_{name}_{dot}{kind}")


def kernel(op: str, form: str, original: Callable[..., Any]) -> Callable[..., Any]:
    """The kernel of one overload on lists, over torch's own."""
    is_written = form.partition(".")[0].endswith("_")
    functional = overload(form.replace("_.", ".") if "." in form else form.removesuffix("_"))

    def kernel(keyset: Any, *args: Any, **kwargs: Any) -> Any:
        tensors = [each for group in args if isinstance(group, list | tuple) for each in group]
        convention = guards.convention_of_call(tensors)
        if not convention.interferes or not guards.is_differentiated(tensors):
            return original(keyset, *args, **kwargs)
        given = ([each.clone() for each in args[0]], *args[1:]) if is_written else args
        values = below_autograd(functional, *given)
        found = [valued(*each) for each in zip(_one_by_one(op, *given), values, strict=True)]
        if not is_written:
            return found
        for each, result in zip(args[0], found, strict=True):
            overwritten(each, result)
        return None

    return kernel


def _one_by_one(op: str, tensors: Sequence[Tensor], others: Any = None) -> list[Tensor]:
    if others is None:
        return [overload(op)(each) for each in tensors]
    others = others if isinstance(others, list | tuple) else [others] * len(tensors)
    if op in ("maximum", "minimum"):  # which take no numbers
        others = [
            other if isinstance(other, Tensor) else torch.full_like(each, other)
            for each, other in zip(tensors, others, strict=True)
        ]
    return [overload(op)(each, other) for each, other in zip(tensors, others, strict=True)]
