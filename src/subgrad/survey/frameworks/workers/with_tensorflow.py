"""TensorFlow and its Keras, as their users would write them. Run in an environment with TensorFlow."""

from __future__ import annotations

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # before the import: it greets on standard error

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from cases import Framework, axis, main, only_if, power, reduced
from keras import activations, ops


def reverse(call: Callable[..., Any], leaves: dict[str, Any], cotangent: np.ndarray) -> tuple[Any, dict[str, Any]]:
    with tf.GradientTape() as tape:
        for each in leaves.values():
            tape.watch(each)
        value = call(**leaves)
    zero = tf.UnconnectedGradients.ZERO
    found = tape.gradient(value, leaves, output_gradients=tf.constant(cotangent), unconnected_gradients=zero)
    return value, {name: tf.convert_to_tensor(each) for name, each in found.items()}


def forward(call: Callable[..., Any], leaves: dict[str, Any], tangents: dict[str, Any]) -> Any:
    with tf.autodiff.ForwardAccumulator(list(leaves.values()), [tangents[name] for name in leaves]) as accumulator:
        value = call(**leaves)
    return accumulator.jvp(value, unconnected_gradients=tf.UnconnectedGradients.ZERO)


def elu(a: Any) -> Any:
    only_if((a["alpha"], a["scale"], a["input_scale"]) == (1, 1, 1))
    return tf.nn.elu(a["self"])


def keras_elu(a: Any) -> Any:
    only_if((a["scale"], a["input_scale"]) == (1, 1))
    return activations.elu(a["self"], a["alpha"])


def prelu(a: Any) -> Any:
    layer = keras.layers.PReLU(alpha_initializer=lambda shape, dtype=None: tf.reshape(a["weight"], shape))
    return tf.reshape(layer(tf.reshape(a["self"], (1, -1))), a["self"].shape)


def clip_by_value(a: Any) -> Any:
    only_if(a["min"] is not None and a["max"] is not None)
    return tf.clip_by_value(a["self"], a["min"], a["max"])


def keras_clip(a: Any) -> Any:
    only_if(a["min"] is not None and a["max"] is not None)
    return ops.clip(a["self"], a["min"], a["max"])


def nested(a: Any) -> Any:
    x = a["self"] if a["min"] is None else tf.maximum(a["self"], a["min"])
    return x if a["max"] is None else tf.minimum(x, a["max"])


def keras_hard_tanh(a: Any) -> Any:
    only_if((a["min_val"], a["max_val"]) == (-1, 1))
    return activations.hard_tanh(a["self"])


def smallest_k(a: Any) -> Any:
    sign = 1 if a["largest"] else -1
    return sign * tf.math.top_k(sign * a["self"], a["k"]).values


def descending(a: Any) -> Any:
    return tf.sort(a["self"], axis=a["dim"], direction="DESCENDING" if a["descending"] else "ASCENDING")


def scattered(a: Any) -> Any:
    only_if(a["reduce"] == "amax" and a["include_self"])
    source = a["src"] if "src" in a else a["source"]
    return tf.tensor_scatter_nd_max(a["self"], a["index"][:, None], source)


def pooled(a: Any) -> Any:
    window, lead = a["kernel_size"], len(a["self"].shape) - len(a["kernel_size"])
    padding = a["padding"] * (len(window) if len(a["padding"]) == 1 else 1)
    around = [(0, 0)] * lead + [(each, each) for each in padding]
    x = tf.pad(a["self"], around, constant_values=-np.inf)[..., None]  # channels come last, and one is enough
    pool = tf.nn.max_pool2d if len(window) == 2 else tf.nn.max_pool3d
    return pool(x, window, a["stride"] or window, "VALID")[..., 0]


def norm(a: Any) -> Any:
    return tf.norm(a["self"], power(a), axis(a))


def upper_pairs(a: Any) -> Any:
    one, other = np.triu_indices(a["self"].shape[0], 1)
    return tf.norm(tf.gather(a["self"], one) - tf.gather(a["self"], other), a["p"], axis=-1)


