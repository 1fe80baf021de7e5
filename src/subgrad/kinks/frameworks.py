"""What other frameworks return at the kinks of the table, for the same mathematical operation. Facts only, each measured.

A row names a kink by its operator, and by its place or condition where there are several. What it holds is what the
spelling returns that `SPELLINGS` names: for a corner ``"left"``, ``"right"``, ``"mean"``, ``"sum"`` of both slopes, or a
number; for a tie those that share, or the weight of each; for a kink of many entries ``"least"``, ``"one"`` of those that
torch may select too, or what `apply/other_elements.py` puts there: ``"nan"`` everywhere, ``"nan if live"`` for 0 where
the cotangent of a square root is 0, ``"right"`` for slope 1 where a norm of power 1 has a zero, ``"whole"`` for a whole
slope in each tied entry. None: the framework has no such operation,
or returns what `LEFT_TO_TORCH` explains; the installed torch decides.

``tests/recorded`` has what the real frameworks returned, and ``make frameworks`` asks them again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from math import nan
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from subgrad.kinks.kink import Kink

FRAMEWORKS = ("jax", "tensorflow", "mlx", "paddle")


@dataclass(frozen=True)
class Row:
    """What each framework returns at one kink, or at all of an operator that have this place and condition."""

    op: str
    at: str | None
    jax: Any
    tensorflow: Any
    mlx: Any
    paddle: Any
    when: str | None = None

    def describes(self, kink: Kink) -> bool:
        return self.op == kink.op and self.at in (None, kink.at) and self.when in (None, kink.when)


SELF, OTHER, MIN, MAX = ("self",), ("other",), ("min",), ("max",)
EACH = ("self", "other")
WITH_MIN, WITH_MAX, BOUNDS = ("self", "min"), ("self", "max"), ("min", "max")
NESTED = {"self": 0.25, "min": 0.25, "max": 0.5}  # what minimum(maximum(x, min), max) makes of two ties that share
HALVES = {"self": 0.5, "other": 0.5}
NOWHERE = {"self": 0.0, "other": 0.0}
UNDEFINED = {"self": nan, "other": nan}

# fmt: off
# ruff: noqa: E501
ROWS = (
    #   operator             place      jax       tensorflow  mlx       paddle
    Row("relu",              "0",       "left",   "left",     "left",   "left"),
    Row("abs",               "0",       "right",  0.0,        0.0,      0.0),
    Row("leaky_relu",        "0",       "right",  "left",     "right",  "right"),
    Row("_prelu_kernel",     "0",       "right",  0.0,        "sum",    "left"),
    Row("rrelu_with_noise",  "0",       "right",  "left",     "right",  "right",  when="not training"),
    Row("elu",               "0",       "left",   "left",     "left",   "left"),
    Row("celu",              "0",       1.0,      2.0,        0.0,      1.0),
    Row("special_i0e",       "0",       0.0,      0.0,        None,     "right"),
    Row("copysign.Tensor",   "0",       "right",  None,       None,     0.0),
    Row("copysign.Scalar",   "0",       "right",  None,       None,     0.0),
    Row("selu",              "0",       "left",   "right",    "left",   "left"),
    Row("relu6",             "0",       "left",   "left",     "left",   "left"),
    Row("relu6",             "6",       "right",  "right",    "right",  "right"),
    Row("hardtanh",          "min_val", "right",  "right",    "left",   "left"),
    Row("hardtanh",          "max_val", "left",   "left",     "right",  "right",  when="min_val < max_val"),
    Row("hardtanh",          "max_val", None,     1.0,        0.0,      0.0,      when="min_val == max_val"),
    Row("hardsigmoid",       "-3",      "left",   "left",     None,     "left"),
    Row("hardsigmoid",       "3",       "right",  "right",    None,     "right"),
    Row("hardswish",         "-3",      "left",   "left",     "left",   "left"),
    Row("hardswish",         "3",       "right",  "right",    "right",  "right"),
    Row("softshrink",        None,      None,     0.0,        0.0,      0.0),
    Row("logit",             "eps",     "mean",   None,       None,     "right"),
    Row("logit",             "1 - eps", "mean",   None,       None,     "left"),
    Row("threshold",         "threshold", None,   "left",     None,     "left"),

    Row("clamp",             "min",     "mean",   "right",    "left",   "right"),
    Row("clamp",             "max",     "mean",   "left",     "right",  "left",   when="max is not None and (min is None or min < max)"),
    Row("clamp",             "max",     0.25,     1.0,        0.0,      1.0,      when="min == max"),
    Row("clamp_min",         "min",     "mean",   "right",    "left",   "right"),
    Row("clamp_max",         "max",     "mean",   "left",     "right",  "left"),

    Row("maximum",           None,      EACH,     SELF,       OTHER,    EACH),
    Row("minimum",           None,      EACH,     SELF,       OTHER,    EACH),
    Row("fmax",              None,      OTHER,    None,       None,     SELF),
    Row("fmin",              None,      OTHER,    None,       None,     SELF),
    Row("clamp_min.Tensor",  None,      WITH_MIN, SELF,       MIN,      WITH_MIN),
    Row("clamp_max.Tensor",  None,      WITH_MAX, SELF,       MAX,      WITH_MAX),
    Row("clamp.Tensor",      "self == min",                  WITH_MIN, SELF, MIN, WITH_MIN),
    Row("clamp.Tensor",      "self == max",                  WITH_MAX, SELF, MAX, WITH_MAX),
    Row("clamp.Tensor",      "(self == min) & (min < max)",  WITH_MIN, SELF, MIN, WITH_MIN),
    Row("clamp.Tensor",      "(self == max) & (min < max)",  WITH_MAX, SELF, MAX, WITH_MAX),
    Row("clamp.Tensor",      "(self < min) & (min == max)",  BOUNDS,   MIN,  MAX, BOUNDS),
    Row("clamp.Tensor",      "(self == min) & (min == max)", NESTED,   SELF, MAX, NESTED),
    Row("hypot",             None,      HALVES,   NOWHERE,    None,     UNDEFINED),

    # many entries at once
    Row("amax",              None,      "least",  "least",    "least",  "least"),
    Row("amin",              None,      "least",  "least",    "least",  "least"),
    Row("aminmax",           None,      "least",  "least",    "least",  "least"),
    Row("max",               None,      "least",  "least",    "least",  "least"),
    Row("min",               None,      "least",  "least",    "least",  "least"),
    Row("max.dim",           None,      "least",  "least",    "least",  "least"),
    Row("min.dim",           None,      "least",  "least",    "least",  "least"),
    Row("median",            None,      None,     None,       None,     "least"),
    Row("nanmedian",         None,      None,     None,       None,     "least"),
    Row("median.dim",        None,      "one",    "one",      "one",    "least"),
    Row("nanmedian.dim",     None,      "one",    None,       None,     "least"),
    Row("kthvalue",          None,      "one",    "one",      "one",    "one"),
    Row("sort",              None,      "one",    "one",      "one",    "one"),
    Row("sort.stable",       None,      "one",    "one",      "one",    "one"),
    Row("topk",              None,      "one",    "one",      "one",    "one"),
    Row("cummax",            None,      None,     None,       "one",    "one"),
    Row("cummin",            None,      None,     None,       "one",    "one"),
    Row("scatter_reduce.two", None,     "least",  "least",    None,     "least"),
    Row("index_reduce",      None,      "least",  "least",    None,     None),
    Row("max_pool2d_with_indices", None, "one",   "one",      "least",  "one"),
    Row("max_pool3d_with_indices", None, "one",   None,       "least",  "one"),
    Row("adaptive_max_pool2d", None,    None,     None,       None,     "one"),
    Row("adaptive_max_pool3d", None,    None,     None,       None,     "one"),
    Row("std.correction",    None,      "nan",    "nan if live", "nan", "nan"),
    Row("std_mean.correction", None,    "nan",    "nan if live", "nan", "nan"),
    Row("multi_margin_loss", None,      None,     None,       None,     "one"),
)
# fmt: on


def _norms(op: str, p: str) -> tuple[Row, ...]:
    """The rows of a norm of a vector; -inf, and what lies below 0, TensorFlow's `tf.norm` does not take."""
    # fmt: off
    return (
        Row(op, None, "nan",   "nan if live", "nan", "least", when=f"1 < {p} < inf"),
        Row(op, None, "right", "least", "least", "least", when=f"{p} == 1"),
        Row(op, None, "least", "least", "least", "whole", when=f"{p} == inf"),
        Row(op, None, "least", None,    "least", "whole", when=f"{p} == -inf"),
        Row(op, None, "nan",   None,    "nan",   "nan",   when=f"-inf < {p} < 0"),
    )
    # fmt: on


