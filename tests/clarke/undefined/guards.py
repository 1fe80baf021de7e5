"""How a program does not follow some entries of a function, or saturates there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from clarke.undefined.numbers import Number, exp, larger, mp, over, product, smaller

Given = dict[str, Any]
Vector = list[Any]


@dataclass(frozen=True)
class Guard:
    """Of ``{s}``, the function's values at ``{x}``; ``{m}`` is a mask, ``{k}`` the places in it, ``{c}`` a number.

    Attributes:
        ways: in torch.
        exact: the same, of the parameters, the function and the vector.
        is_masking: it takes the mask: what is singular is left out of it.
    """

    ways: tuple[str, ...]
    exact: Callable[[Given, Number, Vector], Vector]
    is_masking: bool = False


def _each(one: Callable[[Given, Any, Any], Any]) -> Callable[[Given, Number, Vector], Vector]:
    """Of an entry's value and the entry."""
    return lambda given, s, x: [one(given, s(each), each) for each in x]


def _masked(other: Callable[[Any], Any]) -> Callable[[Given, Number, Vector], Vector]:
    return lambda given, s, x: [s(each) if m else other(each) for each, m in zip(x, given["m"], strict=True)]


def _chosen(given: Given, s: Number, x: Vector) -> Vector:
    return [s(x[at]) for at in given["k"]]


def _number(x: Any) -> Any:
    return mp.mpf(0) if mp.isnan(x) else mp.mpf(8) if x == mp.inf else mp.mpf(-8) if x == -mp.inf else x


def _mask(code: str) -> str:
    return f"m = torch.tensor({{m}})\n{code}"


GUARDS: dict[str, Guard] = {
    "where": Guard(
        (
            _mask("{y} = torch.where(m, {s}, 2 * {x})"),
            _mask("{y} = torch.where(~m, {x} + {x}, {s})"),
            _mask("{y} = {x} * 2\n{y}[m] = {s}[m]"),
            _mask("{y} = (2 * {x}).masked_scatter(m, {s}[m])"),
        ),
        _masked(lambda x: 2 * x),
        is_masking=True,
    ),
    "fill": Guard(
        (
            _mask("{y} = {s}.masked_fill(~m, 0.5)"),
            _mask("{y} = {s}\n{y} = {y}.clone()\n{y}[~m] = 0.5"),
            _mask("{y} = torch.where(m, {s}, 0.5)"),
            "{y} = torch.full_like({x}, 0.5)\n{y} = {y}.index_copy(0, torch.tensor({k}, dtype=int), {s}[{k}])",
        ),
        _masked(lambda x: mp.mpf(0.5)),
        is_masking=True,
    ),
    "choice": Guard(
        (
            "{y} = {s}[{k}]",
            "{y} = {s}[torch.tensor({m})]",
            "{y} = {s}.masked_select(torch.tensor({m}))",
            "{y} = {s}.index_select(0, torch.tensor({k}))",
            "{y} = {s}.gather(0, torch.tensor({k}))",
            "{y} = {s}.take(torch.tensor({k}))",
            "{y} = {s}\n{y} = torch.stack([{y}[i] for i in {k}])",
            "{y} = torch.take_along_dim({s}, torch.tensor({k}))",
        ),
        _chosen,
        is_masking=True,
    ),
    "weights of 0": Guard(
        ("{y} = {s} * {x}.new_tensor({m})", "{y} = {x}.new_tensor({m}) * ({s} + 1) - {x}.new_tensor({m})"),
        lambda given, s, x: [product(s(each), mp.mpf(int(m))) for each, m in zip(x, given["m"], strict=True)],
        is_masking=True,
    ),
    "above": Guard(
        (
            "{y} = torch.where({x} > {c}, {s}, -{x})",
            "{y} = torch.where({x} <= {c}, -{x}, {s})",
            "{y} = -{x}\n{y}[{x} > {c}] = {s}[{x} > {c}]",
        ),
        lambda given, s, x: [s(each) if each > given["c"] else -each for each in x],
    ),
    "below": Guard(
        (
            "{y} = torch.where({x} < {c}, {s}, -{x})",
            "{y} = torch.where({x} >= {c}, -{x}, {s})",
            "{y} = torch.stack([e if v < {c} else -v for v, e in zip({x}, {s})])",
        ),
        lambda given, s, x: [s(each) if each < given["c"] else -each for each in x],
    ),
    "upper bound": Guard(
        (
            "{y} = {s}.clamp(max={c})",
            "{y} = torch.minimum({s}, {x}.new_full({x}.shape, {c}))",
            "{y} = torch.stack(({s}, {x}.new_full({x}.shape, {c}))).amin(0)",
            "{y} = {s}\n{y} = torch.where({y} > {c}, {c}, {y})",
        ),
        _each(lambda given, s, x: smaller(s, mp.mpf(given["c"]))),
    ),
    "lower bound": Guard(
        (
            "{y} = {s}.clamp_min({c})",
            "{y} = torch.maximum({x}.new_tensor({c}), {s})",
            "{y} = F.relu({s} - {c}) + {c}",
            "{y} = torch.stack(({x}.new_full({x}.shape, {c}), {s})).max(0).values",
        ),
        _each(lambda given, s, x: larger(s, mp.mpf(given["c"]))),
    ),
    "no nan": Guard(
        (
            "{y} = {s}.nan_to_num(0.0, 8.0, -8.0).clamp(-8, 8)",
            "{y} = {s}\n{y} = torch.where({y}.isnan(), 0.0, {y}).clamp(-8, 8)",
            "{y} = torch.nansum({s}[:, None], 1).clamp(-8, 8)",
        ),
        _each(lambda given, s, x: larger(smaller(_number(s), mp.mpf(8)), mp.mpf(-8))),
    ),
    "finite ones": Guard(
        (
            "{y} = {s}\n{y} = torch.where({y}.isfinite(), {y}, {x})",
            "{y} = {s}\n{y} = {y}.where({y}.abs() < inf, {x})",
            "{y} = {s}\n{y} = torch.stack([e if e.isfinite() else v for v, e in zip({x}, {y})])",
        ),
        _each(lambda given, s, x: s if mp.isfinite(s) else x),
    ),
    "decay": Guard(
        ("{y} = torch.exp(-{s})", "{y} = ({s} * -1).exp()"),
        _each(lambda given, s, x: exp(-s)),
    ),
    "squashed": Guard(
        ("{y} = torch.tanh({s})", "{y} = 1 - 2 / (1 + torch.exp(2 * {s}))"),
        _each(lambda given, s, x: mp.tanh(s) if mp.isfinite(s) or mp.isnan(s) else mp.mpf(1 if s > 0 else -1)),
    ),
    "shrunk": Guard(
        ("{y} = 1 / (2 + {s})", "{y} = ({s} + 2).reciprocal()", "{y} = ({s} + 2) ** -1"),
        _each(lambda given, s, x: over(1, 2 + s)),
    ),
    "squared": Guard(
        ("{y} = {s} ** 2", "{y} = {s}.square()", "{y} = {s}\n{y} = {y} * {y}"), _each(lambda given, s, x: product(s, s))
    ),
    "times its argument": Guard(("{y} = {x} * {s}", "{y} = {s} * {x}"), _each(lambda given, s, x: product(s, x))),
    "times its argument twice": Guard(
        ("{y} = {x} * {s} * {x}", "{y} = {s} * {x}.square()"), _each(lambda given, s, x: product(product(s, x), x))
    ),
    "itself": Guard(("{y} = {s}",), _each(lambda given, s, x: s)),
}
