"""JAX, as its users would write it. Run in an environment with JAX."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from cases import Framework, axis, main, only_if, power, reduced
from jax import lax


def reverse(call: Callable[..., Any], leaves: dict[str, Any], cotangent: np.ndarray) -> tuple[Any, dict[str, Any]]:
    value, pull = jax.vjp(lambda tensors: call(**tensors), leaves)
    return value, pull(jnp.asarray(cotangent, value.dtype))[0]


def forward(call: Callable[..., Any], leaves: dict[str, Any], tangents: dict[str, Any]) -> Any:
    return jax.jvp(lambda tensors: call(**tensors), (leaves,), (tangents,))[1]


def both_bounds(a: Any) -> Any:
    only_if(a["min"] is not None and a["max"] is not None)
    return lax.clamp(jnp.broadcast_to(a["min"], a["self"].shape).astype("float32"), a["self"], _wide(a["max"], a))


def _wide(number: Any, a: Any) -> Any:
    return jnp.broadcast_to(number, a["self"].shape).astype("float32")


def nested(a: Any) -> Any:
    x = a["self"] if a["min"] is None else jnp.maximum(a["self"], a["min"])
    return x if a["max"] is None else jnp.minimum(x, a["max"])


def elu(a: Any) -> Any:
    only_if((a["scale"], a["input_scale"]) == (1, 1))
    return jax.nn.elu(a["self"], a["alpha"])


def hard_tanh(a: Any) -> Any:
    only_if((a["min_val"], a["max_val"]) == (-1, 1))
    return jax.nn.hard_tanh(a["self"])


def along_argmax(a: Any) -> Any:
    place = jnp.argmax(a["self"], a["dim"], keepdims=True)
    return jnp.take_along_axis(a["self"], place, a["dim"]).squeeze(a["dim"])


def top_k(a: Any) -> Any:
    sign = 1 if a["largest"] else -1
    return sign * lax.top_k(sign * a["self"], a["k"])[0]


def scattered(a: Any) -> Any:
    only_if(a["reduce"] == "amax" and a["include_self"])
    return a["self"].at[a["index"]].max(a["src"] if "src" in a else a["source"])


def reduce_window(a: Any) -> Any:
    window, lead = a["kernel_size"], a["self"].ndim - len(a["kernel_size"])
    padding = a["padding"] * (len(window) if len(a["padding"]) == 1 else 1)
    sizes = (1,) * lead + tuple(window), (1,) * lead + tuple(a["stride"] or window)
    around = [(0, 0)] * lead + [(each, each) for each in padding]
    return lax.reduce_window(a["self"], -jnp.inf, lax.max, *sizes, around)


def pairs(a: Any) -> Any:
    return jnp.linalg.norm(a["x1"][:, None] - a["x2"], a["p"], axis=-1)


def upper_pairs(a: Any) -> Any:
    one, other = np.triu_indices(a["self"].shape[0], 1)
    return jnp.linalg.norm(a["self"][one] - a["self"][other], a["p"], axis=-1)


CLAMP = {
    "jnp.clip": lambda a: jnp.clip(a["self"], a["min"], a["max"]),
    "lax.clamp": both_bounds,
    "jnp.minimum(jnp.maximum)": nested,
}
NORM = {"jnp.linalg.norm": lambda a: jnp.linalg.norm(a["self"], power(a), axis(a))}
POOL = {"lax.reduce_window": reduce_window}
STD = {"jnp.std": lambda a: jnp.std(a["self"], ddof=a["correction"])}
SPELLINGS: dict[str, dict[str, Callable[[Any], Any]]] = {
    "relu": {"jax.nn.relu": lambda a: jax.nn.relu(a["self"]), "jnp.maximum(x, 0)": lambda a: jnp.maximum(a["self"], 0)},
    "relu6": {"jax.nn.relu6": lambda a: jax.nn.relu6(a["self"])},
    "hardtanh": {
        "jax.nn.hard_tanh": hard_tanh,
        "jnp.clip": lambda a: jnp.clip(a["self"], a["min_val"], a["max_val"]),
    },
    "abs": {"jnp.abs": lambda a: jnp.abs(a["self"]), "lax.abs": lambda a: lax.abs(a["self"])},
    "leaky_relu": {"jax.nn.leaky_relu": lambda a: jax.nn.leaky_relu(a["self"], a["negative_slope"])},
    "prelu": {"jax.nn.leaky_relu": lambda a: jax.nn.leaky_relu(a["self"], a["weight"])},
    "rrelu": {"jax.nn.leaky_relu": lambda a: jax.nn.leaky_relu(a["self"], (a["lower"] + a["upper"]) / 2)},
    "elu": {"jax.nn.elu": elu},
    "celu": {"jax.nn.celu": lambda a: jax.nn.celu(a["self"], a["alpha"])},
    "selu": {"jax.nn.selu": lambda a: jax.nn.selu(a["self"])},
    "special_i0e": {"jax.scipy.special.i0e": lambda a: jax.scipy.special.i0e(a["self"])},
    "copysign": {"jnp.copysign": lambda a: jnp.copysign(a["self"], a["other"])},
    "hardsigmoid": {"jax.nn.hard_sigmoid": lambda a: jax.nn.hard_sigmoid(a["self"])},
    "hardswish": {"jax.nn.hard_swish": lambda a: jax.nn.hard_swish(a["self"])},
    "logit": {
        "jax.scipy.special.logit(jnp.clip)": lambda a: jax.scipy.special.logit(
            jnp.clip(a["self"], a["eps"], 1 - a["eps"])
        )
    },
    "clamp": CLAMP,
    "clamp_min": {
        "jnp.maximum": lambda a: jnp.maximum(a["self"], a["min"]),
        "jnp.clip": lambda a: jnp.clip(a["self"], a["min"]),
    },
    "clamp_max": {
        "jnp.minimum": lambda a: jnp.minimum(a["self"], a["max"]),
        "jnp.clip": lambda a: jnp.clip(a["self"], None, a["max"]),
    },
    "maximum": {
        "jnp.maximum": lambda a: jnp.maximum(a["self"], a["other"]),
        "jnp.where(x > y, x, y)": lambda a: jnp.where(a["self"] > a["other"], a["self"], a["other"]),
    },
    "minimum": {"jnp.minimum": lambda a: jnp.minimum(a["self"], a["other"])},
    "fmax": {"jnp.fmax": lambda a: jnp.fmax(a["self"], a["other"])},
    "fmin": {"jnp.fmin": lambda a: jnp.fmin(a["self"], a["other"])},
    "hypot": {
        "jnp.hypot": lambda a: jnp.hypot(a["self"], a["other"]),
        "jnp.sqrt(x * x + y * y)": lambda a: jnp.sqrt(a["self"] * a["self"] + a["other"] * a["other"]),
    },
    "amax": {"jnp.max": lambda a: jnp.max(a["self"], reduced(a))},
    "amin": {"jnp.min": lambda a: jnp.min(a["self"], reduced(a))},
    "aminmax": {"jnp.min": lambda a: jnp.min(a["self"], reduced(a))},
    "max": {
        "jnp.max": lambda a: jnp.max(a["self"], reduced(a)),
        "x[jnp.argmax(x)]": lambda a: along_argmax({"dim": 0, **a}),
    },
    "min": {"jnp.min": lambda a: jnp.min(a["self"], reduced(a))},
    "median": {"jnp.median": lambda a: jnp.median(a["self"], reduced(a))},
    "nanmedian": {"jnp.nanmedian": lambda a: jnp.nanmedian(a["self"], reduced(a))},
    "kthvalue": {"jnp.sort(x)[k - 1]": lambda a: jnp.sort(a["self"])[a["k"] - 1]},
    "sort": {"jnp.sort": lambda a: jnp.sort(a["self"], a["dim"], descending=a["descending"])},
    "topk": {"lax.top_k": top_k},
    "cummax": {"lax.cummax": lambda a: lax.cummax(a["self"], a["dim"])},
    "cummin": {"lax.cummin": lambda a: lax.cummin(a["self"], a["dim"])},
    "scatter_reduce": {"x.at[index].max": scattered},
    "index_reduce": {"x.at[index].max": scattered},
    "segment_reduce": {"jax.ops.segment_max": lambda a: jax.ops.segment_max(a["data"], a["index"])},
    "max_pool2d": POOL,
    "max_pool3d": POOL,
    "linalg_vector_norm": NORM,
    "norm": NORM,
    "dist": {"jnp.linalg.norm(x - y)": lambda a: jnp.linalg.norm(a["self"] - a["other"], a["p"])},
    "cdist": {"jnp.linalg.norm(x - y)": pairs},
    "pdist": {"jnp.linalg.norm(x - y)": upper_pairs},
    "std": STD,
    "std_mean": STD,
    # beyond the table
    "sqrt": {"jnp.sqrt": lambda a: jnp.sqrt(a["self"])},
    "sqrt(x * x)": {"jnp.sqrt": lambda a: jnp.sqrt(a["self"] * a["self"])},
    "sign": {"jnp.sign": lambda a: jnp.sign(a["self"])},
    "atan2": {"jnp.arctan2": lambda a: jnp.arctan2(a["self"], a["other"])},
    "logaddexp": {"jnp.logaddexp": lambda a: jnp.logaddexp(a["self"], a["other"])},
    "logsumexp": {"jax.scipy.special.logsumexp": lambda a: jax.scipy.special.logsumexp(a["self"])},
    "softplus": {"jax.nn.softplus": lambda a: jax.nn.softplus(a["self"])},
    "squareplus(b=0)": {"jax.nn.squareplus": lambda a: jax.nn.squareplus(a["self"], 0)},
    "where(x > 0, sqrt(x), 0)": {"jnp.where": lambda a: jnp.where(a["self"] > 0, jnp.sqrt(a["self"]), 0)},
    "maximum(x, 0) + log1p(exp(-abs(x)))": {
        "jnp": lambda a: jnp.maximum(a["self"], 0) + jnp.log1p(jnp.exp(-jnp.abs(a["self"])))
    },
    "relu(x) + log1p(exp(-abs(x)))": {
        "jax.nn": lambda a: jax.nn.relu(a["self"]) + jnp.log1p(jnp.exp(-jnp.abs(a["self"])))
    },
    "relu(x) - relu(-x)": {"jax.nn.relu": lambda a: jax.nn.relu(a["self"]) - jax.nn.relu(-a["self"])},
    "maximum(x, 0) + minimum(x, 0)": {"jnp": lambda a: jnp.maximum(a["self"], 0) + jnp.minimum(a["self"], 0)},
    "maximum(maximum(x, 0), 0) - maximum(x, 0)": {
        "jnp.maximum": lambda a: jnp.maximum(jnp.maximum(a["self"], 0), 0) - jnp.maximum(a["self"], 0)
    },
    "abs(x) - abs(-x)": {"jnp.abs": lambda a: jnp.abs(a["self"]) - jnp.abs(-a["self"])},
    "huber_loss": {
        "jnp.where (as optax)": lambda a: jnp.where(
            jnp.abs(a["self"]) <= 1, 0.5 * a["self"] ** 2, jnp.abs(a["self"]) - 0.5
        )
    },
    "linalg_eigvalsh": {"jnp.linalg.eigvalsh": lambda a: jnp.linalg.eigvalsh(a["A"])[-1]},
    "matrix_norm('nuc')": {"jnp.linalg.norm": lambda a: jnp.linalg.norm(a["A"], "nuc")},
}

if __name__ == "__main__":
    main(Framework(jax.__version__, jnp.asarray, reverse, forward), SPELLINGS)
