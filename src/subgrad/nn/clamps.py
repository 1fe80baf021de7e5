"""Clamps: between the two numbers of ``torch.nn.Hardtanh``, and between bounds that are given, kept or learned."""

# Annotations are types here and not strings: torch 2.11 cannot pickle what `torch.fx` traces of the latter.
import functools
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from subgrad import functional
from subgrad.conventions import Convention
from subgrad.conventions import convention as as_convention
from subgrad.nn.carries import Carries

Bound = float | Tensor | None


class Hardtanh(Carries, torch.nn.Hardtanh, function="hardtanh", given="min_val max_val inplace"):
    """As ``torch.nn.Hardtanh``; at ``min_val`` and ``max_val`` the slope that ``convention`` picks, by default 0.

    Raises:
        ValueError: unless ``min_val < max_val``.
    """

    def __init__(
        self,
        min_val: float = -1.0,
        max_val: float = 1.0,
        inplace: bool = False,
        *,
        convention: str | Convention = "min-norm",
    ) -> None:
        if not min_val < max_val:
            raise ValueError(
                f"Hardtanh(min_val={min_val}, max_val={max_val}): torch.nn.Hardtanh needs min_val < max_val. "
                f"Write Hardtanh({max_val}, {min_val}), or subgrad.nn.Clamp, which takes them as torch.clamp does."
            )
        super().__init__(min_val, max_val, inplace, convention=convention)


def _scripted(self, input: Tensor) -> Tensor:  # pyright: ignore
    """What `torch.jit.script` reads in the place of the method."""
    return torch.clamp(input, self.min, self.max)


class Clamp(torch.nn.Module):
    """``torch.clamp`` as a module; at its bounds the element that ``convention`` picks.

    A bound is a number; a tensor, which becomes a buffer; or a ``torch.nn.Parameter``, which is learned, as PACT learns
    where to cut off. Tensors broadcast against the input, so that channels may have bounds of their own.

    Where an entry equals a learned bound, both are differentiated, and ``min-norm`` gives each half of the cotangent,
    the element that is least jointly. A bound that is fixed takes no part, and the input gets 0.

    >>> import torch, subgrad
    >>> clamp = subgrad.nn.Clamp(0.0, torch.nn.Parameter(torch.tensor(6.0)))
    >>> x = torch.tensor([0.0, 3.0, 6.0, 7.0], requires_grad=True)
    >>> torch.autograd.grad(clamp(x), (x, clamp.max), torch.tensor([1.0, 2.0, 4.0, 8.0]))
    (tensor([0., 2., 2., 0.]), tensor(10.))

    Where ``min > max`` the result is ``max``, as torch's.

    Args:
        min, max: the bounds; at least one is needed.
        convention: which element it takes.

    Raises:
        ValueError: if there is no bound.
        TypeError: for a bound that is neither a number nor a tensor.
    """

    if TYPE_CHECKING:
        min: Bound
        max: Bound

    def __init__(self, min: Bound = None, max: Bound = None, *, convention: str | Convention = "min-norm") -> None:
        super().__init__()
        if min is None and max is None:
            raise ValueError("Clamp() has no bound: give min, max or both.")
        self.convention = as_convention(convention)
        self._keep("min", min, max)
        self._keep("max", max, min)

    def _keep(self, name: str, bound: Bound, other: Bound) -> None:
        if isinstance(bound, torch.nn.Parameter):
            self.register_parameter(name, bound)
        elif isinstance(bound, Tensor):
            self.register_buffer(name, bound)
        elif bound is not None and (isinstance(bound, bool) or not isinstance(bound, int | float)):
            raise TypeError(f"Clamp({name}={bound!r}): give a number, a tensor or a torch.nn.Parameter.")
        elif bound is not None and isinstance(other, Tensor):  # torch takes two numbers or two tensors
            dtype = torch.result_type(other, bound)
            self.register_buffer(name, torch.tensor(bound, dtype=dtype, device=other.device), persistent=False)
        else:
            setattr(self, name, bound)

    @functools.wraps(_scripted)
    def forward(self, input: Tensor) -> Tensor:
        return functional.clamp(input, self.min, self.max, convention=self.convention)

    __prepare_scriptable__ = Carries.__prepare_scriptable__

    def extra_repr(self) -> str:
        bounds = (f"{name}={_shown(getattr(self, name))}" for name in ("min", "max") if getattr(self, name) is not None)
        return ", ".join((*bounds, f"convention={self.convention}"))


def _shown(bound: Bound) -> str:
    if not isinstance(bound, Tensor):
        return str(bound)
    value = f"{bound.item():g}" if bound.dim() == 0 else f"of shape {tuple(bound.shape)}"
    return f"learned {value}" if isinstance(bound, torch.nn.Parameter) else value
