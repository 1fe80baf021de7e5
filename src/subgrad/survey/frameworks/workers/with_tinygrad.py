"""tinygrad, as its users would write it; it has no forward mode. Run in an environment with tinygrad."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import numpy as np
from cases import Framework, axis, main, only_if, power, reduced
from tinygrad import Tensor


def reverse(call: Callable[..., Any], leaves: dict[str, Any], cotangent: np.ndarray) -> tuple[Any, dict[str, Any]]:
    value = call(**leaves)
    found = value.gradient(*leaves.values(), gradient=Tensor(cotangent))
    # Constants are made where they are realised, and elsewhere a compiler would be asked for.
    return _numpy(value), {name: _numpy(each) for name, each in zip(leaves, found, strict=True)}


def _numpy(tensor: Tensor) -> np.ndarray:
    return tensor.contiguous().realize().numpy()


def elu(a: Any) -> Any:
    only_if((a["scale"], a["input_scale"]) == (1, 1))
    return a["self"].elu(a["alpha"])


def pooled(a: Any) -> Any:
    only_if(len(a["kernel_size"]) == 2)
    window = tuple(a["kernel_size"])
    return a["self"].max_pool2d(window, tuple(a["stride"]) or None, padding=a["padding"][0])


def scattered(a: Any) -> Any:
    return a["self"].scatter_reduce(a["dim"], a["index"], a["src"], a["reduce"], a["include_self"])


def norm(a: Any) -> Any:
    only_if(power(a) == 2)
    return a["self"].square().sum(axis(a)).sqrt()


MAX = {"x.max": lambda a: a["self"].max(reduced(a))}
MIN = {"x.min": lambda a: a["self"].min(reduced(a))}
STD = {"x.std": lambda a: a["self"].std(correction=a["correction"])}
SPELLINGS: dict[str, dict[str, Callable[[Any], Any]]] = {
    "relu": {"x.relu": lambda a: a["self"].relu(), "x.maximum(0)": lambda a: a["self"].maximum(0)},
    "relu6": {"x.relu6": lambda a: a["self"].relu6()},
    "hardtanh": {"x.hardtanh": lambda a: a["self"].hardtanh(a["min_val"], a["max_val"])},
    "abs": {"x.abs": lambda a: a["self"].abs()},
    "leaky_relu": {"x.leaky_relu": lambda a: a["self"].leaky_relu(a["negative_slope"])},
    "elu": {"x.elu": elu},
    "celu": {"x.celu": lambda a: a["self"].celu(a["alpha"])},
    "selu": {"x.selu": lambda a: a["self"].selu()},
    "copysign": {"x.copysign": lambda a: a["self"].copysign(a["other"])},
    "hardsigmoid": {"x.hardsigmoid": lambda a: a["self"].hardsigmoid()},
    "hardswish": {"x.hardswish": lambda a: a["self"].hardswish()},
    "clamp": {"x.clamp": lambda a: a["self"].clamp(a["min"], a["max"])},
    "clamp_min": {"x.clamp": lambda a: a["self"].clamp(a["min"])},
    "clamp_max": {"x.clamp": lambda a: a["self"].clamp(max_=a["max"])},
    "maximum": {"x.maximum": lambda a: a["self"].maximum(a["other"])},
    "minimum": {"x.minimum": lambda a: a["self"].minimum(a["other"])},
    "amax": MAX,
    "amin": MIN,
    "aminmax": MIN,
    "max": MAX,
    "min": MIN,
    "sort": {"x.sort": lambda a: a["self"].sort(a["dim"], a["descending"])[0]},
    "topk": {"x.topk": lambda a: a["self"].topk(a["k"], a["dim"], a["largest"])[0]},
    "cummax": {"x.cummax": lambda a: a["self"].cummax(a["dim"])[0]},
    "cummin": {"x.cummin": lambda a: a["self"].cummin(a["dim"])[0]},
    "scatter_reduce": {"x.scatter_reduce": scattered},
    "max_pool2d": {"x.max_pool2d": pooled},
    "linalg_vector_norm": {"x.square().sum().sqrt()": norm},
    "norm": {"x.square().sum().sqrt()": norm},
    "std": STD,
    "std_mean": STD,
    # beyond the table
    "sqrt": {"x.sqrt": lambda a: a["self"].sqrt()},
    "sign": {"x.sign": lambda a: a["self"].sign()},
    "logsumexp": {"x.logsumexp": lambda a: a["self"].logsumexp()},
    "softplus": {"x.softplus": lambda a: a["self"].softplus()},
    "where(x > 0, sqrt(x), 0)": {"x.where": lambda a: (a["self"] > 0).where(a["self"].sqrt(), 0)},
    "relu(x) - relu(-x)": {"x.relu": lambda a: a["self"].relu() - (-a["self"]).relu()},
    "abs(x) - abs(-x)": {"x.abs": lambda a: a["self"].abs() - (-a["self"]).abs()},
}

if __name__ == "__main__":
    main(Framework(version("tinygrad"), Tensor, reverse), SPELLINGS)
