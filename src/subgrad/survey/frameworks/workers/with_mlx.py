"""MLX, as its users would write it. Run in an environment with MLX."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np
from cases import Framework, axis, main, only_if, power, reduced


def reverse(call: Callable[..., Any], leaves: dict[str, Any], cotangent: np.ndarray) -> tuple[Any, dict[str, Any]]:
    names = list(leaves)
    (value,), gradients = mx.vjp(
        lambda *tensors: call(**dict(zip(names, tensors, strict=True))), list(leaves.values()), [mx.array(cotangent)]
    )
    return value, dict(zip(names, gradients, strict=True))


def forward(call: Callable[..., Any], leaves: dict[str, Any], tangents: dict[str, Any]) -> Any:
    names = list(leaves)
    given = [tangents[name] for name in names]
    _, (found,) = mx.jvp(lambda *tensors: call(**dict(zip(names, tensors, strict=True))), list(leaves.values()), given)
    return found


def nested(a: Any) -> Any:
    x = a["self"] if a["min"] is None else mx.maximum(a["self"], a["min"])
    return x if a["max"] is None else mx.minimum(x, a["max"])


def elu(a: Any) -> Any:
    only_if((a["scale"], a["input_scale"]) == (1, 1))
    return nn.elu(a["self"], a["alpha"])


def hard_tanh(a: Any) -> Any:
    return nn.hard_tanh(a["self"], a["min_val"], a["max_val"])


def top_k(a: Any) -> Any:
    sign = 1 if a["largest"] else -1
    return mx.sort(sign * mx.topk(sign * a["self"], a["k"]))[:: -1 if a["largest"] else 1]


def ascending(a: Any) -> Any:
    only_if(not a["descending"])
    return mx.sort(a["self"], a["dim"])


def scattered(a: Any) -> Any:
    only_if(a["reduce"] == "amax" and a["include_self"])
    return a["self"].at[a["index"]].maximum(a["src"] if "src" in a else a["source"])


def pooled(a: Any) -> Any:
    window = tuple(a["kernel_size"])
    padding = tuple(a["padding"] * (len(window) if len(a["padding"]) == 1 else 1))
    pool = nn.MaxPool2d if len(window) == 2 else nn.MaxPool3d
    x = a["self"].reshape((-1, *a["self"].shape[-len(window) :], 1))  # channels come last
    return pool(window, tuple(a["stride"] or window), padding)(x)[..., 0].reshape(
        np.shape(a["self"])[: -len(window)] + (-1,) * 0 + _sizes(a, window, padding)
    )


def _sizes(a: Any, window: tuple[int, ...], padding: tuple[int, ...]) -> tuple[int, ...]:
    inside, strides = a["self"].shape[-len(window) :], a["stride"] or window
    return tuple((n + 2 * p - w) // s + 1 for n, p, w, s in zip(inside, padding, window, strides, strict=True))


def upper_pairs(a: Any) -> Any:
    one, other = map(mx.array, np.triu_indices(a["self"].shape[0], 1))
    return mx.linalg.norm(a["self"][one] - a["self"][other], a["p"], axis=-1)


CLAMP = {
    "mx.clip": lambda a: mx.clip(a["self"], a["min"], a["max"]),
    "mx.minimum(mx.maximum)": nested,
}
MAX = {"mx.max": lambda a: mx.max(a["self"], reduced(a))}
MIN = {"mx.min": lambda a: mx.min(a["self"], reduced(a))}
NORM = {"mx.linalg.norm": lambda a: mx.linalg.norm(a["self"], power(a), axis(a))}
STD = {"mx.std": lambda a: mx.std(a["self"], ddof=a["correction"])}
SPELLINGS: dict[str, dict[str, Callable[[Any], Any]]] = {
    "relu": {"nn.relu": lambda a: nn.relu(a["self"]), "mx.maximum(x, 0)": lambda a: mx.maximum(a["self"], 0)},
    "relu6": {"nn.relu6": lambda a: nn.relu6(a["self"])},
    "hardtanh": {
        "nn.hard_tanh": hard_tanh,
        "mx.clip": lambda a: mx.clip(a["self"], a["min_val"], a["max_val"]),
    },
    "abs": {"mx.abs": lambda a: mx.abs(a["self"])},
    "leaky_relu": {"nn.leaky_relu": lambda a: nn.leaky_relu(a["self"], a["negative_slope"])},
    "prelu": {"nn.prelu": lambda a: nn.prelu(a["self"], a["weight"])},
    "rrelu": {"nn.leaky_relu": lambda a: nn.leaky_relu(a["self"], (a["lower"] + a["upper"]) / 2)},
    "elu": {"nn.elu": elu},
    "celu": {"nn.celu": lambda a: nn.celu(a["self"], a["alpha"])},
    "selu": {"nn.selu": lambda a: nn.selu(a["self"])},
    "hardswish": {"nn.hardswish": lambda a: nn.hardswish(a["self"])},
    "softshrink": {"nn.softshrink": lambda a: nn.softshrink(a["self"], a["lambd"])},
    "clamp": CLAMP,
    "clamp_min": {
        "mx.maximum": lambda a: mx.maximum(a["self"], a["min"]),
        "mx.clip": lambda a: mx.clip(a["self"], a["min"], None),
    },
    "clamp_max": {
        "mx.minimum": lambda a: mx.minimum(a["self"], a["max"]),
        "mx.clip": lambda a: mx.clip(a["self"], None, a["max"]),
    },
    "maximum": {"mx.maximum": lambda a: mx.maximum(a["self"], a["other"])},
    "minimum": {"mx.minimum": lambda a: mx.minimum(a["self"], a["other"])},
    "amax": MAX,
    "amin": MIN,
    "aminmax": MIN,
    "max": MAX,
    "min": MIN,
    "median": {"mx.median": lambda a: mx.median(a["self"], reduced(a))},
    "kthvalue": {"mx.sort(x)[k - 1]": lambda a: mx.sort(a["self"])[a["k"] - 1]},
    "sort": {"mx.sort": ascending},
    "topk": {"mx.topk": top_k},
    "cummax": {"mx.cummax": lambda a: mx.cummax(a["self"], axis=a["dim"])},
    "cummin": {"mx.cummin": lambda a: mx.cummin(a["self"], axis=a["dim"])},
    "scatter_reduce": {"x.at[index].maximum": scattered},
    "index_reduce": {"x.at[index].maximum": scattered},
    "max_pool2d": {"nn.MaxPool2d": pooled},
    "max_pool3d": {"nn.MaxPool3d": pooled},
    "linalg_vector_norm": NORM,
    "norm": NORM,
    "dist": {"mx.linalg.norm(x - y)": lambda a: mx.linalg.norm(a["self"] - a["other"], a["p"])},
    "cdist": {
        "mx.linalg.norm(x - y)": lambda a: mx.linalg.norm(a["x1"][:, None] - a["x2"], a["p"], axis=-1),
    },
    "pdist": {"mx.linalg.norm(x - y)": upper_pairs},
    "std": STD,
    "std_mean": STD,
    # beyond the table
    "sqrt": {"mx.sqrt": lambda a: mx.sqrt(a["self"])},
    "sqrt(x * x)": {"mx.sqrt": lambda a: mx.sqrt(a["self"] * a["self"])},
    "sign": {"mx.sign": lambda a: mx.sign(a["self"])},
    "atan2": {"mx.arctan2": lambda a: mx.arctan2(a["self"], a["other"])},
    "logaddexp": {"mx.logaddexp": lambda a: mx.logaddexp(a["self"], a["other"])},
    "logsumexp": {"mx.logsumexp": lambda a: mx.logsumexp(a["self"])},
    "softplus": {"nn.softplus": lambda a: nn.softplus(a["self"])},
    "where(x > 0, sqrt(x), 0)": {"mx.where": lambda a: mx.where(a["self"] > 0, mx.sqrt(a["self"]), 0)},
    "maximum(x, 0) + log1p(exp(-abs(x)))": {
        "mx": lambda a: mx.maximum(a["self"], 0) + mx.log1p(mx.exp(-mx.abs(a["self"])))
    },
    "relu(x) + log1p(exp(-abs(x)))": {"nn": lambda a: nn.relu(a["self"]) + mx.log1p(mx.exp(-mx.abs(a["self"])))},
    "relu(x) - relu(-x)": {"nn.relu": lambda a: nn.relu(a["self"]) - nn.relu(-a["self"])},
    "maximum(x, 0) + minimum(x, 0)": {"mx": lambda a: mx.maximum(a["self"], 0) + mx.minimum(a["self"], 0)},
    "maximum(maximum(x, 0), 0) - maximum(x, 0)": {
        "mx.maximum": lambda a: mx.maximum(mx.maximum(a["self"], 0), 0) - mx.maximum(a["self"], 0)
    },
    "abs(x) - abs(-x)": {"mx.abs": lambda a: mx.abs(a["self"]) - mx.abs(-a["self"])},
    "huber_loss": {
        "nn.losses.huber_loss": lambda a: nn.losses.huber_loss(a["self"], mx.zeros_like(a["self"]), reduction="none")
    },
    "hinge_loss": {
        "nn.losses.hinge_loss": lambda a: nn.losses.hinge_loss(a["self"], mx.ones_like(a["self"]), reduction="none")
    },
}

if __name__ == "__main__":
    mx.set_default_device(mx.cpu)
    main(Framework(version("mlx"), mx.array, reverse, forward), SPELLINGS)
