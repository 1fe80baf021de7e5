"""Train a small model in JAX for ten steps, on kinks at each of them, and print weights and gradients as JSON.

Run by scripts/record_frameworks.py in an environment with JAX. `tests/test_port.py` has the same model in torch. Data
are integers and weights are kept on a grid of sixteenths, as in quantised training, so that entries lie on kinks all
the time.
"""

from __future__ import annotations

import json

import jax
import jax.numpy as jnp
import numpy as np

STEPS, RATE, GRID = 10, 1 / 64, 16


def start() -> tuple[dict[str, np.ndarray], np.ndarray, np.ndarray]:
    generator = np.random.default_rng(0)
    weights = {
        "first": generator.integers(-1, 2, (4, 6)).astype(np.float64),
        "second": generator.integers(-1, 2, (6, 1)).astype(np.float64),
        "shift": np.zeros(6),
    }
    return weights, generator.integers(-2, 3, (16, 4)).astype(np.float64), generator.integers(-4, 5, 16) * 1.0


def loss(weights: dict[str, jax.Array], x: jax.Array, target: jax.Array) -> jax.Array:
    hidden = jax.nn.leaky_relu(x @ jnp.clip(weights["first"], -1, 1) + weights["shift"], 0.25)
    bounded = jnp.clip(hidden, -2, 2)
    larger = jnp.maximum(bounded, 1 - jnp.abs(hidden))
    best = jnp.max(larger, axis=1)
    lengths = jnp.linalg.norm(larger - 1, 1, axis=1) + jnp.linalg.norm(larger, jnp.inf, axis=1)
    found = (larger @ weights["second"])[:, 0] + best + 0.125 * lengths
    return jnp.mean((found - target) ** 2)


def main() -> None:
    jax.config.update("jax_enable_x64", True)
    weights, x, target = start()
    given = {name: each.tolist() for name, each in weights.items()}
    steps = []
    for _ in range(STEPS):
        value, found = jax.value_and_grad(loss)(weights, x, target)
        steps.append({"loss": float(value), "gradients": {name: each.tolist() for name, each in found.items()}})
        weights = {name: np.round(GRID * (weights[name] - RATE * np.asarray(found[name]))) / GRID for name in weights}
    record = {"version": jax.__version__, "rate": RATE, "grid": GRID, "x": x.tolist(), "target": target.tolist()}
    print(json.dumps({**record, "weights": given, "steps": steps}))


if __name__ == "__main__":
    main()
