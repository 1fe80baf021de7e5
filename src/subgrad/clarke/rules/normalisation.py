"""Normalisation: derivatives take few sweeps over the data; what is written into, batch statistics, is told of."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import torch
from torch import Tensor

from subgrad.apply.pass_kernels import Call
from subgrad.clarke.engine.duals import carries_tangents_alone, tangent, values, with_tangent
from subgrad.clarke.rules.fused_ops import Around
from subgrad.torch_internals.dispatcher import batch_norm_impl_index

aten = torch.ops.aten


class Normalised(Around):
    """The rule of `batch_norm` and `instance_norm`; ``training`` names the argument by which statistics are kept."""

    def __init__(self, training: str):
        self.training = training

    def keep(self, call: Call, keep: Callable[[Any], None]) -> None:
        if call.arguments[self.training]:
            for name in ("running_mean", "running_var"):
                keep(call.arguments[name])

    def around(self, call: Call, current: Any) -> Any:
        if self.training == "training" and call.arguments["training"] and _is_simple(call.arguments["input"]):
            return _normalised(call.arguments)
        return call.run()


def _is_simple(x: Tensor) -> bool:
    # In 16 bits statistics and data are of two dtypes: that is left to torch's own formula.
    is_known = x.device.type in ("cpu", "cuda") and x.dtype in (torch.float32, torch.float64) and x.numel() > 0
    return is_known and carries_tangents_alone()


def _normalised(arguments: Any) -> Tensor:
    """Batch normalisation in the tangent pass, from torch's own kernels where its formula is of many operators.

    The derivative in the input is a symmetric matrix, so that the kernel of the backward pass computes it; that in the
    weight and the bias is the normalised input, scaled and shifted by their tangents.
    """
    x, weight, bias, eps = (arguments[name] for name in ("input", "weight", "bias", "eps"))
    moved, scaled, shifted = (tangent(each) for each in (x, weight, bias))
    with values():
        # What the plain run calls: values must be the same to the bit, or other entries tie.
        out, mean, inverse, *_ = batch_norm_impl_index(
            x, weight, bias, None, None, True, 0.0, eps, arguments["cudnn_enabled"]
        )
        found = []
        if moved is not None:
            wanted = [True, False, False]
            found.append(
                aten.native_batch_norm_backward(moved, x, weight, None, None, mean, inverse, True, eps, wanted)[0]
            )
        if scaled is not None or shifted is not None:
            scale, shift = (torch.zeros_like(mean) if each is None else each for each in (scaled, shifted))
            variance = (inverse**-2).sub_(eps).clamp_(min=0)
            found.append(aten.native_batch_norm(x, scale, shift, mean, variance, False, 0.0, eps)[0])
        further = reduce(Tensor.add_, found)  # nobody else has them
    return with_tangent(out, further)


class LayerNormalised(Around):
    """The rule of layer normalisation, in the same way."""

    def around(self, call: Call, current: Any) -> Any:
        return _layer_normalised(call.arguments) if _is_simple(call.arguments["input"]) else call.run()


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