NORM = {"tf.norm": norm, "keras.ops.norm": lambda a: ops.norm(a["self"], power(a), axis(a))}
STD = {"tf.math.reduce_std": lambda a: tf.math.reduce_std(a["self"]), "keras.ops.std": lambda a: ops.std(a["self"])}
MAX = {
    "tf.reduce_max": lambda a: tf.reduce_max(a["self"], reduced(a)),
    "keras.ops.max": lambda a: ops.max(a["self"], reduced(a)),
}
MIN = {"tf.reduce_min": lambda a: tf.reduce_min(a["self"], reduced(a))}
SPELLINGS: dict[str, dict[str, Callable[[Any], Any]]] = {
    "relu": {
        "tf.nn.relu": lambda a: tf.nn.relu(a["self"]),
        "tf.maximum(x, 0)": lambda a: tf.maximum(a["self"], 0.0),
        "tf.maximum(0, x)": lambda a: tf.maximum(0.0, a["self"]),
        "keras.activations.relu": lambda a: activations.relu(a["self"]),
    },
    "relu6": {
        "tf.nn.relu6": lambda a: tf.nn.relu6(a["self"]),
        "keras.activations.relu6": lambda a: activations.relu6(a["self"]),
    },
    "hardtanh": {
        "tf.clip_by_value": lambda a: tf.clip_by_value(a["self"], a["min_val"], a["max_val"]),
        "keras.activations.hard_tanh": keras_hard_tanh,
    },
    "abs": {"tf.abs": lambda a: tf.abs(a["self"])},
    "leaky_relu": {
        "tf.nn.leaky_relu": lambda a: tf.nn.leaky_relu(a["self"], a["negative_slope"]),
        "keras.activations.leaky_relu": lambda a: activations.leaky_relu(a["self"], a["negative_slope"]),
    },
    "prelu": {"keras.layers.PReLU": prelu},
    "rrelu": {"tf.nn.leaky_relu": lambda a: tf.nn.leaky_relu(a["self"], (a["lower"] + a["upper"]) / 2)},
    "elu": {"tf.nn.elu": elu, "keras.activations.elu": keras_elu},
    "celu": {"keras.activations.celu": lambda a: activations.celu(a["self"], a["alpha"])},
    "selu": {
        "tf.nn.selu": lambda a: tf.nn.selu(a["self"]),
        "keras.activations.selu": lambda a: activations.selu(a["self"]),
    },
    "special_i0e": {"tf.math.bessel_i0e": lambda a: tf.math.bessel_i0e(a["self"])},
    "hardsigmoid": {"keras.activations.hard_sigmoid": lambda a: activations.hard_sigmoid(a["self"])},
    "hardswish": {"keras.activations.hard_swish": lambda a: activations.hard_swish(a["self"])},
    "softshrink": {"keras.activations.soft_shrink": lambda a: activations.soft_shrink(a["self"], a["lambd"])},
    "threshold": {
        "keras.activations.threshold": lambda a: activations.threshold(a["self"], a["threshold"], a["value"])
    },
    "clamp": {"tf.clip_by_value": clip_by_value, "tf.minimum(tf.maximum)": nested, "keras.ops.clip": keras_clip},
    "clamp_min": {"tf.maximum": lambda a: tf.maximum(a["self"], a["min"])},
    "clamp_max": {"tf.minimum": lambda a: tf.minimum(a["self"], a["max"])},
    "maximum": {
        "tf.maximum": lambda a: tf.maximum(a["self"], a["other"]),
        "keras.ops.maximum": lambda a: ops.maximum(a["self"], a["other"]),
    },
    "minimum": {
        "tf.minimum": lambda a: tf.minimum(a["self"], a["other"]),
        "keras.ops.minimum": lambda a: ops.minimum(a["self"], a["other"]),
    },
    "hypot": {"keras.ops.hypot": lambda a: ops.hypot(a["self"], a["other"])},
    "amax": MAX,
    "amin": MIN,
    "aminmax": MIN,
    "max": MAX,
    "min": MIN,
    "median": {"keras.ops.median": lambda a: ops.median(a["self"], reduced(a))},
    "kthvalue": {"tf.sort(x)[k - 1]": lambda a: tf.sort(a["self"])[a["k"] - 1]},
    "sort": {"tf.sort": descending},
    "topk": {"tf.math.top_k": smallest_k},
    "scatter_reduce": {"tf.tensor_scatter_nd_max": scattered},
    "index_reduce": {"tf.tensor_scatter_nd_max": scattered},
    "segment_reduce": {"tf.math.segment_max": lambda a: tf.math.segment_max(a["data"], a["index"])},
    "max_pool2d": {"tf.nn.max_pool2d": pooled},
    "max_pool3d": {"tf.nn.max_pool3d": pooled},
    "linalg_vector_norm": NORM,
    "norm": NORM,
    "dist": {"tf.norm(x - y)": lambda a: tf.norm(a["self"] - a["other"], a["p"])},
    "cdist": {"tf.norm(x - y)": lambda a: tf.norm(a["x1"][:, None] - a["x2"], a["p"], axis=-1)},
    "pdist": {"tf.norm(x - y)": upper_pairs},
    "std": STD,
    "std_mean": STD,
    # beyond the table
    "sqrt": {"tf.sqrt": lambda a: tf.sqrt(a["self"])},
    "sqrt(x * x)": {"tf.sqrt": lambda a: tf.sqrt(a["self"] * a["self"])},
    "sign": {"tf.sign": lambda a: tf.sign(a["self"])},
    "atan2": {"tf.atan2": lambda a: tf.atan2(a["self"], a["other"])},
    "logaddexp": {"keras.ops.logaddexp": lambda a: ops.logaddexp(a["self"], a["other"])},
    "logsumexp": {"tf.reduce_logsumexp": lambda a: tf.reduce_logsumexp(a["self"])},
    "softplus": {"tf.nn.softplus": lambda a: tf.nn.softplus(a["self"])},
    "where(x > 0, sqrt(x), 0)": {"tf.where": lambda a: tf.where(a["self"] > 0, tf.sqrt(a["self"]), 0.0)},
    "maximum(x, 0) + log1p(exp(-abs(x)))": {
        "tf": lambda a: tf.maximum(a["self"], 0.0) + tf.math.log1p(tf.exp(-tf.abs(a["self"])))
    },
    "relu(x) + log1p(exp(-abs(x)))": {
        "tf.nn": lambda a: tf.nn.relu(a["self"]) + tf.math.log1p(tf.exp(-tf.abs(a["self"])))
    },
    "relu(x) - relu(-x)": {"tf.nn.relu": lambda a: tf.nn.relu(a["self"]) - tf.nn.relu(-a["self"])},
    "maximum(x, 0) + minimum(x, 0)": {"tf": lambda a: tf.maximum(a["self"], 0.0) + tf.minimum(a["self"], 0.0)},
    "maximum(maximum(x, 0), 0) - maximum(x, 0)": {
        "tf.maximum": lambda a: tf.maximum(tf.maximum(a["self"], 0.0), 0.0) - tf.maximum(a["self"], 0.0)
    },
    "abs(x) - abs(-x)": {"tf.abs": lambda a: tf.abs(a["self"]) - tf.abs(-a["self"])},
    "huber_loss": {
        "keras.losses.huber": lambda a: keras.losses.huber(tf.zeros_like(a["self"])[..., None], a["self"][..., None])
    },
    "hinge_loss": {
        "keras.losses.hinge": lambda a: keras.losses.hinge(tf.ones_like(a["self"])[..., None], a["self"][..., None])
    },
    "binary cross-entropy, relu(x) - x z + log1p(exp(-abs(x)))": {
        "tf.nn": lambda a: tf.nn.relu(a["self"]) - 0.0 * a["self"] + tf.math.log1p(tf.exp(-tf.abs(a["self"])))
    },
    "binary cross-entropy": {
        "tf.nn.sigmoid_cross_entropy_with_logits": lambda a: tf.nn.sigmoid_cross_entropy_with_logits(
            tf.zeros_like(a["self"]), a["self"]
        )
    },
    "linalg_eigvalsh": {"tf.linalg.eigvalsh": lambda a: tf.linalg.eigvalsh(a["A"])[-1]},
}

if __name__ == "__main__":
    main(Framework(tf.__version__, tf.constant, reverse, forward), SPELLINGS)