NORMS = {"linalg_vector_norm": "ord", "norm.Scalar": "p", "norm.ScalarOpt_dim": "(2 if p is None else p)", "dist": "p"}
# fmt: off
DISTANCES = tuple(row for op in ("_cdist_forward", "_pdist_forward") for row in (
    Row(op, None, "nan",   "nan if live", "nan", "least", when="1 < p < inf"),
    Row(op, None, "right", "least", "least", "least", when="p == 1"),
    Row(op, None, "least", "least", "least", "one",   when="p == inf"),
))
# fmt: on
ALL = (
    *ROWS,
    *(row for op, p in NORMS.items() for row in _norms(op, p)),
    *DISTANCES,
    Row("_euclidean_dist", None, "nan", "nan if live", "nan", "least"),
)


@cache
def pick(kink: Kink, framework: str) -> Any:
    """What a framework returns at a kink; None where the installed torch decides."""
    return next((getattr(row, framework) for row in ALL if row.describes(kink)), None)


# Where the spellings of a framework differ among themselves: which one the convention follows, and what gives another.
SPELLINGS: Mapping[str, Mapping[str, tuple[str, str]]] = {
    "jax": {
        "relu": ("jax.nn.relu", "jnp.maximum(x, 0): relu='mean'"),
        "clamp": ("jnp.clip and jnp.minimum(jnp.maximum)", "lax.clamp: clamp='min-norm'"),
        "clamp_min": ("jnp.maximum and jnp.clip", ""),
        "clamp_max": ("jnp.minimum and jnp.clip", ""),
        "hardtanh": ("jax.nn.hard_tanh", "jnp.clip: hardtanh='mean'"),
        "maximum": ("jnp.maximum", "jnp.where(x > y, x, y): maximum=0.0"),
        "hypot": ("jnp.hypot", "jnp.sqrt(x * x + y * y), nan: hypot='paddle'"),
        "max": ("jnp.max", "x[jnp.argmax(x)]: max='torch'"),
    },
    "tensorflow": {
        "relu": ("tf.nn.relu and keras.activations.relu", "tf.maximum(x, 0): relu=1.0; tf.maximum(0, x) as tf.nn.relu"),
        "hardtanh": ("tf.clip_by_value and keras.activations.hard_tanh", ""),
    },
    "mlx": {},
    "paddle": {
        "relu": ("F.relu", "paddle.maximum(x, zeros): relu='mean'"),
        "clamp": ("paddle.clip", "paddle.minimum(paddle.maximum): clamp='jax'"),
        "clamp_min": ("paddle.clip", "paddle.maximum: clamp_min='mean'"),
        "clamp_max": ("paddle.clip", "paddle.minimum: clamp_max='mean'"),
        "hardtanh": ("F.hardtanh", "paddle.clip: hardtanh='tensorflow'"),
    },
}

