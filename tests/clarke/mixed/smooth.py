"""Smooth operations, some of them written with kinks that cancel, and operators with poles away from these."""

from __future__ import annotations

from clarke.mixed.table import Operation, clamp, entrywise, logsumexp, mp, relu, sigmoid, softmax

SMOOTH: dict[str, Operation] = {
    "exp": Operation(entrywise(lambda x: mp.exp(x)), ("{y} = {x}.exp()", "{y} = torch.expm1({x}) + 1"), largest=3),
    "power_of_two": Operation(
        entrywise(lambda x: mp.power(2, x)), ("{y} = 2.0 ** {x}", "{y} = torch.exp2({x})"), largest=4
    ),
    "sin": Operation(
        entrywise(lambda x: mp.sin(x)),
        (
            "{y} = {x}.sin()",
            "{y} = torch.sin({x}.abs()) * torch.sign({x})",
            "{y} = torch.where({x} > 0, {x}.sin(), -(-{x}).sin())",
        ),
    ),
    "cos": Operation(entrywise(lambda x: mp.cos(x)), ("{y} = {x}.cos()", "{y} = {x}.abs().cos()")),
    "tanh": Operation(entrywise(lambda x: mp.tanh(x)), ("{y} = {x}.tanh()", "{y} = {x}.clone().tanh_()"), largest=8),
    "sigmoid": Operation(
        entrywise(sigmoid),
        (
            "{y} = torch.sigmoid({x})",
            "{y} = torch.where({x} >= 0, 1 / (1 + (-{x}.abs()).exp()), 1 - 1 / (1 + (-{x}.abs()).exp()))",
        ),
        largest=8,
    ),
    "softplus": Operation(
        entrywise(lambda x: mp.log(1 + mp.exp(x))),
        (
            "{y} = F.softplus({x})",
            "{y} = F.relu({x}) + torch.log1p(torch.exp(-{x}.abs()))",
            "{y} = torch.logaddexp({x}, torch.zeros_like({x}))",
            "{y} = -F.logsigmoid(-{x})",
            "{y} = F.binary_cross_entropy_with_logits({x}, torch.zeros_like({x}), reduction='none')",
            "{y} = torch.log1p((-{x}.abs()).exp())\n{y} += {x}.clamp(min=0)",
        ),
        largest=8,
    ),
    "log1p_of_squares": Operation(
        entrywise(lambda x: mp.log(1 + x * x)), ("{y} = ({x} * {x}).log1p()", "{y} = (1 + {x}.abs() ** 2).log()")
    ),
    "quotient": Operation(
        entrywise(lambda x, z: x / (1 + z * z)),
        ("{y} = {x} / (1 + {z} * {z})", "{y} = torch.addcdiv(0 * {x}, {x}, 1 + {z}.square())"),
        arity=2,
    ),
    "root_above_one": Operation(
        entrywise(lambda x: mp.sqrt(1 + x * x)),
        (
            "{y} = (1 + {x} ** 2).sqrt()",
            "{y} = 1 / torch.rsqrt(1 + {x} ** 2)",
            "{y} = torch.hypot({x}, torch.ones_like({x}))",
            "{y} = (1 + {x} * {x}) ** 0.5",
            "{y} = torch.linalg.vector_norm(torch.stack(({x}, torch.ones_like({x}))), dim=0)",
        ),
    ),
    "power": Operation(
        entrywise(lambda x, z: mp.power(1 + x * x, z)),
        ("{y} = (1 + {x} * {x}) ** {z}", "{y} = torch.pow(1 + {x}.square(), {z})"),
        arity=2,
        largest=3,
    ),
    "power_of_size": Operation(
        entrywise(lambda x: mp.power(abs(x), 1.5)),
        ("{y} = {x}.abs() ** 1.5", "{y} = {x}.abs().pow(1.5)"),
    ),
    "cube": Operation(
        entrywise(lambda x: x**3),
        (
            "{y} = {x} ** 3",
            "{y} = F.relu({x}) ** 3 - F.relu(-{x}) ** 3",
            "{y} = {x} * {x}.abs() * {x}.abs()",
            "{y} = {x}.abs() ** 3 * {x}.sign()",
        ),
        largest=8,
    ),
    "angle_of_a_point": Operation(
        entrywise(lambda x, z: mp.atan(z / (1 + x * x))),
        ("{y} = torch.atan2({z}, 1 + {x} * {x})", "{y} = torch.atan({z} / (1 + {x} * {x}))"),
        arity=2,
    ),
    "angle": Operation(
        entrywise(lambda x: mp.atan(x)),
        (
            "{y} = {x}.atan()",
            "{y} = torch.asin({x} / (1 + {x} * {x}).sqrt())",
            "{y} = torch.pi / 2 - torch.acos({x} * torch.rsqrt(1 + {x} * {x}))",
        ),
    ),
    "hyperbolic_angle": Operation(
        entrywise(lambda x: mp.acosh(2 + x * x)),
        ("{y} = torch.acosh(2 + {x} * {x})", "{y} = (2 + {x}.abs() ** 2).acosh()"),
    ),
    "entropy": Operation(
        entrywise(lambda x: (1 + x * x) * mp.log(1 + x * x)),
        (
            "{y} = torch.xlogy(1 + {x} * {x}, 1 + {x} * {x})",
            "{y} = -torch.special.entr(1 + {x} * {x})",
            "{y} = torch.special.xlog1py(1 + {x} * {x}, {x} * {x})",
        ),
    ),
    "incomplete_gamma": Operation(
        entrywise(lambda x: mp.gammainc(2, 0, 1 + x * x, regularized=True)),
        (
            "{y} = torch.special.gammainc(torch.full_like({x}, 2.0), 1 + {x} * {x})",
            "{y} = 1 - torch.special.gammaincc(torch.full_like({x}, 2.0), 1 + {x} * {x})",
        ),
        largest=3,
    ),
    "bessel": Operation(
        entrywise(lambda x: mp.besseli(0, x) * mp.exp(-abs(x))), ("{y} = torch.special.i0e({x})",), largest=8
    ),
    "error_function": Operation(entrywise(lambda x: mp.erf(x)), ("{y} = torch.erf({x})",), largest=4),
    "silu": Operation(
        entrywise(lambda x: x * sigmoid(x)), ("{y} = F.silu({x})", "{y} = {x} * torch.sigmoid({x})"), largest=8
    ),
    "gelu": Operation(entrywise(lambda x: x * (1 + mp.erf(x / mp.sqrt(2))) / 2), ("{y} = F.gelu({x})",), largest=5),
    "softsign": Operation(
        entrywise(lambda x: x / (1 + abs(x))), ("{y} = F.softsign({x})", "{y} = {x} / (1 + {x}.abs())")
    ),
    "huber": Operation(
        entrywise(lambda x: x * x / 2 if abs(x) < 1 else abs(x) - mp.mpf(1) / 2),
        (
            "{y} = F.huber_loss({x}, torch.zeros_like({x}), reduction='none')",
            "{y} = F.smooth_l1_loss({x}, torch.zeros_like({x}), reduction='none')",
            "{y} = torch.where({x}.abs() < 1, 0.5 * {x} * {x}, {x}.abs() - 0.5)",
            "m = {x}.abs().clamp(max=1)\n{y} = m * ({x}.abs() - 0.5 * m)",
        ),
    ),
    "squared_hinge": Operation(
        entrywise(lambda x: relu(1 - x) ** 2),
        ("{y} = F.relu(1 - {x}) ** 2", "{y} = torch.where({x} < 1, (1 - {x}) ** 2, 0.0)"),
    ),
    "elu": Operation(
        entrywise(lambda x, a: x if x > 0 else a * mp.expm1(x)),
        (
            "{y} = F.elu({x}, {a})",
            "{y} = torch.where({x} > 0, {x}, {a} * torch.expm1({x}))",
            "{y} = F.relu({x}) + {a} * torch.expm1({x}.clamp(max=0))",
            "{y} = F.elu({x}.clone(), {a}, inplace={a} > 0)",
        ),
        ("a",),
        largest=8,
    ),
    "celu": Operation(
        entrywise(lambda x, k: x if x > 0 else k * mp.expm1(x / k)), ("{y} = F.celu({x}, {k})",), ("k",), largest=8
    ),
    "selu": Operation(
        entrywise(lambda x: mp.mpf(1.0507009873554805) * (x if x > 0 else mp.mpf(1.6732632423543772) * mp.expm1(x))),
        ("{y} = F.selu({x})", "{y} = 1.0507009873554805 * F.elu({x}, 1.6732632423543772)"),
        largest=8,
    ),
    "hardsigmoid": Operation(
        entrywise(lambda x: clamp(x + 3, 0, 6) / 6), ("{y} = F.hardsigmoid({x})", "{y} = F.relu6({x} + 3) / 6")
    ),
    "hardswish": Operation(
        entrywise(lambda x: x * clamp(x + 3, 0, 6) / 6),
        ("{y} = F.hardswish({x})", "{y} = {x} * F.relu6({x} + 3) / 6"),
    ),
    "logit": Operation(
        entrywise(lambda x: mp.log(clamp(x, 0.25, 0.75) / (1 - clamp(x, 0.25, 0.75)))),
        ("{y} = torch.logit({x}, 0.25)", "{y} = torch.logit({x}.clamp(0.25, 0.75))"),
    ),
    "softmax": Operation(
        lambda given, x: softmax(x),
        ("{y} = {x}.softmax(0)", "m = {x} - {x}.max()\n{y} = m.exp() / m.exp().sum()"),
        narrowest=2,
        largest=10,
    ),
    "logsumexp": Operation(
        lambda given, x: [logsumexp(x)],
        (
            "{y} = {x}.logsumexp(0, keepdim=True)",
            "m = {x}.amax(0, keepdim=True)\n{y} = m + ({x} - m).exp().sum().log()",
        ),
        narrowest=2,
        largest=10,
    ),
    "cross_entropy": Operation(
        lambda given, x: [logsumexp(x) - x[0]],
        (
            "{y} = F.cross_entropy({x}[None], torch.tensor([0]), reduction='none')",
            "{y} = -F.log_softmax({x}, 0)[:1]",
            "{y} = F.nll_loss({x}.log_softmax(0)[None], torch.tensor([0]))[None]",
        ),
        narrowest=2,
        largest=10,
    ),
    "ctc": Operation(  # two steps, blank and one label: all alignments but blank twice
        lambda given, x: [-mp.log(1 - softmax(x[:2])[0] * softmax(x[2:])[0])],
        (
            "{y} = F.ctc_loss({x}.view(2, 1, 2).log_softmax(2), torch.tensor([[1]]), (2,), (1,), reduction='none')",
            "m = {x}.view(2, 1, 2).log_softmax(2)\n"
            "{y} = torch.ops.aten._ctc_loss.Tensor(m, torch.tensor([[1]]), torch.tensor([2]), torch.tensor([1]))[0]",
        ),
        narrowest=4,
        largest=8,
        share=4,
    ),
    "signed_square": Operation(
        entrywise(lambda x: x * abs(x)),
        (
            "{y} = {x} * {x}.abs()",
            "{y} = {x}.sign() * {x} ** 2",
            "{y} = torch.copysign({x} * {x}, {x})",
            "{y} = F.relu({x}) ** 2 - F.relu(-{x}) ** 2",
            "{y} = torch.where({x} < 0, -({x} ** 2), {x} ** 2)",
            "{y} = torch.stack([v * v if v > 0 else -v * v for v in {x}])",
        ),
    ),
    "product_of_all": Operation(
        lambda given, x: [mp.fprod(x)],
        ("{y} = {x}.prod()[None]", "{y} = {x}.cumprod(0)[-1:]", "{y} = ({x}.sort().values.prod())[None]"),
        narrowest=2,
        largest=6,
    ),
    "sign_times": Operation(
        entrywise(lambda x, z: abs(x) * z),
        (
            "{y} = torch.copysign({x} * {z}, {z})",
            "{y} = {x} * torch.sign({x}) * {z}",
            "{y} = torch.sgn({x}) * {x} * {z}",
            "{y} = {x}.abs() * {z}",
        ),
        arity=2,
    ),
    "chosen_by_squares": Operation(
        entrywise(lambda x, p, q: (p if x * x > 0 else q) * x),
        (
            "{y} = torch.where({x} * {x} > 0, {p} * {x}, {q} * {x})",
            "{y} = torch.where(({x} * {x} >= 0) & ({x} * {x} > 0), {p} * {x}, {q} * {x})",
            "{y} = torch.stack([{p} * v if v * v > 0 else {q} * v for v in {x}])",
            "{y} = {x} * torch.where({x}.square() <= 0, {q}, {p})",
            "{y} = {q} * {x}\nm = {x} * {x} != 0\n{y}[m] = {p} * {x}[m]",
        ),
        ("p", "q"),
    ),
    "tied_squares": Operation(
        entrywise(lambda x, z: 2 * x * x + z),
        (
            "{y} = torch.maximum({x} * {x}, 2 * {x} * {x}) + {z}",
            "{y} = torch.stack(({x} ** 2, 2 * {x} ** 2)).amax(0) + {z}",
            "{y} = torch.where({x} ** 2 < 2 * {x} ** 2, 2 * {x} ** 2, {x} ** 2) + {z}",
        ),
        arity=2,
    ),
}
