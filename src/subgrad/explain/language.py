"""The language of expressions: the functions of torch that they may call, and what they may ask of tensors.

Everything is listed. A name that is not here is not looked up anywhere, whatever it is: functions that read or write
files, allocate by numbers, draw random numbers, compile, or change what they are given have no place in an expression.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


ENTRYWISE = """
    abs absolute acos acosh add addcdiv addcmul angle arccos arccosh arcsin arcsinh arctan arctan2 arctanh asin asinh
    atan atan2 atanh ceil celu clamp clamp_max clamp_min clip copysign cos cosh deg2rad digamma div divide eq erf erfc
    erfinv exp exp2 expm1 fix floor floor_divide fmax fmin fmod frac frexp ge gt hardshrink heaviside hypot i0 igamma
    igammac isfinite isinf isnan ldexp le lerp lgamma log log10 log1p log2 logaddexp logaddexp2 logical_and logical_not
    logical_or logit lt maximum minimum mul multiply nan_to_num ne neg negative polygamma positive pow prelu rad2deg
    reciprocal relu remainder round rsqrt selu sgn sigmoid sign sin sinc sinh sqrt square sub subtract tan tanh
    threshold true_divide trunc where xlogy
"""
REDUCTIONS = """
    amax amin aminmax cummax cummin cumprod cumsum dist kthvalue log_softmax logcumsumexp logsumexp max mean median min
    mode msort nanmean nanmedian nanquantile nansum norm prod quantile renorm softmax sort std std_mean sum topk var
    var_mean
"""
SHAPES = """
    broadcast_tensors cat concat detach diagonal flatten flip full_like gather index_reduce index_select masked_fill
    movedim ones_like permute ravel reshape roll scatter_reduce segment_reduce squeeze stack t take_along_dim transpose
    tril triu unbind unsqueeze zeros_like
"""
PRODUCTS = """
    addmm addmv baddbmm bmm cdist cholesky_solve cross det dot inner inverse kron logdet matmul mm mv outer slogdet
    tensordot trace triangular_solve vdot
"""
LAYERS = """
    adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d adaptive_max_pool1d adaptive_max_pool2d
    adaptive_max_pool3d avg_pool1d avg_pool2d avg_pool3d bilinear binary_cross_entropy binary_cross_entropy_with_logits
    celu conv1d conv2d conv3d cosine_embedding_loss cosine_similarity cross_entropy elu embedding_bag gelu glu
    grid_sample hardshrink hardsigmoid hardswish hardtanh hinge_embedding_loss huber_loss kl_div l1_loss layer_norm
    leaky_relu linear log_softmax logsigmoid margin_ranking_loss max_pool1d max_pool2d max_pool3d mish mse_loss
    multi_margin_loss multilabel_margin_loss multilabel_soft_margin_loss nll_loss normalize pairwise_distance pdist
    poisson_nll_loss prelu relu relu6 selu sigmoid silu smooth_l1_loss soft_margin_loss softmax softmin softplus
    softshrink softsign tanh tanhshrink threshold triplet_margin_loss
"""
LINALG = """
    cond cross det eig eigh eigvalsh inv matrix_norm norm qr slogdet solve solve_triangular svd svdvals vecdot
    vector_norm
"""
SPECIAL = """
    bessel_j0 bessel_j1 bessel_y0 bessel_y1 digamma entr erf erfc erfcx erfinv exp2 expit expm1 gammainc gammaincc
    gammaln i0 i0e i1 i1e log1p log_ndtr log_softmax logit logsumexp modified_bessel_i0 modified_bessel_i1
    modified_bessel_k0 modified_bessel_k1 ndtr ndtri polygamma psi round scaled_modified_bessel_k0
    scaled_modified_bessel_k1 sinc softmax xlog1py xlogy zeta
"""
TORCH = f"{ENTRYWISE} {REDUCTIONS} {SHAPES} {PRODUCTS}"

# Their results can be larger than what they are given, by more than broadcasting: as large as the product of all sizes.
GROWING = frozenset(
    _words("""
        addmm addmv baddbmm bmm inner kron matmul mm mv outer tensordot cdist pdist svd bilinear linear conv1d
        conv2d conv3d grid_sample index_select adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d
        adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d multilabel_margin_loss
        multilabel_soft_margin_loss
    """)
)
SQUARED = frozenset({"pdist", "svd", "multilabel_margin_loss"})  # of one tensor, as large as its size squared

CONSTANTS = {f"torch.{name}": getattr(math, name) for name in ("pi", "e", "inf", "nan")}
# What can be taken from a tensor, or from a result of several, without calling anything.
TENSOR_FIELDS = ("T", "mT")
RESULT_FIELDS = _words("values min max mantissa exponent eigenvalues eigenvectors S U Vh Q R sign logabsdet solution")

KEYWORDS = frozenset(
    _words("""
        alpha anchor align_corners approximate axis batch1 batch2 beta bias ceil_mode compute_mode correction
        count_include_pad decimals delta descending dilation dim dim0 dim1 dims divisor_override end_dim eps
        exponent groups ignore_index include_last_offset include_self index indices initial input input1 input2
        interpolation k keepdim kernel_size label_smoothing lambd largest left lengths log_input log_target margin
        mask mat mat1 mat2 max max_val maxnorm min min_val mode n nan neginf negative negative_slope norm_type
        normalized_shape offset offsets ord other output_size p padding padding_idx padding_mode per_sample_weights
        pos_weight posinf positive q reduce reduction rounding_mode shape shifts sorted source src stable start_dim
        stride swap target tensor1 tensor2 tensors threshold transpose unbiased unitriangular upper UPLO value
        values vec vec2 weight x x1 x2 grid full_matrices
    """)
)
WORDS = frozenset(
    _words("""
        L U amax amin bilinear border euclidean floor fro higher linear lower max mean midpoint min nearest none nuc
        prod reflection sum tanh trunc zeros
    """)
)

# What stands in the signatures of some functions and may not be given: it writes into arguments, or is for torch alone.
FORBIDDEN = frozenset(
    {"inplace", "out", "dtype", "max_norm", "sparse", "scale_grad_by_freq", "size_average", "_stacklevel"}
)

Functions = Mapping[str, Callable[..., Any]]


def _listed(prefixes: tuple[str, ...], home: Any, names: str) -> dict[str, Callable[..., Any]]:
    """Functions by their full names; some are missing in older versions of torch."""
    found = {name: getattr(home, name, None) for name in names.split()}
    return {f"{prefix}.{name}": each for prefix in prefixes for name, each in found.items() if callable(each)}


FUNCTIONS: Functions = {
    **_listed(("torch",), torch, TORCH),
    **_listed(("F", "torch.nn.functional"), F, LAYERS),
    **_listed(("torch.linalg",), torch.linalg, LINALG),
    **_listed(("torch.special",), torch.special, SPECIAL),
}
METHODS: Functions = {
    name: method for name in TORCH.split() if callable(method := getattr(Tensor, name, None)) and name != "where"
}


@cache
def parameters(function: Callable[..., Any]) -> tuple[str, ...] | None:
    """The names of what a function takes by position, if it is written in Python and says so."""
    try:
        found = inspect.signature(function).parameters.values()
    except (ValueError, TypeError):
        return None
    return tuple(each.name for each in found if each.kind is each.POSITIONAL_OR_KEYWORD)
