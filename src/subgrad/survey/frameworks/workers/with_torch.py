"""torch, as its users would write it, and without subgrad."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from cases import Framework, axis, main, only_if, power, reduced


def reverse(call: Callable[..., Any], leaves: dict[str, Any], cotangent: np.ndarray) -> tuple[Any, dict[str, Any]]:
    leaves = {name: each.requires_grad_() for name, each in leaves.items()}
    value = call(**leaves)
    found = torch.autograd.grad(value, list(leaves.values()), torch.tensor(cotangent), materialize_grads=True)
    return value.detach(), dict(zip(leaves, found, strict=True))


def forward(call: Callable[..., Any], leaves: dict[str, Any], tangents: dict[str, Any]) -> Any:
    names = list(leaves)
    given = tuple(leaves.values()), tuple(tangents[name] for name in names)
    return torch.func.jvp(lambda *tensors: call(**dict(zip(names, tensors, strict=True))), *given)[1]


def nested(a: Any) -> Any:
    x = a["self"] if a["min"] is None else torch.maximum(a["self"], _tensor(a["min"]))
    return x if a["max"] is None else torch.minimum(x, _tensor(a["max"]))


def _tensor(given: Any) -> Any:
    return given if isinstance(given, torch.Tensor) else torch.tensor(float(given))


def elu(a: Any) -> Any:
    only_if((a["scale"], a["input_scale"]) == (1, 1))
    return F.elu(a["self"], a["alpha"])


def pooled(a: Any) -> Any:
    pool = F.max_pool2d if len(a["kernel_size"]) == 2 else F.max_pool3d
    return pool(a["self"][None], a["kernel_size"], a["stride"] or None, a["padding"])[0]


def adaptive(a: Any) -> Any:
    pool = F.adaptive_max_pool2d if len(a["output_size"]) == 2 else F.adaptive_max_pool3d
    return pool(a["self"][None], a["output_size"])[0]


def segments(a: Any) -> Any:
    return torch.zeros(2).scatter_reduce(0, a["index"].long(), a["data"], "amax", include_self=False)


NORM = {"torch.linalg.vector_norm": lambda a: torch.linalg.vector_norm(a["self"], power(a), axis(a))}
STD = {"torch.std": lambda a: torch.std(a["self"], correction=a["correction"])}
SPELLINGS: dict[str, dict[str, Callable[[Any], Any]]] = {
    "relu": {
        "F.relu": lambda a: F.relu(a["self"]),
        "torch.clamp(x, min=0)": lambda a: torch.clamp(a["self"], min=0),
        "torch.maximum(x, 0)": lambda a: torch.maximum(a["self"], torch.tensor(0.0)),
    },
    "relu6": {"F.relu6": lambda a: F.relu6(a["self"]), "torch.clamp": lambda a: torch.clamp(a["self"], 0, 6)},
    "hardtanh": {
        "F.hardtanh": lambda a: F.hardtanh(a["self"], a["min_val"], a["max_val"]),
        "torch.clamp": lambda a: torch.clamp(a["self"], a["min_val"], a["max_val"]),
    },
    "abs": {"torch.abs": lambda a: torch.abs(a["self"])},
    "leaky_relu": {"F.leaky_relu": lambda a: F.leaky_relu(a["self"], a["negative_slope"])},
    "prelu": {"F.prelu": lambda a: F.prelu(a["self"][None], a["weight"])[0]},
    "rrelu": {"F.rrelu": lambda a: F.rrelu(a["self"], a["lower"], a["upper"])},
    "elu": {"F.elu": elu},
    "celu": {"F.celu": lambda a: F.celu(a["self"], a["alpha"])},
    "selu": {"F.selu": lambda a: F.selu(a["self"])},
    "special_i0e": {"torch.special.i0e": lambda a: torch.special.i0e(a["self"])},
    "copysign": {"torch.copysign": lambda a: torch.copysign(a["self"], a["other"])},
    "hardsigmoid": {"F.hardsigmoid": lambda a: F.hardsigmoid(a["self"])},
    "hardswish": {"F.hardswish": lambda a: F.hardswish(a["self"])},
    "softshrink": {"F.softshrink": lambda a: F.softshrink(a["self"], a["lambd"])},
    "threshold": {"F.threshold": lambda a: F.threshold(a["self"], a["threshold"], a["value"])},
    "logit": {"torch.logit": lambda a: torch.logit(a["self"], a["eps"])},
    "clamp": {
        "torch.clamp": lambda a: torch.clamp(a["self"], a["min"], a["max"]),
        "torch.minimum(torch.maximum)": nested,
    },
    "clamp_min": {
        "torch.clamp": lambda a: torch.clamp(a["self"], min=a["min"]),
        "torch.maximum": lambda a: nested({"max": None, **a}),
    },
    "clamp_max": {
        "torch.clamp": lambda a: torch.clamp(a["self"], max=a["max"]),
        "torch.minimum": lambda a: nested({"min": None, **a}),
    },
    "maximum": {
        "torch.maximum": lambda a: torch.maximum(a["self"], a["other"]),
        "torch.where(x > y, x, y)": lambda a: torch.where(a["self"] > a["other"], a["self"], a["other"]),
    },
    "minimum": {"torch.minimum": lambda a: torch.minimum(a["self"], a["other"])},
    "fmax": {"torch.fmax": lambda a: torch.fmax(a["self"], a["other"])},
    "fmin": {"torch.fmin": lambda a: torch.fmin(a["self"], a["other"])},
    "hypot": {
        "torch.hypot": lambda a: torch.hypot(a["self"], a["other"]),
        "torch.sqrt(x * x + y * y)": lambda a: torch.sqrt(a["self"] * a["self"] + a["other"] * a["other"]),
    },
    "amax": {"torch.amax": lambda a: torch.amax(a["self"], a["dim"])},
    "amin": {"torch.amin": lambda a: torch.amin(a["self"], a["dim"])},
    "aminmax": {"torch.aminmax": lambda a: torch.aminmax(a["self"], dim=a["dim"]).min},
    "max": {
        "torch.max": lambda a: torch.max(a["self"]) if reduced(a) is None else torch.max(a["self"], a["dim"]).values
    },
    "min": {
        "torch.min": lambda a: torch.min(a["self"]) if reduced(a) is None else torch.min(a["self"], a["dim"]).values
    },
    "median": {
        "torch.median": lambda a: (
            torch.median(a["self"]) if reduced(a) is None else torch.median(a["self"], a["dim"]).values
        )
    },
    "nanmedian": {
        "torch.nanmedian": lambda a: (
            torch.nanmedian(a["self"]) if reduced(a) is None else torch.nanmedian(a["self"], a["dim"]).values
        )
    },
    "kthvalue": {"torch.kthvalue": lambda a: torch.kthvalue(a["self"], a["k"], a["dim"]).values},
    "sort": {"torch.sort": lambda a: torch.sort(a["self"], dim=a["dim"], descending=a["descending"]).values},
    "topk": {"torch.topk": lambda a: torch.topk(a["self"], a["k"], a["dim"], a["largest"]).values},
    "cummax": {"torch.cummax": lambda a: torch.cummax(a["self"], a["dim"]).values},
    "cummin": {"torch.cummin": lambda a: torch.cummin(a["self"], a["dim"]).values},
    "scatter_reduce": {
        "x.scatter_reduce": lambda a: a["self"].scatter_reduce(a["dim"], a["index"].long(), a["src"], a["reduce"])
    },
    "index_reduce": {
        "x.index_reduce": lambda a: a["self"].index_reduce(a["dim"], a["index"].long(), a["source"], a["reduce"])
    },
    "segment_reduce": {"x.scatter_reduce": segments},
    "max_pool2d": {"F.max_pool2d": pooled},
    "max_pool3d": {"F.max_pool3d": pooled},
    "adaptive_max_pool2d": {"F.adaptive_max_pool2d": adaptive},
    "adaptive_max_pool3d": {"F.adaptive_max_pool3d": adaptive},
    "linalg_vector_norm": NORM,
    "norm": {"torch.norm": lambda a: torch.norm(a["self"], a["p"])},
    "dist": {"torch.dist": lambda a: torch.dist(a["self"], a["other"], a["p"])},
    "cdist": {"torch.cdist": lambda a: torch.cdist(a["x1"], a["x2"], a["p"])},
    "pdist": {"F.pdist": lambda a: F.pdist(a["self"], a["p"])},
    "std": STD,
    "std_mean": STD,
    "renorm": {"torch.renorm": lambda a: torch.renorm(a["self"], a["p"], a["dim"], a["maxnorm"])},
    "multi_margin_loss": {
        "F.multi_margin_loss": lambda a: F.multi_margin_loss(a["self"], a["target"].long(), reduction="none")
    },
    # beyond the table
    "sqrt": {"torch.sqrt": lambda a: torch.sqrt(a["self"])},
    "sqrt(x * x)": {"torch.sqrt": lambda a: torch.sqrt(a["self"] * a["self"])},
    "sign": {"torch.sign": lambda a: torch.sign(a["self"])},
    "atan2": {"torch.atan2": lambda a: torch.atan2(a["self"], a["other"])},
    "logaddexp": {"torch.logaddexp": lambda a: torch.logaddexp(a["self"], a["other"])},
    "logsumexp": {"torch.logsumexp": lambda a: torch.logsumexp(a["self"], 0)},
    "softplus": {"F.softplus": lambda a: F.softplus(a["self"])},
    "where(x > 0, sqrt(x), 0)": {"torch.where": lambda a: torch.where(a["self"] > 0, torch.sqrt(a["self"]), 0.0)},
    "maximum(x, 0) + log1p(exp(-abs(x)))": {
        "torch": lambda a: torch.maximum(a["self"], torch.tensor(0.0)) + torch.log1p(torch.exp(-torch.abs(a["self"])))
    },
    "relu(x) + log1p(exp(-abs(x)))": {
        "F.relu": lambda a: F.relu(a["self"]) + torch.log1p(torch.exp(-torch.abs(a["self"])))
    },
    "relu(x) - relu(-x)": {"F.relu": lambda a: F.relu(a["self"]) - F.relu(-a["self"])},
    "maximum(x, 0) + minimum(x, 0)": {
        "torch": lambda a: torch.maximum(a["self"], torch.tensor(0.0)) + torch.minimum(a["self"], torch.tensor(0.0))
    },
    "abs(x) - abs(-x)": {"torch.abs": lambda a: torch.abs(a["self"]) - torch.abs(-a["self"])},
    "huber_loss": {
        "F.huber_loss": lambda a: F.huber_loss(a["self"], torch.zeros_like(a["self"]), reduction="none"),
        "F.smooth_l1_loss": lambda a: F.smooth_l1_loss(a["self"], torch.zeros_like(a["self"]), reduction="none"),
    },
    "binary cross-entropy": {
        "F.binary_cross_entropy_with_logits": lambda a: F.binary_cross_entropy_with_logits(
            a["self"], torch.zeros_like(a["self"]), reduction="none"
        )
    },
    "linalg_eigvalsh": {"torch.linalg.eigvalsh": lambda a: torch.linalg.eigvalsh(a["A"])[-1]},
    "matrix_norm('nuc')": {"torch.linalg.matrix_norm": lambda a: torch.linalg.matrix_norm(a["A"], "nuc")},
}

if __name__ == "__main__":
    main(Framework(torch.__version__.partition("+")[0], torch.tensor, reverse, forward), SPELLINGS)
