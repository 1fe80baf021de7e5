"""JAX as a backend of the conformance pack: its own spelling of each operation. Run in an environment with JAX."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from report import report


def clamp(x: Any, low: Any, high: Any) -> Any:
    return jnp.clip(x, low, high)


OPERATORS: dict[str, Callable[..., Any]] = {
    "relu": lambda a: jax.nn.relu(a["self"]),
    "relu6": lambda a: jax.nn.relu6(a["self"]),
    "hardtanh": lambda a: jnp.clip(a["self"], a["min_val"], a["max_val"]),
    "abs": lambda a: jnp.abs(a["self"]),
    "leaky_relu": lambda a: jax.nn.leaky_relu(a["self"], a["negative_slope"]),
    "elu": lambda a: _plain_elu(a),
    "celu": lambda a: jax.nn.celu(a["self"], a["alpha"]),
    "selu": lambda a: jax.nn.selu(a["self"]),
    "hardsigmoid": lambda a: jax.nn.hard_sigmoid(a["self"]),
    "hardswish": lambda a: jax.nn.hard_silu(a["self"]),
    "softshrink": lambda a: jnp.where(
        a["self"] > a["lambd"], a["self"] - a["lambd"], jnp.where(a["self"] < -a["lambd"], a["self"] + a["lambd"], 0)
    ),
    "clamp": lambda a: clamp(a["self"], a["min"], a["max"]),
    "clamp_min": lambda a: clamp(a["self"], a["min"], None),
    "clamp_max": lambda a: clamp(a["self"], None, a["max"]),
    "maximum": lambda a: jnp.maximum(a["self"], a["other"]),
    "minimum": lambda a: jnp.minimum(a["self"], a["other"]),
    "fmax": lambda a: jnp.fmax(a["self"], a["other"]),
    "fmin": lambda a: jnp.fmin(a["self"], a["other"]),
    "copysign": lambda a: jnp.copysign(a["self"], a["other"]),
    "hypot": lambda a: jnp.hypot(a["self"], a["other"]),
    "special_i0e": lambda a: jax.scipy.special.i0e(a["self"]),
    "amax": lambda a: jnp.amax(a["self"], tuple(a["dim"]) or None),
    "amin": lambda a: jnp.amin(a["self"], tuple(a["dim"]) or None),
    "max": lambda a: jnp.max(a["self"], a.get("dim")),
    "min": lambda a: jnp.min(a["self"], a.get("dim")),
    "sort": lambda a: _descending(a, jnp.sort(a["self"], a["dim"])),
    "cummax": lambda a: jax.lax.cummax(a["self"], a["dim"]),
    "cummin": lambda a: jax.lax.cummin(a["self"], a["dim"]),
    "linalg_vector_norm": lambda a: jnp.linalg.norm(a["self"], a["ord"]),
    "std": lambda a: jnp.std(a["self"], ddof=a["correction"]),
}


def _plain_elu(a: Any) -> Any:
    if (a["scale"], a["input_scale"]) != (1, 1):
        raise NotImplementedError
    return jax.nn.elu(a["self"], a["alpha"])


def _descending(a: Any, out: Any) -> Any:
    return jnp.flip(out, a["dim"]) if a["descending"] else out


def run(case: Any) -> tuple[Any, dict[str, Any]]:
    if case.operator not in OPERATORS:
        raise NotImplementedError
    arguments = {
        name: jnp.asarray(value) if name in case.tensors and value is not None else value
        for name, value in case.arguments.items()
    }

    def call(tensors: dict[str, Any]) -> Any:
        return OPERATORS[case.operator]({**arguments, **tensors})

    value, pull = jax.vjp(call, {name: arguments[name] for name in case.differentiated})
    return value, pull(jnp.asarray(case.cotangent, value.dtype))[0]


report("JAX", jax.__version__, run, "torch-2.14")
