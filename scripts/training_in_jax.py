"""Ten steps of a small network in JAX; run by `port_from_jax.py` in an environment with JAX.

Weights and data are integers and steps are powers of two, so that sums are exact and kinks are hit at every step.
"""

import json
import sys

import jax
import jax.numpy as jnp

jax.config.update("jax_enable_x64", True)

given = json.load(sys.stdin)
data, targets = jnp.array(given["data"]), jnp.array(given["targets"])


def loss(weights):
    hidden = jnp.clip(data @ weights["first.weight"].T + weights["first.bias"], -2, 2)
    hidden = jax.nn.leaky_relu(hidden @ weights["second.weight"].T + weights["second.bias"], 0.25)
    out = jnp.maximum(hidden @ weights["third.weight"].T, targets)
    peaks = jnp.max(hidden, axis=1).mean() + jnp.linalg.norm(weights["third.weight"].ravel(), ord=jnp.inf) / 4
    return jnp.abs(out - targets).mean() + peaks + jnp.linalg.norm(weights["first.bias"], ord=1) / 8


weights = {name: jnp.array(value) for name, value in given["weights"].items()}
steps = []
for _ in range(given["steps"]):
    value, gradients = jax.value_and_grad(loss)(weights)
    steps.append({"loss": float(value), "gradients": {name: each.tolist() for name, each in gradients.items()}})
    weights = {name: weights[name] - given["rate"] * gradients[name] for name in weights}
json.dump({"version": jax.__version__, "steps": steps}, sys.stdout)
