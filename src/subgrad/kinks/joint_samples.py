"""Samples of the rows whose places depend on many entries: whole calls, written out.

Tuples stand for tensors: of the asked dtype where they hold floats, else of integers or booleans. Some have one dtype
whatever is asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from subgrad.kinks.kink import Kink
from subgrad.kinks.sets import Pole

Call = Mapping[str, Any]


class Float32(tuple[float, ...]):
    """A tensor that is always of this dtype."""


class Int32(tuple[int, ...]):
    """A tensor that is always of this dtype."""


LINE, ROWS = (2.0, 1.0, 2.0), ((2.0, 1.0, 2.0), (0.0, 1.0, 3.0))
PLANE = (((1.0, 1.0, 0.0), (0.0, 1.0, 0.5), (0.25, 0.5, 0.75)),)
FILM = ((PLANE[0], ((0.0, 0.0, 0.0), (0.0, 1.0, 1.0), (0.0, 0.5, 0.25))),)
IMAGE = ((((1.0, 2.0, 4.0), (0.0, 1.0, 3.0), (2.0, 2.0, 5.0)),),)
POOLED = {"stride": [], "padding": [0], "dilation": [1], "ceil_mode": False}
SAMPLED = {"padding_mode": 0, "align_corners": True}
EYE, NOTHING = ((1.0, 0.0), (0.0, 1.0)), ((0.0, 0.0), (0.0, 0.0))
PLACES_OF_POWERS = (
    (2, (0.0, 0.0)),
    (3, (0.0, 0.0)),
    (1, (0.0, 1.0)),
    (float("inf"), (1.0, -1.0, 0.5)),
    (0.5, (0.0, 1.0)),
    (0, (0.0, 1.0)),
)
NEGATIVE_POWERS = ((float("-inf"), (1.0, -1.0, 2.0)), (-1, (0.0, 1.0)))
QUANTISED = {"quant_min": -8, "quant_max": 7}

JOINT_CALLS: dict[str, tuple[Call, ...]] = {
    "amax": ({"self": ROWS, "dim": [1]}, {"self": LINE, "dim": []}),
    "amin": ({"self": ((1.0, 2.0, 1.0), (0.0, 1.0, 3.0)), "dim": [1]},),
    "aminmax": ({"self": (1.0, 2.0, 1.0)}, {"self": (1.0, 2.0, 1.0), "dim": 0}),
    "max": ({"self": LINE},),
    "min": ({"self": (1.0, 2.0, 1.0)},),
    "median": ({"self": LINE},),
    "nanmedian": ({"self": LINE},),
    "max.dim": ({"self": ROWS, "dim": 1},),
    "min.dim": ({"self": ((1.0, 2.0, 1.0), (0.0, 1.0, 3.0)), "dim": 1},),
    "median.dim": ({"self": ROWS, "dim": 1},),
    "nanmedian.dim": ({"self": ROWS, "dim": 1},),
    "kthvalue": ({"self": (1.0, 2.0, 1.0, 0.0), "k": 2, "dim": 0},),
    "sort": ({"self": (2.0, 1.0, 1.0), "dim": 0, "descending": False}, {"self": LINE, "dim": 0, "descending": True}),
    "sort.stable": ({"self": (2.0, 1.0, 1.0), "stable": True, "dim": 0},),
    "topk": ({"self": LINE, "k": 1, "dim": 0, "largest": True}, {"self": (2.0, 1.0, 1.0), "k": 2, "largest": False}),
    "mode": ({"self": (2.0, 1.0, 2.0)},),
    "cummax": ({"self": (2.0, 1.0, 2.0, 2.0), "dim": 0},),
    "cummin": ({"self": (1.0, 2.0, 1.0, 1.0), "dim": 0},),
    "scatter_reduce.two": (
        {"self": (0.0, 0.0), "dim": 0, "index": (0, 0, 1), "src": (2.0, 2.0, 3.0), "reduce": "amax"},
    ),
    "index_reduce": ({"self": (0.0, 0.0), "dim": 0, "index": (0, 0), "source": (2.0, 2.0), "reduce": "amax"},),
    "segment_reduce": (
        {"data": (2.0, 2.0, 1.0), "reduce": "max", "lengths": (3,)},
        {"data": (2.0, 1.0, 0.5), "reduce": "max", "lengths": (3,), "initial": 2.0},
    ),
    "_embedding_bag": ({"weight": ((2.0, 1.0), (2.0, 0.0)), "indices": (0, 1), "offsets": (0,), "mode": 2},),
    "max_pool2d_with_indices": (
        {"self": PLANE, "kernel_size": [2, 2], **POOLED},
        {"self": PLANE, "kernel_size": [3, 3], **POOLED, "stride": [1, 1], "padding": [1, 1]},
    ),
    "max_pool3d_with_indices": ({"self": (PLANE,), "kernel_size": [1, 2, 2], **POOLED},),
    "adaptive_max_pool2d": ({"self": PLANE, "output_size": [2, 2]},),
    "adaptive_max_pool3d": ({"self": (PLANE,), "output_size": [1, 2, 2]},),
    "fractional_max_pool2d": (
        {"self": PLANE, "kernel_size": [2, 2], "output_size": [2, 2], "random_samples": (((0.5, 0.5),),)},
    ),
    "fractional_max_pool3d": (
        {"self": FILM, "kernel_size": [1, 2, 2], "output_size": [1, 1, 1], "random_samples": (((0.5, 0.5, 0.5),),)},
    ),
    "linalg_vector_norm": tuple({"self": x, "ord": p} for p, x in (*PLACES_OF_POWERS, *NEGATIVE_POWERS)),
    "norm.Scalar": tuple({"self": x, "p": p} for p, x in (*PLACES_OF_POWERS, *NEGATIVE_POWERS)),
    "norm.ScalarOpt_dim": tuple({"self": x, "p": p, "dim": [0]} for p, x in (*PLACES_OF_POWERS, *NEGATIVE_POWERS)),
    "dist": tuple({"self": x, "other": (0.0,) * len(x), "p": p} for p, x in (*PLACES_OF_POWERS, *NEGATIVE_POWERS)),
    "_cdist_forward": tuple(
        {"x1": (x,), "x2": ((0.0,) * len(x),), "p": float(p), "compute_mode": None} for p, x in PLACES_OF_POWERS
    ),
    "_pdist_forward": tuple({"self": (x, (0.0,) * len(x)), "p": float(p)} for p, x in PLACES_OF_POWERS),
    "_euclidean_dist": ({"x1": ((1.0, 2.0),), "x2": ((1.0, 2.0),)},),
    "std.correction": ({"self": (1.0, 1.0, 1.0), "dim": [0], "correction": 1},),
    "std_mean.correction": ({"self": (1.0, 1.0, 1.0), "dim": [0], "correction": 1},),
    "renorm": (
        {"self": ((3.0, 4.0), (1.0, 0.0)), "p": 2, "dim": 0, "maxnorm": 5},
        {"self": ((3.0, 0.0), (1.0, 0.0)), "p": 1, "dim": 0, "maxnorm": 2},
        {"self": ((3.0, -3.0), (1.0, 0.5)), "p": float("inf"), "dim": 0, "maxnorm": 2},
    ),
    "_linalg_svd": ({"A": EYE}, {"A": NOTHING}),
    "_linalg_eigh": ({"A": EYE},),
    "smooth_l1_loss": ({"self": (1.0, 2.0), "target": (1.0, 0.0), "reduction": 0, "beta": 0.0},),
    "multi_margin_loss": ({"self": ((1.0, 0.0, -1.0),), "target": (0,), "reduction": 0},),
    "multilabel_margin_loss_forward": ({"self": ((1.0, 0.0, 0.5),), "target": ((0, -1, -1),), "reduction": 0},),
    "grid_sampler_2d": (
        {"input": IMAGE, "grid": ((((0.0, 0.25),),),), "interpolation_mode": 0, **SAMPLED},
        {"input": IMAGE, "grid": ((((0.5, 0.25),),),), "interpolation_mode": 1, **SAMPLED},
    ),
    "grid_sampler_3d": (
        {"input": (IMAGE,), "grid": (((((0.0, 0.25, -1.0),),),),), "interpolation_mode": 0, **SAMPLED},
        {"input": (IMAGE,), "grid": (((((0.5, 0.25, -1.0),),),),), "interpolation_mode": 1, **SAMPLED},
    ),
    **{name: ({"self": (1.0, 2.0)},) for name in ("floor", "ceil", "trunc", "frac")},
    **{name: ({"self": (0.0, 2.0)},) for name in ("sign", "sgn", "angle")},
    **{name: ({"self": (0.0, 4.0)},) for name in ("sqrt", "rsqrt")},  # exact: math libraries round roots differently
    **{name: ({"self": (0.0, 1.0)},) for name in ("log", "log2", "log10", "reciprocal", "special_entr")},
    **{f"special_bessel_{name}": ({"self": (0.0, 1.0)},) for name in ("y0", "y1")},
    **{f"special_modified_bessel_{name}": ({"self": (0.0, 1.0)},) for name in ("k0", "k1")},
    **{name: ({"self": (-1.0, 0.0)}, {"self": (1.0, 0.0)}) for name in ("acos", "asin", "atanh", "erfinv")},
    **{name: ({"self": (-1.0, 2.0)},) for name in ("lgamma", "digamma")},
    **{name: ({"self": (0.5, 0.5), "other": (0.0, 2.0)},) for name in ("div.Tensor", "igamma", "igammac")},
    "log1p": ({"self": (-1.0, 0.0)},),
    "acosh": ({"self": (1.0, 2.0)},),
    "special_ndtri": ({"self": (0.0, 0.5)}, {"self": (1.0, 0.5)}),
    "xlogy.Scalar_Self": ({"self": 0.5, "other": (0.0, 2.0)},),
    "xlogy.Tensor": tuple({"self": (factor, 0.5), "other": (0.0, 2.0)} for factor in (0.5, 0.0)),
    "special_xlog1py": tuple({"self": (factor, 0.5), "other": (-1.0, 0.0)} for factor in (0.5, 0.0)),
    "special_xlog1py.self_scalar": ({"self": 0.5, "other": (-1.0, 0.0)},),
    "polygamma": ({"n": 1, "self": (-1.0, 2.0)},),
    "mvlgamma": ({"self": (0.5, 2.0), "p": 2},),
    "addcdiv": ({"self": (1.0, 1.0), "tensor1": (1.0, 1.0), "tensor2": (0.0, 2.0)},),
    "linalg_eig": ({"self": EYE},),
    "linalg_qr": ({"A": ((1.0, 1.0), (1.0, 1.0), (1.0, 1.0))},),
    "linalg_solve_triangular": ({"self": ((0.0, 0.0), (0.0, 1.0)), "B": ((1.0,), (1.0,)), "upper": True},),
    "cholesky_solve": ({"self": ((1.0,), (1.0,)), "input2": ((0.0, 0.0), (0.0, 1.0)), "upper": True},),
    "native_layer_norm": (
        {"input": ((2.0, 2.0, 2.0),), "normalized_shape": [3], "weight": None, "bias": None, "eps": 0.0},
    ),
    "triangular_solve": ({"self": ((1.0,), (1.0,)), "A": ((0.0, 0.0), (0.0, 1.0))},),
    "_linalg_slogdet": ({"A": ((1.0, 1.0), (1.0, 1.0))},),
    "round": ({"self": (0.5, 2.0)},),
    "round.decimals": ({"self": (0.5, 2.0), "decimals": 0},),
    **{name: ({"self": (2.0, 1.5), "other": (1.0, 1.0)},) for name in ("remainder.Tensor", "fmod.Tensor")},
    **{name: ({"self": (2.0, 1.5), "other": 1.0},) for name in ("remainder.Scalar", "fmod.Scalar")},
    "div.Tensor_mode": ({"self": (2.0, 1.5), "other": (1.0, 1.0), "rounding_mode": "floor"},),
    "div.Scalar_mode": ({"self": (2.0, 1.5), "other": 1.0, "rounding_mode": "trunc"},),
    "heaviside": ({"self": (0.0, 1.0), "values": (0.5, 0.5)},),
    "frexp.Tensor": ({"self": (1.0, 3.0)},),
    "softplus": ({"self": (0.5, 1.0), "beta": 2, "threshold": 1},),
    "hardshrink": ({"self": (0.5, 1.0), "lambd": 0.5},),
    "where.self": ({"condition": (True, False), "self": (1.0, 1.0), "other": (0.0, 0.0)},),
    "atan2": ({"self": (0.0, 1.0), "other": (-1.0, 1.0)}, {"self": (0.0, 1.0), "other": (0.0, 1.0)}),
    "pow.Tensor_Scalar": tuple({"self": (0.0, 1.0), "exponent": exponent} for exponent in (0.5, -0.5, -1)),
    "pow.Tensor_Tensor": ({"self": (0.0, 1.0), "exponent": (0.5, 0.5)},),
    "pow.Scalar": ({"self": 0.0, "exponent": (0.0, 1.0)},),
    "fake_quantize_per_tensor_affine_cachemask": ({"self": (0.5, 1.0), "scale": 1.0, "zero_point": 0, **QUANTISED},),
    "fake_quantize_per_channel_affine_cachemask": (
        {"self": ((0.5, 1.0),), "scale": Float32((1.0,)), "zero_point": Int32((0,)), "axis": 0, **QUANTISED},
    ),
    "_fake_quantize_per_tensor_affine_cachemask_tensor_qparams": (
        {
            "self": (0.5, 1.0),
            "scale": Float32((1.0,)),
            "zero_point": Int32((0,)),
            "fake_quant_enabled": (1,),
            **QUANTISED,
        },
    ),
    "_fused_moving_avg_obs_fq_helper": (
        {
            "self": (0.5, 1.0),
            "observer_on": (0,),
            "fake_quant_on": (1,),
            "running_min": Float32((-8.0,)),
            "running_max": Float32((7.0,)),
            "scale": Float32((1.0,)),
            "zero_point": Int32((0,)),
            "averaging_const": 0.1,
            "ch_axis": -1,
            **QUANTISED,
        },
    ),
    "_fake_quantize_learnable_per_tensor_affine": (
        {"self": (0.5, 1.0), "scale": (1.0,), "zero_point": (0.0,), **QUANTISED},
    ),
}

# The output, and the entry of it, on the kink; the first of the first where nothing is said.
AFFECTED = {"cummax": (0, 2), "cummin": (0, 2), "_linalg_svd": (1, 0)}
# Of factorisations, an entry of the vectors.
_INFINITELY_STEEP = {
    **{"_linalg_svd": (0, 0), "_linalg_eigh": (1, 0), "linalg_eig": (1, 0)},
    **{"linalg_qr": (0, 1), "_linalg_slogdet": (1, 0)},
}


def affected(kink: Kink) -> tuple[int, int]:
    """Which output of an operator, and which entry of it, lies on a kink in the samples above."""
    steep = _INFINITELY_STEEP.get(kink.op) if isinstance(kink.set, Pole) else None
    return steep or AFFECTED.get(kink.op, (0, 0))
