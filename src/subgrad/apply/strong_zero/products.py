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
    """

    first: str
    second: str
    value: Callable[[Tensor, Tensor, Arguments], Tensor]
    of_first: Gradient
    of_second: Gradient
    added: tuple[str, str | None] | None = None

    def gradient(self, name: str) -> tuple[str, Gradient] | None:
        """Of one operand: the name of the other one, and the rule. None for what is added."""
        return {self.first: (self.second, self.of_first), self.second: (self.first, self.of_second)}.get(name)

    def scaled(self, added: Tensor, given: Arguments) -> Tensor:
        """What is added, as it is added."""
        _, factor = self.added or (None, None)
        if given.get("transposed") is not None:  # the bias of a channel
            return added.reshape(-1, *[1] * len(given["stride"]))
        return added if factor is None else added * given[factor]


def _matrices(first: str, second: str, added: bool = False) -> Product:
    return Product(
        first,
        second,
        lambda a, b, given: a @ b,
        lambda g, b, like, given: g @ b.mH,
        lambda g, a, like, given: a.mH @ g,
        ("self", "beta") if added else None,
    )


def _matrix_and_vector(first: str, second: str, added: bool = False) -> Product:
    return Product(
        first,
        second,
        lambda a, b, given: a @ b,
        lambda g, b, like, given: g.unsqueeze(-1) * b.conj(),
        lambda g, a, like, given: a.mH @ g,
        ("self", "beta") if added else None,
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


PRODUCTS: dict[str, Product] = {
    "mm": _matrices("self", "mat2"),
    "bmm": _matrices("self", "mat2"),
    "addmm": _matrices("mat1", "mat2", added=True),
    "baddbmm": _matrices("batch1", "batch2", added=True),
    "addbmm": Product(
        "batch1",
        "batch2",
        lambda a, b, given: (a @ b).sum(0),
        lambda g, b, like, given: g @ b.mH,
        lambda g, a, like, given: a.mH @ g,
        ("self", "beta"),
    ),
    "mv": _matrix_and_vector("self", "vec"),
    "addmv": _matrix_and_vector("mat", "vec", added=True),
    "addr": Product(
        "vec1",
        "vec2",
        lambda a, b, given: a.unsqueeze(-1) * b,
        lambda g, b, like, given: g @ b.conj(),
        lambda g, a, like, given: a.conj() @ g,
        ("self", "beta"),
    ),
    "dot": Product(
        "self",
        "tensor",
        lambda a, b, given: a @ b,
        lambda g, b, like, given: g * b.conj(),
        lambda g, a, like, given: g * a.conj(),
    ),
    "vdot": Product(
        "self",
        "other",
        lambda a, b, given: a.conj() @ b,
        lambda g, b, like, given: g.conj() * b,
        lambda g, a, like, given: g * a,
    ),
    "linear": Product(
        "input",
        "weight",
        lambda a, b, given: a @ b.mT,
        lambda g, b, like, given: g @ b.conj(),
        lambda g, a, like, given: g.reshape(-1, g.shape[-1]).mT @ a.conj().reshape(-1, a.shape[-1]),
        ("bias", None),
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
