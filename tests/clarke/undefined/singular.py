"""Functions of a number whose slope is infinite or not defined somewhere, or that end there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from clarke.undefined.numbers import Number, exp, inside, log, mp, over, power, product, root


@dataclass(frozen=True)
class Singular:
    """A function of every entry.

    Attributes:
        code: in torch, of ``{x}``.
        exact: the same of one number, with infinities and nan.
        bad: points where its slope or its value is not finite.
        good: points where it is smooth.
    """

    code: str
    exact: Number
    bad: tuple[float, ...]
    good: tuple[float, ...]


def _atanh(x: Any) -> Any:
    return mp.inf if x == 1 else -mp.inf if x == -1 else mp.atanh(x)


def _logit(x: Any) -> Any:
    return -mp.inf if x == 0 else mp.inf if x == 1 else mp.log(x / (1 - x))


def _erfinv(x: Any) -> Any:
    return mp.inf if x == 1 else -mp.inf if x == -1 else mp.erfinv(x)


def _x_log(x: Any) -> Any:
    return mp.mpf(0) if x == 0 else x * mp.log(x)


def _lgamma(x: Any) -> Any:
    return mp.inf if x == 0 else mp.log(abs(mp.gamma(x)))


SINGULAR: dict[str, Singular] = {
    "sqrt": Singular("{x}.sqrt()", root, (0, 0, -1), (1, 4)),
    "rsqrt": Singular("{x}.rsqrt()", lambda x: over(1, root(x)), (0, 0, -1), (1, 4)),
    "power below 1": Singular("{x} ** 0.25", lambda x: power(x, 0.25), (0, 0, -1), (1, 2)),
    "power below 0": Singular("{x}.pow(-0.75)", lambda x: power(x, -0.75), (0, 0, -1), (1, 2)),
    "log": Singular("{x}.log()", log, (0, 0, -1), (1, 2)),
    "log2": Singular("{x}.log2()", lambda x: log(x) / mp.log(2), (0, 0, -1), (1, 2)),
    "log1p": Singular("torch.log1p({x})", lambda x: log(1 + x), (-1, -1, -2), (0, 1)),
    "exp": Singular("{x}.exp()", exp, (1000,), (0, 1, -1)),
    "cosh": Singular("{x}.cosh()", lambda x: (exp(x) + exp(-x)) / 2, (1000, -1000), (0, 1, -1)),
    "reciprocal": Singular("{x}.reciprocal()", lambda x: over(1, x), (0,), (1, 2, -1)),
    "division": Singular("2 / ({x} * {x})", lambda x: over(2, x * x), (0,), (1, 2, -1)),
    "ratio": Singular("{x} / {x}.abs()", lambda x: over(x, abs(x)), (0,), (1, 2, -1)),
    "acos": Singular("{x}.acos()", inside(lambda x: mp.acos(x), -1, 1), (1, -1, 2), (0, 0.5)),
    "asin": Singular("torch.asin({x})", inside(lambda x: mp.asin(x), -1, 1), (1, -1, 2), (0, 0.5)),
    "acosh": Singular("{x}.acosh()", inside(lambda x: mp.acosh(x), 1), (1, 1, 0), (2, 1.5)),
    "atanh": Singular("{x}.atanh()", inside(_atanh, -1, 1), (1, -1, 2), (0, 0.5)),
    "logit": Singular("torch.logit({x})", inside(_logit, 0, 1), (0, 1, 2), (0.5, 0.25)),
    "erfinv": Singular("{x}.erfinv()", inside(_erfinv, -1, 1), (1, -1, 2), (0, 0.5)),
    "xlogy": Singular("torch.xlogy({x}, {x})", inside(_x_log, 0), (0, 0, -1), (1, 2)),
    "lgamma": Singular("{x}.lgamma()", _lgamma, (0,), (2, 3)),
    "atan2": Singular("torch.atan2({x}, 3 * {x})", lambda x: mp.atan2(x, 3 * x) if x else mp.mpf(0), (0,), (1, 2, -1)),
    "hypot": Singular("torch.hypot({x}, 2 * {x})", lambda x: mp.sqrt(5) * abs(x), (0,), (1, 2, -1)),
    "root of a square": Singular("({x} * {x}).sqrt()", abs, (0,), (1, 2, -1)),
    "norm": Singular("{x}[:, None].norm(dim=1)", abs, (0,), (1, -2)),
    "product with a pole": Singular("{x} * {x}.log()", lambda x: product(x, log(x)), (0, -1), (1, 2)),
}
