"""Rows that are dead: what is broadcast over them, sums inside of an operator, attention that is masked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from clarke.mixed.table import Operation, Vector
from clarke.undefined.numbers import exp, log, mp, over, product, root

Given = dict[str, Any]
# Of every entry a row, (x, z) or what is said; {m} tells the rows that count.
ROWS = "m = torch.tensor({m})\n{y} = torch.stack(({x}, {z}), 1)\n"
KEPT: dict[str, tuple[str, float | None]] = {
    "where": ("{y} = torch.where(m[:, None], {y}, 0.5).sum(1)", 1.0),
    "fill": ("{y} = {y}.masked_fill(~m[:, None], 0.25).sum(1)", 0.5),
    "choice": ("{y} = {y}[m].sum(1)", None),
}


def _rows(row: Any, *codes: str) -> dict[str, Operation]:
    """A function of rows of two, of which those that are left out add a number, or are not there."""
    return {how: _kept(row, codes, *KEPT[how]) for how in KEPT}


def _kept(row: Any, codes: Sequence[str], kept: str, other: float | None) -> Operation:
    def exact(given: Given, x: Vector, z: Vector) -> Vector:
        rows = zip(x, z, given["m"], strict=True)
        found = [sum(row(one, another), mp.mpf(0)) if m else other for one, another, m in rows]
        return [mp.mpf(each) for each in found if each is not None]

    return Operation(exact, tuple(f"{ROWS}{code}\n{kept}" for code in codes), ("m",), arity=2)


def _length(x: Any, z: Any) -> Any:
    return mp.sqrt(x * x + z * z)


def _of_constants(one: Any, *codes: str) -> Operation:
    """The sum of a vector against constants, one for each entry of a mask: 0 for what is left out."""
    ways = tuple(f"m = torch.tensor({{m}})\nc = {{x}}.new_tensor({{m}}) * 2\ns = {{x}}.sum()\n{code}" for code in codes)

    def exact(given: Given, x: Vector) -> Vector:
        return [one(sum(x)) if m else mp.mpf(0) for m in given["m"]]

    return Operation(exact, ways, ("m",))


def _softmax(given: Given, x: Vector) -> Vector:
    sizes = [exp(each) if m else mp.mpf(0) for each, m in zip(x, given["m"], strict=True)]
    return [over(each, sum(sizes)) if any(given["m"]) else mp.mpf(0) for each in sizes]


def _attention(given: Given, x: Vector, z: Vector) -> Vector:
    """A row for every key that is masked in it; one row is masked wholly."""
    found = []
    for row in (given["m"], [False] * len(x)):
        weights = _softmax({"m": row}, x)
        found.append(sum(product(w, each) for w, each in zip(weights, z, strict=True)))
    return found


MASKED = "m = torch.tensor({m})\n"
TWO_ROWS = "m = torch.tensor([{m}, [False] * len({x})])\n"
_ROWS: dict[str, dict[str, Operation]] = {
    "normalised rows": _rows(
        lambda x, z: (over(x, _length(x, z)), over(z, _length(x, z))),
        "{y} = {y} / {y}.norm(dim=1, keepdim=True)",
        "{y} = {y} / ({y} * {y}).sum(1, keepdim=True).sqrt()",
        "{y} = {y} * {y}.square().sum(1, keepdim=True).rsqrt()",
        "{y} = F.normalize({y}, dim=1, eps=0.0)",
    ),
    "lengths of rows": _rows(
        lambda x, z: (_length(x, z), _length(x, z)),
        "{y} = {y}.norm(dim=1, keepdim=True).expand(-1, 2)",
        "{y} = ({y} * {y}).sum(1).sqrt()[:, None].expand(-1, 2)",
        "{y} = torch.hypot({y}[:, :1], {y}[:, 1:]).expand(-1, 2)",
    ),
    "angles of rows": _rows(
        lambda x, z: (mp.atan2(x, z) if x or z else mp.mpf(0), mp.mpf(0)),
        "{y} = torch.stack((torch.atan2({y}[:, 0], {y}[:, 1]), 0 * {x}), 1)",
        "{y} = torch.stack((torch.complex({y}[:, 1], {y}[:, 0]).angle(), 0 * {x}), 1)",
    ),
    "deviations of rows": _rows(
        lambda x, z: (abs(x - z) / mp.sqrt(2), mp.mpf(0)),
        "{y} = torch.stack(({y}.std(1), 0 * {x}), 1)",
        "{y} = torch.stack(({y}.var(dim=1).sqrt(), 0 * {x}), 1)",
    ),
    "standardised rows": _rows(
        lambda x, z: (over(x - z, abs(x - z)), over(2 * (z - x), abs(x - z))),
        "{y} = ({y} - {y}.mean(1, keepdim=True)) / {y}.std(1, keepdim=True) * {x}.new_tensor([1.0, 2.0]) * 2 ** 0.5",
    ),
    "rows by the first": _rows(
        lambda x, z: (over(z, x), over(mp.mpf(1), x)),
        "{y} = torch.stack(({y}[:, 1], torch.ones_like({x})), 1) / {y}[:, :1]",
        "{y} = (1 / {y}[:, :1]) * torch.stack(({y}[:, 1], torch.ones_like({x})), 1)",
        "{y} = torch.stack(({y}[:, 1], torch.ones_like({x})), 1) * {y}[:, :1] ** -1",
    ),
    "logs of rows": _rows(
        lambda x, z: (log(x), log(x) + mp.log(3)),
        "{y} = ({y}[:, :1] * {x}.new_tensor([1.0, 3.0])).log()",
        "{y} = {y}[:, :1].log() + {x}.new_tensor([1.0, 3.0]).log()",
    ),
    "roots times a number": _rows(
        lambda x, z: (root(x), root(z)),
        "{y} = {y}.sqrt() * {x}.new_ones(())",
        "{y} = {y} ** 0.5",
    ),
}
WIDE: dict[str, Operation] = {
    **{f"{name}, {how}": each for name, kinds in _ROWS.items() for how, each in kinds.items()},
    "over constants": _of_constants(
        lambda s: s / 2,
        "{y} = torch.where(m, s / c, 0.0)",
        "{y} = (s / c).masked_fill(c == 0, 0)",
        "{y} = (s * (1 / c)).where(m, torch.zeros_like(s))",
        "{y} = torch.addcdiv(0 * c, s.expand(c.shape), c)\n{y} = torch.where(c > 0, {y}, 0.0)",
    ),
    "under constants": _of_constants(
        lambda s: mp.exp(s),
        "{y} = torch.where(m, (s / c + s / c).exp(), 0.0)",
        "{y} = torch.where(m, torch.exp(s * c / c), 0.0)",
    ),
    "power of constants": _of_constants(
        lambda s: s * s,
        "{y} = torch.where(m, s ** c, 0.0)",
        "{y} = torch.where(m, torch.pow(s, c), torch.zeros_like(s))",
        "{y} = torch.where(c == 0, 0.0, s ** (4 / c))",
    ),
    "times infinity": _of_constants(
        lambda s: 2 * s,
        "w = torch.where(m, 2.0, inf).to({x})\n{y} = torch.where(m, s * w, 0.0)",
        "w = torch.where(m, 2.0, inf).to({x})\n{y} = torch.where(m, torch.outer(w, s[None])[:, 0], 0.0)",
        "w = torch.where(m, 2.0, inf).to({x})\n{y} = torch.where(m, (w[:, None] @ s[None, None])[:, 0], 0.0)",
    ),
    "masked softmax": Operation(
        _softmax,
        (
            MASKED + "{y} = torch.softmax({x}.masked_fill(~m, -inf), 0).nan_to_num(0.0)",
            MASKED + "{y} = F.log_softmax(torch.where(m, {x}, -inf), 0).exp().nan_to_num(0.0)",
            MASKED + "{y} = {x}.masked_fill(~m, -inf)\n{y} = ({y} - {y}.logsumexp(0)).exp()\n"
            "{y} = torch.where(m, {y}, 0.0)",
            MASKED + "{y} = torch.where(m, {x}, -inf).exp()\n{y} = torch.where(m, {y} / {y}.sum(), 0.0)",
        ),
        ("m",),
    ),
    "attention": Operation(
        _attention,
        (
            TWO_ROWS + "{y} = torch.softmax(torch.where(m, {x}, -inf), 1).nan_to_num(0.0) @ {z}",
            TWO_ROWS + "{y} = (torch.softmax(torch.where(m, {x}, -inf), 1) @ {z}).nan_to_num(0.0)",
            TWO_ROWS + "{y} = (torch.softmax({x}.masked_fill(~m, -inf), 1)[:, None] @ {z}[:, None])[:, 0, 0]\n"
            "{y} = torch.where(m.any(1), {y}, 0.0)",
            TWO_ROWS
            + "{y} = torch.einsum('ij,j->i', torch.where(m, {x}, -inf).softmax(1), {z}).where(m.any(1), 0 * {x}[0])",
        ),
        ("m",),
        arity=2,
    ),
    "logsumexp": Operation(
        lambda given, x: [
            log(sum(exp(each) for each, m in zip(x, given["m"], strict=True) if m)) if any(given["m"]) else mp.mpf(-9)
        ],
        (
            MASKED + "{y} = torch.where(m, {x}, -inf).logsumexp(0, keepdim=True).clamp(min=-9)",
            MASKED + "{y} = {x}.masked_fill(~m, -inf)[None].logsumexp(1)\n{y} = torch.where({y} == -inf, -9.0, {y})",
            MASKED + "{y} = torch.where(m, {x}, -inf).exp().sum(0, keepdim=True).log().clamp(min=-9)",
        ),
        ("m",),
    ),
}
