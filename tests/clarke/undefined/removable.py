"""Singular parts whose infinities cancel: products, quotients of 0 and 0, roots of squares; and ordinary parts."""

from __future__ import annotations

from functools import reduce
from typing import Any

from clarke.mixed.table import Operation, Vector, entrywise
from clarke.undefined.numbers import Number, larger, log, mp, product, root


def _filled(quotient: Number, limit: float) -> Any:
    return entrywise(lambda x: quotient(x) if x else mp.mpf(limit))


def _quotient(numerator: str, denominator: str, limit: str) -> tuple[str, ...]:
    """With the limit put in at 0; without is nan, and then kept out."""
    return (
        f"{{y}} = torch.where({{x}} == 0, {limit}, {numerator} / {denominator})",
        f"{{y}} = {numerator} / {denominator}\n{{y}} = torch.where({{x}} != 0, {{y}}, {limit})",
        f"{{y}} = {numerator} / {denominator}\n{{y}} = {{y}}.masked_fill({{x}} == 0, {limit})",
        f"m = torch.where({{x}} == 0, 1.0, {{x}})\n{{y}} = {numerator} / {denominator}\n"
        f"{{y}} = torch.where({{x}} == 0, {limit}, {numerator} / {denominator.replace('{x}', 'm')})",
    )


def _length(x: Vector) -> Any:
    return mp.sqrt(sum(each * each for each in x))


def _along(function: Number, at_zero: float) -> Any:
    """The vector times a function of its length."""
    return lambda given, x: [each * (function(_length(x)) if any(x) else mp.mpf(at_zero)) for each in x]


def _deviation(x: Vector) -> Any:
    mean = sum(x) / len(x)
    return mp.sqrt(sum((each - mean) ** 2 for each in x) / (len(x) - 1))


ANGLE = "m = ({x} * {x}).sum().sqrt()\n"

