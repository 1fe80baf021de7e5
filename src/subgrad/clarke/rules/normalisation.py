"""Normalisation: derivatives take few sweeps over the data; what is written into, batch statistics, is told of."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from inspect import signature
from typing import Any

import torch
from torch import Tensor

from subgrad.apply.pass_kernels import PassCall
from subgrad.clarke.engine.duals import carries_tangents_alone, tangent, values, with_tangent
from subgrad.clarke.rules.fused_ops import Around
from subgrad.torch_internals.dispatcher import batch_norm_impl_index

aten = torch.ops.aten
_derived = aten.native_batch_norm_backward.default


class Normalised(Around):
    """The rule of `batch_norm` and `instance_norm`; ``training`` names the argument by which statistics are kept."""

    is_replayed = False

    def __init__(self, training: str):
        self.training = training

    def keep(self, call: PassCall, keep: Callable[[Any], None]) -> None:
        if call.arguments[self.training]:
            for name in ("running_mean", "running_var"):
                keep(call.arguments[name])

    def around(self, call: PassCall, current: Any) -> Any:
        if not carries_tangents_alone() or self.training != "training" or not call.arguments["training"]:
            return call.run()
        x, weight, bias, eps, cudnn = (call.arguments[name] for name in _OF_VALUES)
        if not _is_simple(x):
            return call.run()
        return _normalised(x, weight, bias, (tangent(x), tangent(weight), tangent(bias)), eps, cudnn)


_OF_VALUES = ("input", "weight", "bias", "eps", "cudnn_enabled")


def normalised(current: Any, args: Any, kwargs: Any) -> Tensor | None:
    """`torch.nn.functional.batch_norm` in the tangent pass; None if the rule of what it calls would not do this."""
    given = {**_DEFAULTS, **dict(zip(_DEFAULTS, args, strict=False)), **kwargs}
    x, weight, bias = given["input"], given["weight"], given["bias"]
    if not given["training"] or type(x) is not Tensor or not _is_simple(x) or not carries_tangents_alone():
        return None
    tangents = tangent(x), tangent(weight), tangent(bias)
    if x.ndim < 2 or x.numel() <= x.shape[1] or all(each is None for each in tangents):  # an error, or a constant
        return None
    current.keep(given["running_mean"])
    current.keep(given["running_var"])
    return _normalised(x, weight, bias, tangents, given["eps"], torch.backends.cudnn.enabled)


_DEFAULTS: dict[str, Any] = {
    name: each.default for name, each in signature(torch.nn.functional.batch_norm).parameters.items()
}


def _is_simple(x: Tensor) -> bool:
    # In 16 bits statistics and data are of two dtypes: that is left to torch's own formula.
    return (x.is_cpu or x.is_cuda) and x.dtype in (torch.float32, torch.float64) and x.numel() > 0


def _normalised(
    x: Tensor, weight: Any, bias: Any, tangents: tuple[Tensor | None, ...], eps: float, cudnn_enabled: bool
) -> Tensor:
    """Batch normalisation in the tangent pass, from torch's own kernels where its formula is of many operators.

    The derivative in the input is a symmetric matrix, so that the kernel of the backward pass computes it; that in the
    weight and the bias is the normalised input, scaled and shifted by their tangents.
    """
    moved, scaled, shifted = tangents
    with values():
        # What the plain run calls: values must be the same to the bit, or other entries tie.
        out, mean, inverse, *_ = batch_norm_impl_index(x, weight, bias, None, None, True, 0.0, eps, cudnn_enabled)
        found = []
        if moved is not None:
            found.append(_derived(moved, x, weight, None, None, mean, inverse, True, eps, [True, False, False])[0])
        if scaled is not None or shifted is not None:
            scale, shift = (torch.zeros_like(mean) if each is None else each for each in (scaled, shifted))
            found.append(_scaled(x, scale, shift, mean, inverse))
        further = reduce(Tensor.add_, found)  # nobody else has them
    return with_tangent(out, further)


def _scaled(x: Tensor, scale: Tensor, shift: Tensor, mean: Tensor, inverse: Tensor) -> Tensor:
    """The data normalised by statistics that are known, scaled and shifted."""
    if x.is_cuda:  # where an operator takes them as they are
        return torch.batch_norm_elemt(x, scale, shift, mean, inverse, 0.0)
    return torch.native_batch_norm(x, scale, shift, mean, inverse**-2, False, 0.0, 0.0)[0]


class LayerNormalised(Around):
    """The rule of layer normalisation, in the same way."""

    is_replayed = False

    def around(self, call: PassCall, current: Any) -> Any:
        is_simple = carries_tangents_alone() and _is_simple(call.arguments["input"])
        return _layer_normalised(call.arguments) if is_simple else call.run()


def _layer_normalised(arguments: Any) -> tuple[Tensor, Tensor, Tensor]:
    x, weight, bias = (arguments[name] for name in ("input", "weight", "bias"))
    shape, eps = arguments["normalized_shape"], arguments["eps"]
    moved, scaled, shifted = (tangent(each) for each in (x, weight, bias))
    with values():
        out, mean, inverse = aten.native_layer_norm(x, shape, weight, bias, eps)
        found = []
        if scaled is not None or shifted is not None:
            scale = x.new_zeros(shape) if scaled is None else scaled
            found.append(aten.native_layer_norm(x, shape, scale, shifted, eps)[0])
        if moved is not None:
            wanted = [True, False, False]
            further = aten.native_layer_norm_backward(
                moved.contiguous(), x.contiguous(), shape, mean, inverse, None, None, wanted
            )[0]
            found.append(further if weight is None else further * weight)
        further = reduce(Tensor.add_, found)  # nobody else has them
    return with_tangent(out, further), mean, inverse


NORMALISATIONS: dict[str, Any] = {
    "batch_norm": Normalised("training"),
    "instance_norm": Normalised("use_input_stats"),
    "native_layer_norm": LayerNormalised(),
}
