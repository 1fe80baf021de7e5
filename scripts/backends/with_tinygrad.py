"""tinygrad as a backend of the conformance pack. Run in an environment with tinygrad."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import version
from typing import Any

from report import report
from tinygrad import Tensor

OPERATORS: dict[str, Callable[..., Any]] = {
    "relu": lambda a: a["self"].relu(),
    "relu6": lambda a: a["self"].relu6(),
    "hardtanh": lambda a: a["self"].hardtanh(a["min_val"], a["max_val"]),
    "abs": lambda a: a["self"].abs(),
    "leaky_relu": lambda a: a["self"].leaky_relu(a["negative_slope"]),
    "elu": lambda a: _plain_elu(a),
    "celu": lambda a: a["self"].celu(a["alpha"]),
    "selu": lambda a: a["self"].selu(),
    "hardsigmoid": lambda a: a["self"].hardsigmoid(),
    "hardswish": lambda a: a["self"].hardswish(),
    "clamp": lambda a: a["self"].clamp(a["min"], a["max"]),
    "clamp_min": lambda a: a["self"].clamp(a["min"]),
    "clamp_max": lambda a: a["self"].clamp(max_=a["max"]),
    "maximum": lambda a: a["self"].maximum(a["other"]),
    "minimum": lambda a: a["self"].minimum(a["other"]),
    "copysign": lambda a: a["self"].copysign(a["other"]),
    "amax": lambda a: a["self"].max(tuple(a["dim"]) or None),
    "amin": lambda a: a["self"].min(tuple(a["dim"]) or None),
    "max": lambda a: a["self"].max(a.get("dim")),
    "min": lambda a: a["self"].min(a.get("dim")),
    "max_pool2d": lambda a: a["self"].max_pool2d(
        tuple(a["kernel_size"]), tuple(a["stride"]) or None, padding=a["padding"][0]
    ),
    "std": lambda a: a["self"].std(correction=a["correction"]),
}


def _plain_elu(a: Any) -> Any:
    if (a["scale"], a["input_scale"]) != (1, 1):
        raise NotImplementedError
    return a["self"].elu(a["alpha"])


def run(case: Any) -> tuple[Any, dict[str, Any]]:
    if case.operator not in OPERATORS:
        raise NotImplementedError
    arguments = {
        name: Tensor(value) if name in case.tensors and value is not None else value
        for name, value in case.arguments.items()
    }
    leaves = {name: arguments[name] for name in case.differentiated}
    value = OPERATORS[case.operator](arguments)
    gradients = value.gradient(*leaves.values(), gradient=Tensor(case.cotangent))
    return value.numpy(), {name: each.numpy() for name, each in zip(leaves, gradients, strict=True)}


report("tinygrad", version("tinygrad"), run, "torch-2.14")