REMOVABLE: dict[str, Operation] = {
    "x sqrt(x)": Operation(
        entrywise(lambda x: product(x, root(x))),
        ("{y} = {x} * {x}.sqrt()", "{y} = {x}.sqrt() * {x}", "{y} = {x}.sqrt() ** 3", "{y} = {x} * {x} ** 0.5"),
    ),
    "sqrt(x)^2": Operation(
        entrywise(lambda x: x if x >= 0 else mp.nan),
        (
            "{y} = {x}.sqrt() ** 2",
            "{y} = {x}.sqrt().square()",
            "{y} = {x}.sqrt() * {x}.sqrt()",
            "{y} = ({x} ** 0.25) ** 4",
        ),
    ),
    "inverse twice": Operation(
        entrywise(lambda x: x),
        ("{y} = 1 / (1 / {x})", "{y} = {x}.reciprocal().reciprocal()", "{y} = ({x} ** -1) ** -1"),
    ),
    "log and exp": Operation(
        entrywise(lambda x: x if x >= 0 else mp.nan),
        ("{y} = {x}.log().exp()", "{y} = torch.exp2({x}.log2())", "{y} = torch.expm1({x}.log()) + 1"),
    ),
    "size": Operation(
        entrywise(abs),
        (
            "{y} = ({x} * {x}).sqrt()",
            "{y} = {x}.square().sqrt()",
            "{y} = {x}.abs().sqrt() ** 2",
            "{y} = torch.hypot({x}, 0 * {x})",
        ),
    ),
    "sine of a root": Operation(
        entrywise(lambda x: mp.sin(root(x)) ** 2 if x >= 0 else mp.nan),
        ("{y} = {x}.sqrt().sin() ** 2", "{y} = (1 - torch.cos(2 * {x}.sqrt())) / 2"),
    ),
    "x^2 log(x)": Operation(
        entrywise(lambda x: x * x * log(x) if x > 0 else mp.mpf(0) if x == 0 else mp.nan),
        ("{y} = torch.xlogy({x} * {x}, {x})", "{y} = {x} * torch.xlogy({x}, {x})"),
    ),
    "sin(x) / x": Operation(_filled(lambda x: mp.sin(x) / x, 1), _quotient("{x}.sin()", "{x}", "1.0")),
    "expm1(x) / x": Operation(_filled(lambda x: mp.expm1(x) / x, 1), _quotient("torch.expm1({x})", "{x}", "1.0")),
    "log1p(x) / x": Operation(
        _filled(lambda x: mp.log(1 + x) / x, 1),
        _quotient("torch.log1p({x})", "{x}", "1.0"),
        suits=lambda given, x: all(each > -1 for each in x),
    ),
    "(1 - cos(x)) / x^2": Operation(
        _filled(lambda x: (1 - mp.cos(x)) / (x * x), 0.5), _quotient("(1 - {x}.cos())", "({x} * {x})", "0.5")
    ),
    "tanh(x) / x": Operation(_filled(lambda x: mp.tanh(x) / x, 1), _quotient("{x}.tanh()", "{x}", "1.0")),
    "x^2 / x": Operation(_filled(lambda x: x, 0), _quotient("{x} ** 2", "{x}", "0.0")),
    "length squared": Operation(
        lambda given, x: [_length(x) ** 2],
        (
            "{y} = (({x} * {x}).sum().sqrt() ** 2)[None]",
            "{y} = {x}.norm().square()[None]",
            "m = {x}.square().sum().sqrt()\n{y} = (m * m)[None]",
            "{y} = torch.linalg.vector_norm({x}, keepdim=True) ** 2",
        ),
    ),
    "length times entries": Operation(
        _along(lambda s: s, 0),
        (ANGLE + "{y} = {x} * m", "{y} = {x}.norm() * {x}", ANGLE + "{y} = m.expand({x}.shape) * {x}"),
    ),
    "along its length": Operation(
        _along(lambda s: mp.tanh(s) / s, 1),
        (
            ANGLE + "{y} = torch.where(m > 0, m.tanh() / m * {x}, {x})",
            ANGLE + "{y} = {x} * torch.where(m > 0, m.tanh() / m, 1.0)",
            "m = {x}.norm()\n{y} = torch.where(m == 0, {x}, m.tanh() * {x} / m)",
        ),
    ),
    "turned": Operation(
        _along(lambda s: mp.sin(s) / s, 1),
        (
            ANGLE + "{y} = torch.where(m > 0, m.sin() / m, torch.ones_like(m)) * {x}",
            ANGLE + "{y} = torch.where(m == 0, {x}, m.sin() * ({x} / m))",
            ANGLE + "{y} = ({x} / m * m.sin()) if m > 0 else {x}",
        ),
    ),
    "bounded length": Operation(
        _along(lambda s: 1 / max(s, mp.mpf(1)), 1),
        (
            "{y} = {x} / {x}.norm().clamp(min=1)",
            ANGLE + "{y} = {x} / m.clamp_min(1)",
            ANGLE + "{y} = {x} * torch.minimum(1 / m, torch.ones_like(m))",
            "{y} = F.normalize({x}, dim=0, eps=1.0)",
            ANGLE + "{y} = {x} / torch.maximum(m, torch.ones_like(m))",
        ),
    ),
    "over one and its length": Operation(
        _along(lambda s: 1 / (1 + s), 1), (ANGLE + "{y} = {x} / (1 + m)", "{y} = {x} / ({x}.norm() + 1)")
    ),
    "deviation squared": Operation(
        lambda given, x: [_deviation(x) ** 2],
        (
            "{y} = ({x}.std() ** 2)[None]",
            "{y} = {x}.var(keepdim=True).sqrt() ** 2",
            "{y} = torch.std_mean({x})[0].square()[None]",
        ),
        narrowest=2,
    ),
    "deviation": Operation(
        lambda given, x: [_deviation(x)], ("{y} = {x}.std()[None]", "{y} = {x}.var().sqrt()[None]"), narrowest=2
    ),
    "centred": Operation(
        lambda given, x: [(each - sum(x) / len(x)) / (_deviation(x) + 1) for each in x],
        ("{y} = ({x} - {x}.mean()) / ({x}.std() + 1)", "{y} = ({x} - {x}.mean()) / ({x}.var().sqrt() + 1)"),
        narrowest=2,
    ),
    "angle": Operation(
        lambda given, x: [2 * mp.atan(each) for each in x],
        (
            "m = ({x} * {x}).sqrt()\n"
            "{y} = torch.where(m > 0, 2 * torch.atan2(m, torch.ones_like(m)) / m * {x}, 2 * {x})",
        ),
    ),
}

ORDINARY: dict[str, Operation] = {
    "tanh": Operation(entrywise(lambda x: mp.tanh(x)), ("{y} = {x}.tanh()",)),
    "sine": Operation(entrywise(lambda x: mp.sin(x)), ("{y} = {x}.sin()",)),
    "square": Operation(entrywise(lambda x: x * x), ("{y} = {x} * {x}", "{y} = {x}.square()")),
    "relu": Operation(entrywise(lambda x: larger(x, mp.mpf(0))), ("{y} = F.relu({x})", "{y} = {x}.clamp(min=0)")),
    "abs": Operation(entrywise(abs), ("{y} = {x}.abs()",)),
    "largest": Operation(
        lambda given, x: [reduce(larger, x)], ("{y} = {x}.max()[None]", "{y} = {x}.amax(0, keepdim=True)")
    ),
    "sum": Operation(lambda given, x: [sum(x)], ("{y} = {x}.sum()[None]", "{y} = {x}.sum(0, keepdim=True)")),
    "product": Operation(lambda given, x: [mp.fprod(x)], ("{y} = {x}.prod()[None]",)),
}
