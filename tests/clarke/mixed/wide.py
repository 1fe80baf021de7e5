"""Norms, pooling, sampling, spectra, layers: operations that look at all entries at once."""

from __future__ import annotations

from typing import Any

from clarke.mixed.table import Given, Operation, Vector, entrywise, mp, relu, sigmoid, softmax

LAYER = ((0.5, -1.0), (1.0, 0.5))  # the weights of all layers, two wide


def _norm(x: Vector) -> Any:
    return mp.sqrt(sum(each * each for each in x))


def _deviation(x: Vector) -> Any:
    mean = sum(x) / len(x)
    return mp.sqrt(sum((each - mean) ** 2 for each in x) / (len(x) - 1))


def _renormed(given: Given, x: Vector) -> Vector:
    """Where longer than 1; torch divides by a little more than the norm."""
    length = _norm(x)
    return [each / (length + mp.mpf(1e-7)) for each in x] if length > 1 else list(x)


def _symmetric(x: Vector) -> Any:
    return mp.matrix([[x[0], x[1]], [x[1], x[2]]])


def _spectrum(x: Vector) -> Vector:
    """Of a symmetric matrix of two rows, in ascending order."""
    middle, half = (x[0] + x[2]) / 2, (x[0] - x[2]) / 2
    root = mp.sqrt(half * half + x[1] * x[1])
    return [middle - root, middle + root]


def _of_matrix(function: Any) -> Any:
    """A function of a symmetric matrix, entry by entry, through its eigenvalues."""

    def exact(given: Given, x: Vector) -> Vector:
        low, high = _spectrum(x)
        is_multiple_of_one = high - low < mp.mpf(10) ** -30  # then only the constant is left
        slope = mp.mpf(0) if is_multiple_of_one else (function(high) - function(low)) / (high - low)
        constant = function(low) - slope * low
        return [constant + slope * x[0], slope * x[1], constant + slope * x[2]]

    return exact


def _singular(x: Vector) -> Vector:
    """Of a matrix of two rows, in descending order."""
    a, b, c, d = x
    total, product = a * a + b * b + c * c + d * d, a * d - b * c
    one, other = mp.sqrt(max(total + 2 * product, mp.mpf(0))), mp.sqrt(max(total - 2 * product, mp.mpf(0)))
    return [(one + other) / 2, abs(one - other) / 2]


def _normalised(x: Vector, biased: bool = True) -> Vector:
    mean = sum(x) / len(x)
    variance = sum((each - mean) ** 2 for each in x) / len(x)
    return [(each - mean) / mp.sqrt(variance + mp.mpf(0.5)) for each in x]


def _attention(given: Given, x: Vector, z: Vector) -> Vector:
    """Every entry a token of one number."""
    return [sum(w * each for w, each in zip(softmax([q * k for k in z]), z, strict=True)) for q in x]


def _recurrent(cell: Any) -> Any:
    def exact(given: Given, x: Vector) -> Vector:
        state = (mp.mpf(0), mp.mpf(0))
        out = []
        for each in x:
            state = cell(each, *state)
            out.append(state[0])
        return out

    return exact


def _lstm(x: Any, h: Any, c: Any) -> tuple[Any, Any]:
    i, f, g, o = (w * x + u * h for w, u in ((0.5, 1.0), (-1.0, 0.5), (1.0, -1.0), (2.0, 0.5)))
    c = sigmoid(f) * c + sigmoid(i) * mp.tanh(g)
    return sigmoid(o) * mp.tanh(c), c


def _gru(x: Any, h: Any, _: Any) -> tuple[Any, Any]:
    r, z = sigmoid(0.5 * x + h), sigmoid(-x + 0.5 * h)
    n = mp.tanh(x + r * -h)
    return (1 - z) * n + z * h, h


def _simple(activation: Any) -> Any:
    return lambda x, h, _: (activation(x - h), h)


RECURRENT: dict[str, tuple[Any, str]] = {
    "lstm": (_lstm, "[[0.5], [-1.0], [1.0], [2.0]], [[1.0], [0.5], [-1.0], [0.5]]"),
    "gru": (_gru, "[[0.5], [-1.0], [1.0]], [[1.0], [0.5], [-1.0]]"),
    "rnn_tanh": (_simple(mp.tanh), "[[1.0]], [[-1.0]]"),
    "rnn_relu": (_simple(relu), "[[1.0]], [[-1.0]]"),
}