# Operators at which a convention does not give what the framework's spelling returns, and why.
LEFT_TO_TORCH: Mapping[str, Mapping[str, str]] = {
    "jax": {
        "hardtanh": "jax.nn.hard_tanh has the bounds -1 and 1 alone; for others there is jnp.clip: hardtanh='mean'",
        "median": "jnp.median gives one tied entry everything, torch.median without a dimension shares",
        "nanmedian": "jnp.nanmedian gives one tied entry everything, torch.nanmedian without a dimension shares",
        "sort": "in descending order tied entries come out in reverse: their cotangents are exchanged",
        "kthvalue": "which of the tied entries is selected depends on how torch's selection moves them",
        "cummax": "lax.cummax shares by halves along a tree of comparisons",
        "cummin": "lax.cummin shares by halves along a tree of comparisons",
    },
    "tensorflow": {
        "clamp": "tf.clip_by_value with bounds in the wrong order returns the lower one, torch the upper one",
        "hypot": "keras.ops.hypot is wrong where |x| = |y|, away from 0 too: (sqrt(2), 0) for (1, 1)",
        "median": "keras.ops.median gives one tied entry everything, torch.median without a dimension shares",
        "kthvalue": "which of the tied entries is selected depends on how torch's selection moves them",
        "max_pool3d": "in reverse mode each tied entry gets a whole slope, in forward mode the first one",
    },
    "mlx": {
        "leaky_relu": "nn.leaky_relu is max(slope x, x), another function for slopes above 1",
        "median": "mx.median gives one tied entry everything, torch.median without a dimension shares",
        "kthvalue": "which of the tied entries is selected depends on how torch's selection moves them",
        "topk": "mx.topk selects the last of the tied entries, and returns what it selects in no order",
        "scatter_reduce": "x.at[index].maximum gives each tied entry a whole slope",
        "index_reduce": "x.at[index].maximum gives each tied entry a whole slope",
    },
    "paddle": {
        "special_i0e": "paddle.i0e has slope -1 at 0 and 1 at -0.0; the convention takes -1 at both",
        "kthvalue": "paddle.kthvalue selects the other one of two tied entries",
        "renorm": "paddle.renorm differentiates norms of power 1 otherwise, and returns nan for power inf",
        "multi_margin_loss": "F.multi_margin_loss passes the gradient of a class on the margin, torch blocks it",
    },
}
