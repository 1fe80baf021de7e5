"""HIPS autograd, as its users would write it. Run in an environment with autograd."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import autograd.numpy as np
import autograd.scipy.special
import numpy
from autograd.core import make_vjp
from autograd.differential_operators import make_jvp
from cases import Framework, axis, main, power, reduced


def reverse(call: Callable[..., Any], leaves: dict[str, Any], cotangent: numpy.ndarray) -> tuple[Any, dict[str, Any]]:
    found = {}
    for name in leaves:
        pull, value = make_vjp(lambda x, name=name: call(**{**leaves, name: x}), leaves[name])
        found[name] = pull(numpy.asarray(cotangent, numpy.asarray(value).dtype))
    return value, found


def forward(call: Callable[..., Any], leaves: dict[str, Any], tangents: dict[str, Any]) -> Any:
    found = [
        make_jvp(lambda x, name=name: call(**{**leaves, name: x}))(leaves[name])(tangents[name])[1] for name in leaves
    ]
    return sum(found[1:], found[0])


def nested(a: Any) -> Any:
    x = a["self"] if a["min"] is None else np.maximum(a["self"], a["min"])
    return x if a["max"] is None else np.minimum(x, a["max"])


def clip(a: Any) -> Any:
    return np.clip(a["self"], a["min"], a["max"])


MAX = {"np.max": lambda a: np.max(a["self"], reduced(a))}
MIN = {"np.min": lambda a: np.min(a["self"], reduced(a))}
NORM = {"np.linalg.norm": lambda a: np.linalg.norm(a["self"], power(a), axis(a))}
STD = {"np.std": lambda a: np.std(a["self"], ddof=a["correction"])}
SPELLINGS: dict[str, dict[str, Callable[[Any], Any]]] = {
    "relu": {"np.maximum(x, 0)": lambda a: np.maximum(a["self"], 0)},
    "hardtanh": {"np.clip": lambda a: np.clip(a["self"], a["min_val"], a["max_val"])},
    "abs": {"np.abs": lambda a: np.abs(a["self"])},
    "logit": {
        "scipy.special.logit(np.clip)": lambda a: autograd.scipy.special.logit(
            np.clip(a["self"], a["eps"], 1 - a["eps"])
        )
    },
    "clamp": {"np.clip": clip, "np.minimum(np.maximum)": nested},
    "clamp_min": {"np.maximum": lambda a: np.maximum(a["self"], a["min"])},
    "clamp_max": {"np.minimum": lambda a: np.minimum(a["self"], a["max"])},
    "maximum": {"np.maximum": lambda a: np.maximum(a["self"], a["other"])},
    "minimum": {"np.minimum": lambda a: np.minimum(a["self"], a["other"])},
    "fmax": {"np.fmax": lambda a: np.fmax(a["self"], a["other"])},
    "fmin": {"np.fmin": lambda a: np.fmin(a["self"], a["other"])},
    "amax": MAX,
    "amin": MIN,
    "aminmax": MIN,
    "max": MAX,
    "min": MIN,
    "kthvalue": {"np.sort(x)[k - 1]": lambda a: np.sort(a["self"])[a["k"] - 1]},
    "sort": {"np.sort": lambda a: np.sort(a["self"])[:: -1 if a["descending"] else 1]},
    "linalg_vector_norm": NORM,
    "norm": NORM,
    "dist": {"np.linalg.norm(x - y)": lambda a: np.linalg.norm(a["self"] - a["other"], a["p"])},
    "cdist": {
        "np.linalg.norm(x - y)": lambda a: np.linalg.norm(a["x1"][:, None] - a["x2"], a["p"], axis=-1),
    },
    "std": STD,
    "std_mean": STD,
    # beyond the table
    "sqrt": {"np.sqrt": lambda a: np.sqrt(a["self"])},
    "sqrt(x * x)": {"np.sqrt": lambda a: np.sqrt(a["self"] * a["self"])},
    "sign": {"np.sign": lambda a: np.sign(a["self"])},
    "atan2": {"np.arctan2": lambda a: np.arctan2(a["self"], a["other"])},
    "logaddexp": {"np.logaddexp": lambda a: np.logaddexp(a["self"], a["other"])},
    "logsumexp": {"scipy.special.logsumexp": lambda a: autograd.scipy.special.logsumexp(a["self"])},
    "where(x > 0, sqrt(x), 0)": {"np.where": lambda a: np.where(a["self"] > 0, np.sqrt(a["self"]), 0)},
    "maximum(x, 0) + log1p(exp(-abs(x)))": {
        "np": lambda a: np.maximum(a["self"], 0) + np.log1p(np.exp(-np.abs(a["self"])))
    },
    "maximum(x, 0) + minimum(x, 0)": {"np": lambda a: np.maximum(a["self"], 0) + np.minimum(a["self"], 0)},
    "maximum(maximum(x, 0), 0) - maximum(x, 0)": {
        "np.maximum": lambda a: np.maximum(np.maximum(a["self"], 0), 0) - np.maximum(a["self"], 0)
    },
    "abs(x) - abs(-x)": {"np.abs": lambda a: np.abs(a["self"]) - np.abs(-a["self"])},
    "linalg_eigvalsh": {"np.linalg.eigh": lambda a: np.linalg.eigh(a["A"])[0][-1]},
}

if __name__ == "__main__":
    numpy.seterr(all="ignore")
    main(Framework(version("autograd"), numpy.asarray, reverse, forward), SPELLINGS)
