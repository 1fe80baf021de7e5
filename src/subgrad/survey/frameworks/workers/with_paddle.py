"""PaddlePaddle, as its users would write it; it has no forward mode. Run in an environment with PaddlePaddle."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import paddle
import paddle.nn.functional as F
from cases import Framework, axis, main, only_if, power, reduced


def reverse(call: Callable[..., Any], leaves: dict[str, Any], cotangent: np.ndarray) -> tuple[Any, dict[str, Any]]:
    for each in leaves.values():
        each.stop_gradient = False
    value = call(**leaves)
    given = paddle.to_tensor(cotangent)
    found = paddle.grad([value], list(leaves.values()), [given], allow_unused=True)
    pairs = zip(leaves.items(), found, strict=True)
    return value, {name: paddle.zeros_like(leaf) if each is None else each for (name, leaf), each in pairs}


def nested(a: Any) -> Any:
    x = a["self"] if a["min"] is None else paddle.maximum(a["self"], _tensor(a["min"]))
    return x if a["max"] is None else paddle.minimum(x, _tensor(a["max"]))


def _tensor(given: Any) -> Any:
    return given if isinstance(given, paddle.Tensor) else paddle.to_tensor(float(given))


def elu(a: Any) -> Any:
    only_if((a["scale"], a["input_scale"]) == (1, 1))
    return F.elu(a["self"], a["alpha"])


def numbers(a: Any) -> Any:
    only_if(not any(isinstance(a[name], paddle.Tensor) for name in ("min", "max")))
    return paddle.clip(a["self"], a["min"], a["max"])


def prelu(a: Any) -> Any:
    weight = a["weight"]
    return F.prelu(a["self"].reshape([1, -1]), weight).reshape([-1])


def scattered(a: Any) -> Any:
    only_if(a["reduce"] == "amax")
    source = a["src"] if "src" in a else a["source"]
    return paddle.put_along_axis(a["self"], a["index"].astype("int64"), source, 0, "amax", True, False)


def pooled(a: Any) -> Any:
    pool = F.max_pool2d if len(a["kernel_size"]) == 2 else F.max_pool3d
    padding = a["padding"][0]
    return pool(a["self"][None], a["kernel_size"], a["stride"] or a["kernel_size"], padding)[0]


def adaptive(a: Any) -> Any:
    pool = F.adaptive_max_pool2d if len(a["output_size"]) == 2 else F.adaptive_max_pool3d
    return pool(a["self"][None], a["output_size"])[0]


def std(a: Any) -> Any:
    only_if(a["correction"] == 1)
    return paddle.std(a["self"])


NORM = {
    "paddle.linalg.norm": lambda a: paddle.linalg.norm(a["self"], power(a), axis(a)),
    "paddle.linalg.vector_norm": lambda a: paddle.linalg.vector_norm(a["self"], power(a), axis(a)),
}
AMAX = {"paddle.amax": lambda a: paddle.amax(a["self"], reduced(a))}
AMIN = {"paddle.amin": lambda a: paddle.amin(a["self"], reduced(a))}
SPELLINGS: dict[str, dict[str, Callable[[Any], Any]]] = {
    "relu": {
        "F.relu": lambda a: F.relu(a["self"]),
        "paddle.maximum(x, 0)": lambda a: paddle.maximum(a["self"], paddle.zeros_like(a["self"])),
    },
    "relu6": {"F.relu6": lambda a: F.relu6(a["self"])},
    "hardtanh": {
        "F.hardtanh": lambda a: F.hardtanh(a["self"], a["min_val"], a["max_val"]),
        "paddle.clip": lambda a: paddle.clip(a["self"], a["min_val"], a["max_val"]),
    },
    "abs": {"paddle.abs": lambda a: paddle.abs(a["self"])},
    "leaky_relu": {"F.leaky_relu": lambda a: F.leaky_relu(a["self"], a["negative_slope"])},
    "prelu": {"F.prelu": prelu},
    "rrelu": {"F.rrelu": lambda a: F.rrelu(a["self"], a["lower"], a["upper"], training=False)},
    "elu": {"F.elu": elu},
    "celu": {"F.celu": lambda a: F.celu(a["self"], a["alpha"])},
    "selu": {"F.selu": lambda a: F.selu(a["self"])},
    "special_i0e": {"paddle.i0e": lambda a: paddle.i0e(a["self"])},
    "copysign": {"paddle.copysign": lambda a: paddle.copysign(a["self"], _tensor(a["other"]))},
    "hardsigmoid": {"F.hardsigmoid": lambda a: F.hardsigmoid(a["self"])},
    "hardswish": {"F.hardswish": lambda a: F.hardswish(a["self"])},
    "softshrink": {"F.softshrink": lambda a: F.softshrink(a["self"], a["lambd"])},
    "threshold": {
        "F.thresholded_relu": lambda a: F.thresholded_relu(a["self"], a["threshold"], a["value"]),
    },
    "logit": {"paddle.logit": lambda a: paddle.logit(a["self"], a["eps"])},
    "clamp": {"paddle.clip": numbers, "paddle.minimum(paddle.maximum)": nested},
    "clamp_min": {
        "paddle.clip": lambda a: numbers({"max": None, **a}),
        "paddle.maximum": lambda a: nested({"max": None, **a}),
    },
    "clamp_max": {
        "paddle.clip": lambda a: numbers({"min": None, **a}),
        "paddle.minimum": lambda a: nested({"min": None, **a}),
    },
    "maximum": {"paddle.maximum": lambda a: paddle.maximum(a["self"], a["other"])},
    "minimum": {"paddle.minimum": lambda a: paddle.minimum(a["self"], a["other"])},
    "fmax": {"paddle.fmax": lambda a: paddle.fmax(a["self"], a["other"])},
    "fmin": {"paddle.fmin": lambda a: paddle.fmin(a["self"], a["other"])},
    "hypot": {"paddle.hypot": lambda a: paddle.hypot(a["self"], a["other"])},
    "amax": {**AMAX, "paddle.max": lambda a: paddle.max(a["self"], reduced(a))},
    "amin": {**AMIN, "paddle.min": lambda a: paddle.min(a["self"], reduced(a))},
    "aminmax": AMIN,
    "max": {"paddle.max": lambda a: paddle.max(a["self"], reduced(a))},
    "min": {"paddle.min": lambda a: paddle.min(a["self"], reduced(a))},
    "median": {"paddle.median": lambda a: paddle.median(a["self"], reduced(a))},
    "nanmedian": {"paddle.nanmedian": lambda a: paddle.nanmedian(a["self"], reduced(a))},
    "kthvalue": {"paddle.kthvalue": lambda a: paddle.kthvalue(a["self"], a["k"], a["dim"])[0]},
    "sort": {"paddle.sort": lambda a: paddle.sort(a["self"], a["dim"], a["descending"])},
    "topk": {"paddle.topk": lambda a: paddle.topk(a["self"], a["k"], a["dim"], a["largest"])[0]},
    "cummax": {"paddle.cummax": lambda a: paddle.cummax(a["self"], a["dim"])[0]},
    "cummin": {"paddle.cummin": lambda a: paddle.cummin(a["self"], a["dim"])[0]},
    "scatter_reduce": {"paddle.put_along_axis": scattered},
    "segment_reduce": {"paddle.geometric.segment_max": lambda a: paddle.geometric.segment_max(a["data"], a["index"])},
    "max_pool2d": {"F.max_pool2d": pooled},
    "max_pool3d": {"F.max_pool3d": pooled},
    "adaptive_max_pool2d": {"F.adaptive_max_pool2d": adaptive},
    "adaptive_max_pool3d": {"F.adaptive_max_pool3d": adaptive},
    "linalg_vector_norm": NORM,
    "norm": NORM,
    "dist": {"paddle.dist": lambda a: paddle.dist(a["self"], a["other"], a["p"])},
    "cdist": {"paddle.cdist": lambda a: paddle.cdist(a["x1"], a["x2"], a["p"])},
    "pdist": {"paddle.pdist": lambda a: paddle.pdist(a["self"], a["p"])},
    "std": {"paddle.std": std},
    "std_mean": {"paddle.std": std},
    "renorm": {
        "paddle.renorm": lambda a: paddle.renorm(a["self"], float(a["p"]), a["dim"], float(a["maxnorm"])),
    },
    "multi_margin_loss": {
        "F.multi_margin_loss": lambda a: F.multi_margin_loss(
            a["self"], a["target"].astype("int64"), a["p"], a["margin"], reduction="none"
        )
    },
    # beyond the table
    "sqrt": {"paddle.sqrt": lambda a: paddle.sqrt(a["self"])},
    "sqrt(x * x)": {"paddle.sqrt": lambda a: paddle.sqrt(a["self"] * a["self"])},
    "sign": {"paddle.sign": lambda a: paddle.sign(a["self"])},
    "atan2": {"paddle.atan2": lambda a: paddle.atan2(a["self"], a["other"])},
    "logaddexp": {"paddle.logaddexp": lambda a: paddle.logaddexp(a["self"], a["other"])},
    "logsumexp": {"paddle.logsumexp": lambda a: paddle.logsumexp(a["self"])},
    "softplus": {"F.softplus": lambda a: F.softplus(a["self"])},
    "where(x > 0, sqrt(x), 0)": {
        "paddle.where": lambda a: paddle.where(a["self"] > 0, paddle.sqrt(a["self"]), paddle.zeros_like(a["self"]))
    },
    "relu(x) + log1p(exp(-abs(x)))": {
        "F.relu": lambda a: F.relu(a["self"]) + paddle.log1p(paddle.exp(-paddle.abs(a["self"])))
    },
    "relu(x) - relu(-x)": {"F.relu": lambda a: F.relu(a["self"]) - F.relu(-a["self"])},
    "abs(x) - abs(-x)": {"paddle.abs": lambda a: paddle.abs(a["self"]) - paddle.abs(-a["self"])},
    "huber_loss": {
        "F.smooth_l1_loss": lambda a: F.smooth_l1_loss(a["self"], paddle.zeros_like(a["self"]), reduction="none")
    },
    "linalg_eigvalsh": {"paddle.linalg.eigvalsh": lambda a: paddle.linalg.eigvalsh(a["A"])[-1]},
}

if __name__ == "__main__":
    main(Framework(paddle.__version__, paddle.to_tensor, reverse), SPELLINGS)