def _spelled(name: str, weights: str) -> tuple[str, ...]:
    state = "(v, v)" if name == "lstm" else "v"
    start = f"w = [{{x}}.new_tensor(e) for e in ({weights})]\nv = {{x}}.new_zeros(1, 1, 1)\n"
    one = f"{{y}} = torch._VF.{name}({{x}}[:, None, None], {state}, w, False, 1, 0.0, False, False, False)[0][:, 0, 0]"
    many = f"{{y}} = torch._VF.{name}({{x}}[:, None], torch.ones(len({{x}}), dtype=int), {state}, w, False, 1, 0.0, "
    many += "False, False)[0][:, 0]"
    return start + one, start + many


WIDE: dict[str, Operation] = {
    "length": Operation(
        lambda given, x: [_norm(x)],
        (
            "{y} = {x}.norm()[None]",
            "{y} = torch.linalg.vector_norm({x}, keepdim=True)",
            "{y} = torch.ops.aten.norm.Scalar({x}, 2)[None]",
            "{y} = torch.ops.aten.norm.ScalarOpt_dim({x}, 2, [0], True)",
            "{y} = torch.dist({x}, torch.zeros_like({x}))[None]",
            "{y} = torch.cdist({x}[None], 0 * {x}[None], compute_mode='donot_use_mm_for_euclid_dist')[0]",
            "{y} = torch.cdist({x}[None], 0 * {x}[None], compute_mode='use_mm_for_euclid_dist')[0]",
            "{y} = F.pdist(torch.stack(({x}, 0 * {x})))",
            "{y} = F.pairwise_distance({x}[None], 0 * {x}[None], eps=0.0)",
            "m = ({x} * {x}).sum()\n{y} = torch.where(m > 0, torch.where(m > 0, m, 1.0).sqrt(), 0.0)[None]",
        ),
        narrowest=2,
        share=5,
    ),
    "distance": Operation(
        entrywise(lambda x, z: mp.sqrt(x * x + z * z)),
        (
            "{y} = torch.hypot({x}, {z})",
            "{y} = torch.complex({x}, {z}).abs()",
            "{y} = torch.stack(({x}, {z})).norm(dim=0)",
        ),
        arity=2,
        share=3,
    ),
    "deviation": Operation(
        lambda given, x: [_deviation(x)],
        ("{y} = {x}.std()[None]", "{y} = torch.std_mean({x}, 0, keepdim=True)[0]", "{y} = {x}.std(0, True, True)"),
        narrowest=2,
        share=4,
    ),
    "renormed": Operation(  # at a length of 1 torch jumps, by 1e-7
        _renormed,
        ("{y} = torch.renorm({x}[None], 2, 0, 1.0)[0]",),
        narrowest=2,
        suits=lambda given, x: abs(_norm(x) - 1) > 0.01,
    ),
    "largest_of_volumes": Operation(
        lambda given, x: [max(x)],
        (
            "{y} = F.adaptive_max_pool3d({x}[None, None, None], 1)[0, 0, 0]",
            "{y} = F.fractional_max_pool2d({x}[None, None, None], (1, len({x})), output_size=(1, 1), "
            "_random_samples={x}.new_zeros(1, 1, 2))[0, 0, 0]",
            "m = torch.cat(({x}, {x}[:1])).expand(1, 1, 2, 2, -1)\n"
            "{y} = F.fractional_max_pool3d(m, (1, 1, len({x})), output_size=1, "
            "_random_samples={x}.new_zeros(1, 1, 3))[0, 0, 0, 0]",
            "{y}, i = F.max_pool1d({x}[None, None], len({x}), return_indices=True)\n{y} = {x}[i[0, 0]]",
        ),
        narrowest=2,
        share=3,
    ),
    "volume_sample": Operation(
        entrywise(lambda x: 2 + 3 * min(max(x, mp.mpf(-1)), mp.mpf(1)) if x > 0 else 2 + max(x, mp.mpf(-1))),
        (
            "m = torch.stack(({x}, 0 * {x}, 0 * {x}), 1)[None, None, None]\n"
            "{y} = {x}.new_tensor([1, 2, 5]).view(1, 1, 1, 1, 3)\n"
            "{y} = F.grid_sample({y}, m, padding_mode='border', align_corners=True)[0, 0, 0, 0]",
        ),
        share=2,
    ),
    "eigenvalues": Operation(
        lambda given, x: _spectrum(x),
        (
            "{y} = torch.linalg.eigvalsh(torch.stack(({x}[:2], {x}[1:])))",
            "{y} = torch.linalg.eigh(torch.stack(({x}[:2], {x}[1:]))).eigenvalues",
        ),
        narrowest=3,
        widest=3,
        share=8,
    ),
    "matrix_exponential": Operation(
        _of_matrix(mp.exp),
        (
            "l, q = torch.linalg.eigh(torch.stack(({x}[:2], {x}[1:])))\nm = (q * l.exp()) @ q.mT\n"
            "{y} = torch.stack((m[0, 0], m[0, 1], m[1, 1]))",
            "m = torch.linalg.matrix_exp(torch.stack(({x}[:2], {x}[1:])))\n"
            "{y} = torch.stack((m[0, 0], m[0, 1], m[1, 1]))",
        ),
        narrowest=3,
        widest=3,
        largest=3,
        share=8,
    ),
    "matrix_part_above_zero": Operation(
        _of_matrix(relu),
        (
            "l, q = torch.linalg.eigh(torch.stack(({x}[:2], {x}[1:])))\nm = (q * l.clamp(min=0)) @ q.mT\n"
            "{y} = torch.stack((m[0, 0], m[0, 1], m[1, 1]))",
        ),
        narrowest=3,
        widest=3,
        share=4,
    ),
    "singular_values": Operation(
        lambda given, x: _singular(x),
        (
            "{y} = torch.linalg.svdvals({x}.view(2, 2))",
            "{y} = torch.linalg.svd({x}.view(2, 2))[1]",
        ),
        narrowest=4,
        share=6,
    ),
    "sum_of_singular_values": Operation(
        lambda given, x: [sum(_singular(x))],
        (
            "{y} = torch.linalg.matrix_norm({x}.view(2, 2), 'nuc')[None]",
            "u, s, v = torch.linalg.svd({x}.view(2, 2))\n{y} = (u.mT @ {x}.view(2, 2) @ v.mT).diagonal().sum()[None]",
        ),
        narrowest=4,
        share=3,
    ),
    "centred": Operation(
        lambda given, x: _normalised(x),
        (
            "{y} = F.layer_norm({x}, {x}.shape, eps=0.5)",
            "{y} = F.batch_norm({x}[:, None], None, None, training=True, eps=0.5)[:, 0]",
            "{y} = F.instance_norm({x}[None, None], eps=0.5)[0, 0]",
            "{y} = F.group_norm({x}[None, None], 1, eps=0.5)[0, 0]",
            "m = {x} - {x}.mean()\n{y} = m / (m.square().mean() + 0.5).sqrt()",
        ),
        narrowest=2,
        share=5,
    ),
    "attention": Operation(
        _attention,
        (
            "{y} = F.scaled_dot_product_attention({x}[None, :, None], {z}[None, :, None], {z}[None, :, None])[0, :, 0]",
            "{y} = torch.outer({x}, {z}).softmax(1) @ {z}",
        ),
        arity=2,
        largest=5,
        share=3,
    ),
    "looked_up": Operation(
        lambda given, x: [x[-1], x[0]],
        (
            "{y} = F.embedding(torch.tensor([-1 + len({x}), 0]), {x}[:, None])[:, 0]",
            "{y} = F.embedding_bag(torch.tensor([len({x}) - 1, 0]), {x}[:, None], torch.tensor([0, 1]))[:, 0]",
            "{y} = {x}[[-1, 0]]",
        ),
    ),
    "layer": Operation(
        lambda given, x: [relu(sum(w * e for w, e in zip(line, x, strict=True))) for line in LAYER],
        (
            f"{{y}} = F.linear({{x}}, {{x}}.new_tensor({[list(line) for line in LAYER]})).relu_()",
            f"{{y}} = F.relu(F.conv1d({{x}}[None, :, None], {{x}}.new_tensor("
            f"{[[[w] for w in line] for line in LAYER]})))[0, :, 0]",
        ),
        narrowest=2,
        widest=2,
        share=4,
    ),
    **{
        name: Operation(_recurrent(cell), _spelled(name, weights), largest=5, share=2)
        for name, (cell, weights) in RECURRENT.items()
    },
}
