"""Which operators of torch can have an infinite slope or one that is nan, and which entries reach which through them.

Found by `tests/strong_zero/scan.py`: every operator of PyTorch's database at zeros, infinities, nans and numbers that
overflow, with cotangents that are exactly 0. Names stand for all overloads that torch differentiates, in place too.
Operators that are not here have slopes that are finite whatever they meet: sums, selections, masks, pieces of lines.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from math import isfinite
from typing import Any

import torch
from torch import Tensor

from subgrad.apply.operators import Operator
from subgrad.apply.strong_zero.reach import (
    Attention,
    Batches,
    BatchNorm,
    Distances,
    Entries,
    GroupNorm,
    Halves,
    LastDims,
    Lines,
    Prefixes,
    Products,
    Reach,
    Reduced,
    Whole,
)
from subgrad.kinks.overloads import overload, qualified
from subgrad.torch_internals.dispatcher import has_kernel, has_kernel_for_key, schema_of

# fmt: off
REACHES: dict[Reach, str] = {
    # an entry of the result is made of one entry of each operand
    Entries(): """
        mul div pow reciprocal sqrt rsqrt exp exp2 expm1 log log2 log10 log1p logaddexp logaddexp2 xlogy addcmul addcdiv
        lerp ldexp frexp fmod remainder copysign hypot
        sin cos tan asin acos atan atan2 sinh cosh tanh asinh acosh atanh sinc polar angle abs sgn
        sigmoid logit log_sigmoid_forward softplus silu gelu mish elu celu hardswish _prelu_kernel
        erf erfc erfinv lgamma digamma polygamma mvlgamma igamma igammac i0
        special_i0e special_i1 special_i1e special_bessel_j0 special_bessel_j1 special_bessel_y0 special_bessel_y1
        special_modified_bessel_i0 special_modified_bessel_i1 special_modified_bessel_k0 special_modified_bessel_k1
        special_entr special_erfcx special_log_ndtr special_ndtri special_xlog1py special_zeta
        mse_loss smooth_l1_loss huber_loss soft_margin_loss binary_cross_entropy binary_cross_entropy_with_logits
        sigmoid_backward tanh_backward log_sigmoid_backward softplus_backward silu_backward gelu_backward mish_backward
        elu_backward hardswish_backward logit_backward _prelu_kernel_backward mse_loss_backward smooth_l1_loss_backward
        huber_loss_backward soft_margin_loss_backward binary_cross_entropy_backward
        """,
    Halves(): "glu",

    # along dimensions
    Lines(): "_softmax _log_softmax _safe_softmax linalg_cross _softmax_backward_data _log_softmax_backward_data",
    Prefixes(): "cumprod logcumsumexp",
    Reduced(): """
        prod logsumexp amax amin aminmax max. min. median. nanmedian. var std var_mean std_mean norm linalg_vector_norm
        """,
    Distances(): "_cdist_forward _euclidean_dist",
    Attention(): """
        _scaled_dot_product_flash_attention_for_cpu _scaled_dot_product_flash_attention
        _scaled_dot_product_efficient_attention _scaled_dot_product_cudnn_attention
        """,

    # normalisation
    LastDims(): "native_layer_norm _fused_rms_norm native_layer_norm_backward",
    GroupNorm(): "native_group_norm",
    BatchNorm(): """
        native_batch_norm _native_batch_norm_legit _batch_norm_with_update cudnn_batch_norm miopen_batch_norm
        native_batch_norm_backward batch_norm_backward cudnn_batch_norm_backward miopen_batch_norm_backward
        """,

    # matrices, one by one
    Batches(): """
        _linalg_det _linalg_slogdet _linalg_solve_ex _linalg_svd _linalg_eigh linalg_eig linalg_inv_ex linalg_qr
        linalg_lu linalg_lu_factor_ex linalg_lu_solve linalg_cholesky_ex cholesky_solve cholesky_inverse
        linalg_solve_triangular triangular_solve linalg_lstsq linalg_pinv linalg_matrix_exp linalg_polar
        linalg_matrix_sqrth linalg_householder_product ormqr
        """,

    # sums of products: which terms of them are dead say `products.py` and `terms.py`
    Products(): "mm bmm addmm addmv addbmm baddbmm addr mv dot vdot linear convolution",

    # the rest, of which entries are dead only where all are
    Whole(): """
        dist renorm _pdist_forward index_reduce scatter_reduce segment_reduce _embedding_bag grid_sampler_2d
        grid_sampler_3d multi_margin_loss _trilinear
        convolution_backward glu_backward _cdist_backward _pdist_backward
        """,
}
# fmt: on


# Only of complex numbers: of real ones the slope is 0, 1 or -1.
ONLY_COMPLEX = ("abs", "angle", "sgn")
# Between their bounds pieces of lines. On the CPU, in lanes, a NaN gets all of them; on CUDA it lies beyond a bound.
ONLY_IN_LANES = ("hardswish",)


def has_finite_slope(op: str, args: Sequence[Any]) -> bool:
    """Whether that can be seen from the arguments: `mul` and `div` by numbers, masks, counts."""
    name = op.partition(".")[0]
    if name in ("mul", "div"):
        other = args[1]
        if isinstance(other, Tensor):
            return name == "mul" and not (other.is_floating_point() or other.is_complex())
        return isinstance(other, int | float) and isfinite(other) and (name == "mul" or other != 0)
    if name in ONLY_IN_LANES:
        return args[0].is_cuda
    return name in ONLY_COMPLEX and not args[0].is_complex()


@cache
def reaches() -> dict[str, Reach]:
    """By overload: of those that the installed torch differentiates."""
    return {op: reach for reach, names in REACHES.items() for name in names.split() for op in _overloads(name)}


def _overloads(names: str) -> Iterator[str]:
    name, dot, _ = names.partition(".")
    packet = getattr(torch.ops.aten, name, None)
    for form in () if packet is None else packet.overloads():
        if dot and form != "default":
            continue
        op = name if form == "default" else f"{name}.{form}"
        if not has_kernel(qualified(op)) or not has_kernel_for_key(qualified(op), "Autograd"):
            continue
        if not any(argument.is_out for argument in schema_of(overload(op)).arguments):
            yield op


# Steep only where what they are called with is not finite. On devices a kernel in Python would cost a network of them
# more than 3 % of its steps, whatever that kernel did: there they are torch's.
ON_THE_CPU_ALONE = ("convolution", "convolution_backward", *(REACHES[BatchNorm()].split()))


def is_differentiated_at(op: str, key: str) -> bool:
    """Whether torch differentiates an operator by a formula of its own: on some devices it is made of others."""
    if op.partition(".")[0] in ON_THE_CPU_ALONE and key != "AutogradCPU":
        return False
    is_made = has_kernel_for_key(qualified(op), "CompositeImplicitAutograd")
    return not is_made or has_kernel_for_key(qualified(op), key.removeprefix("Autograd"))


# In-place forms that are not named after their functional one.
IN_PLACE = {
    "ldexp.Tensor": "ldexp_",
    "pow.Tensor_Scalar": "pow_.Scalar",
    "pow.Tensor_Tensor": "pow_.Tensor",
    "polygamma": "polygamma_",
}


def forms(op: Operator) -> tuple[str, ...]:
    """An overload, and the one that writes its result into the first operand, if there is one."""
    in_place = IN_PLACE.get(op.op, op.in_place)
    return (op.op,) if in_place is None else (op.op, in_place)
