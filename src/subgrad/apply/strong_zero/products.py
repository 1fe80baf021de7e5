"""Operators that sum products of two operands: mm and its kin, convolutions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from subgrad.apply.strong_zero.reach import dims_but_channels
from subgrad.kinks.overloads import overload

Arguments = Mapping[str, Any]  # the numbers of a call, by name
# A gradient, of the cotangent, the other operand, and a tensor that has the shape of the gradient.
Gradient = Callable[[Tensor, Tensor, Tensor, Arguments], Tensor]

aten = torch.ops.aten


@dataclass(frozen=True)
class Product:
    """Linear in each of two operands.

    Attributes:
        first, second: their names.
        value: what is made of both.
        of_first, of_second: their gradients.
        added: what is added to it, by its name, and by what number it is multiplied.
        letters: the product as `einsum` spells it, of real numbers; empty if it does not.
    """

    first: str
    second: str
    value: Callable[[Tensor, Tensor, Arguments], Tensor]
    of_first: Gradient
    of_second: Gradient
    added: tuple[str, str | None] | None = None
    letters: str = ""

    def gradient(self, name: str) -> tuple[str, Gradient] | None:
        """Of one operand: the name of the other one, and the rule. None for what is added."""
        return {self.first: (self.second, self.of_first), self.second: (self.first, self.of_second)}.get(name)

    def scaled(self, added: Tensor, given: Arguments) -> Tensor:
        """What is added, as it is added."""
        _, factor = self.added or (None, None)
        if given.get("transposed") is not None:  # the bias of a channel
            return added.reshape(-1, *[1] * len(given["stride"]))
        return added if factor is None else added * given[factor]


def _spelled(first: str, second: str, letters: str, added: tuple[str, str | None] | None = None) -> Product:
    """A product by its letters: in each gradient, result and operand change places."""
    (a, b), result = letters.partition("->")[0].split(","), letters.partition("->")[2]
    return Product(
        first,
        second,
        lambda x, y, given: torch.einsum(letters, x, y),
        lambda g, y, like, given: torch.einsum(f"{result},{b}->{a}", g, y.conj()),
        lambda g, x, like, given: torch.einsum(f"{result},{a}->{b}", g, x.conj()),
        added,
        letters,
    )


_CONVOLUTION = ("stride", "padding", "dilation", "transposed", "output_padding", "groups")


def _convolved(a: Tensor, b: Tensor, given: Arguments) -> Tensor:
    return aten.convolution(a, b, None, *(given[name] for name in _CONVOLUTION))


def _of_input(g: Tensor, weight: Tensor, like: Tensor, given: Arguments) -> Tensor:
    numbers = [given[name] for name in _CONVOLUTION]
    return aten.convolution_backward(g, like.detach(), weight, None, *numbers, [True, False, False])[0]


def _of_weight(g: Tensor, input: Tensor, like: Tensor, given: Arguments) -> Tensor:
    numbers = [given[name] for name in _CONVOLUTION]
    return aten.convolution_backward(g, input, like.detach(), None, *numbers, [False, True, False])[1]


_ADDED = ("self", "beta")
PRODUCTS: dict[str, Product] = {
    "mm": _spelled("self", "mat2", "ik,kj->ij"),
    "bmm": _spelled("self", "mat2", "bik,bkj->bij"),
    "addmm": _spelled("mat1", "mat2", "ik,kj->ij", _ADDED),
    "baddbmm": _spelled("batch1", "batch2", "bik,bkj->bij", _ADDED),
    "addbmm": _spelled("batch1", "batch2", "bik,bkj->ij", _ADDED),
    "mv": _spelled("self", "vec", "ik,k->i"),
    "addmv": _spelled("mat", "vec", "ik,k->i", _ADDED),
    "addr": _spelled("vec1", "vec2", "i,j->ij", _ADDED),
    "dot": _spelled("self", "tensor", "k,k->"),
    "linear": _spelled("input", "weight", "...k,jk->...j", ("bias", None)),
    "vdot": Product(
        "self",
        "other",
        lambda a, b, given: a.conj() @ b,
        lambda g, b, like, given: g.conj() * b,
        lambda g, a, like, given: g * a,
    ),
    "convolution": Product("input", "weight", _convolved, _of_input, _of_weight, ("bias", None)),
}


# What the weight of a normalisation is multiplied with, of the operands that were kept.
Kept = Callable[[str], Tensor]


def _of_batch(kept: Kept, given: Arguments) -> Tensor:
    x, epsilon = kept("input"), given.get("eps", given.get("epsilon"))
    if given.get("training", True):
        return aten.native_batch_norm(x, None, None, None, None, True, 0.0, epsilon)[0]
    statistics = kept("running_mean"), kept("running_var")
    return aten.native_batch_norm(x, None, None, *statistics, False, 0.0, epsilon)[0]


def _of_rows(kept: Kept, given: Arguments) -> Tensor:
    return aten.native_layer_norm(kept("input"), given["normalized_shape"], None, None, given["eps"])[0]


def _of_root_mean_square(kept: Kept, given: Arguments) -> Tensor:
    return overload("_fused_rms_norm")(kept("input"), given["normalized_shape"], None, given["eps"])[0]


def _of_groups(kept: Kept, given: Arguments) -> Tensor:
    numbers = (given[name] for name in ("N", "C", "HxW", "group", "eps"))
    return aten.native_group_norm(kept("input"), None, None, *numbers)[0]


NORMALISED: dict[str, Callable[[Kept, Arguments], Tensor]] = {
    "native_layer_norm": _of_rows,
    "_fused_rms_norm": _of_root_mean_square,
    "native_group_norm": _of_groups,
    **dict.fromkeys(
        ("native_batch_norm", "_native_batch_norm_legit", "_batch_norm_with_update", "cudnn_batch_norm"), _of_batch
    ),
    "miopen_batch_norm": _of_batch,
}


def of_weight(g: Tensor, normalised: Tensor, like: Tensor, given: Arguments) -> Tensor:
    """The gradient of a weight: summed over all dimensions but its own."""
    terms = g * normalised
    if "normalized_shape" in given:
        return terms.sum_to_size(like.shape)
    return terms.sum(dims_but_channels(terms))
