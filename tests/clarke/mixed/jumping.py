"""Operators that jump, so combined that the whole is continuous; answers, searches, casts; a few that do jump."""

from __future__ import annotations

from bisect import bisect_left
from typing import Any

from clarke.mixed.table import Given, Operation, Vector, clamp, entrywise, mp, relu, sign

EDGES = (-1.0, 0.0, 1.0, 2.0)
HEIGHTS = (0.0, 2.0, 1.0, 3.0)


def _wave(x: Any) -> Any:
    """The distance from the nearest even number."""
    return abs(x - 2 * mp.nint(x / 2))


def _interpolated(x: Any) -> Any:
    x = clamp(x, -1, 2)
    at = min(max(bisect_left(EDGES, x), 1), 3)
    return HEIGHTS[at - 1] + (HEIGHTS[at] - HEIGHTS[at - 1]) * (x - EDGES[at - 1])


def _drained(given: Given, x: Vector) -> Vector:
    for _ in range(4):
        if not any(each > given["c"] for each in x):
            break
        x = [max(each - 1, mp.mpf(given["c"])) if each > given["c"] else each for each in x]
    return x


def _first_above(given: Given, x: Vector) -> Vector:
    """What is left of the entries' positive parts up to a budget of 2: a loop that breaks."""
    left = mp.mpf(2)
    for each in x:
        if left <= 0:
            break
        left = left - min(relu(each), left)
    return [left]


JUMPING: dict[str, Operation] = {
    "itself": Operation(
        entrywise(lambda x: x),
        (
            "{y} = torch.floor({x}) + {x} % 1",
            "{y} = {x}.trunc() + {x}.frac()",
            "{y} = {x}.ceil() - torch.remainder(-{x}, 1)",
            "{y} = torch.fmod({x}, 2) + 2 * torch.div({x}, 2, rounding_mode='trunc')",
            "{y} = {x} - 2 * torch.div({x}, 2.0, rounding_mode='floor')\n"
            "{y} = {y} + 2 * torch.floor({x} / torch.full_like({x}, 2.0))",
            "{y} = torch.remainder({x}, torch.full_like({x}, 2.0)) + 2 * torch.div({x}, torch.full_like({x}, 2.0), "
            "rounding_mode='floor')",
            "{y} = torch.fmod({x}, torch.full_like({x}, 3.0)) + 3 * (({x} - torch.fmod({x}, 3.0)) / 3)",
            "{y} = {x} - 3 * torch.ops.aten.div.Scalar_mode({x}, 3.0, rounding_mode='floor')\n"
            "{y} = {y} + 3 * torch.floor({x} / 3)",
            "m, e = torch.frexp({x})\n{y} = torch.ldexp(m, e)",
            "{y} = {x}.long() + {x}.frac()",
            "{y} = {x}.to(torch.int64) + ({x} - {x}.trunc())",
            "{y} = ({x} // 1) + {x}.remainder(1.0)",
            "{y} = torch.copysign({x}.abs(), {x})",
            "{y} = {x}.abs() * torch.sign({x})",
            "{y} = {x}.abs() * {x}.sgn()",
            "{y} = torch.stack(({x}, {x}, {x} + 1)).mode(0).values",
            "{y} = {x}.round() + ({x} - torch.round({x}))",
            "{y} = torch.round({x}, decimals=1) + ({x} - torch.round({x}, decimals=1))",
            "{y} = {x} + (torch.count_nonzero(F.relu({x})) - ({x} > 0).sum())",
            "{y} = {x} + (torch.count_nonzero(F.relu({x})[:, None], dim=(1,)) - ({x} > 0).double())",
            "{y} = F.hardshrink({x}, 1.0) + torch.where({x}.abs() > 1, 0.0, {x})",
            "{y} = torch.where({x} == 1, torch.ones_like({x}), {x})",
            "{y} = torch.where({x} != 0, {x}, 0.0)",
            "{y} = torch.where({x}.isnan(), 0.0, {x})",
            "{y} = torch.unique(torch.stack([{x}.sum(), {x}.sum()])).sum() + {x} - {x}.sum()",
            "{y} = torch.nan_to_num({x})",
            "{y} = {x}.type(torch.float64)",
            "{y} = {x}.to(torch.complex128).real",
            "{y} = 0 * {x} if torch.equal({x}, torch.zeros_like({x})) else {x}",
            "{y} = 0 * {x} if torch.allclose({x}, torch.zeros_like({x}), 0, 0) else {x}",
            "{y} = torch.where(torch.isin({x}, torch.zeros_like({x})), 0 * {x}, {x})",
            "{y} = torch.where(torch.isclose({x}, torch.zeros_like({x}), 0, 0), 0 * {x}, {x})",
            "{y} = torch.where({x}.to(torch.bool), {x}, 0 * {x})",
            "{y} = torch.where({x}.type(torch.bool), {x}, 0 * {x})",
            "{y} = {x}.type(torch.long) + {x}.frac()",
            "m = F.relu({x} - 1)\nwhile (m > 0).any():\n    m = F.relu(m - 1)\n{y} = {x} + m",
        ),
        share=9,
    ),
    "wave": Operation(
        entrywise(_wave),
        (
            "{y} = 1 - (torch.remainder({x}, 2) - 1).abs()",
            "{y} = ({x} - 2 * torch.round({x} / 2)).abs()",
            "m = {x} % 2\n{y} = torch.where(m > 1, 2 - m, m)",
            "m = torch.fmod({x}.abs(), 2)\n{y} = torch.minimum(m, 2 - m)",
            "m = {x} - 2 * torch.floor({x} / 2)\n{y} = 1 - (m - 1).abs()",
        ),
        share=4,
    ),
    "size_by_jumps": Operation(
        entrywise(lambda x: abs(x)),
        (
            "{y} = {x} * {x}.sign()",
            "{y} = {x} * torch.cos(torch.angle({x}))",
            "{y} = {x} * (2 * torch.heaviside({x}, torch.ones_like({x})) - 1)",
            "{y} = torch.where(torch.signbit({x}), -{x}, {x})",
            "{y} = torch.where({x} == 0, 0 * {x}, {x}.abs())",
            "{y} = torch.complex({x}, torch.zeros_like({x})).abs()",
            "{y} = torch.where(torch.ne({x}, 0), {x}.abs(), {x})",
            "{y} = torch._foreach_abs([{x}])[0]",
            "{y} = torch.view_as_complex(torch.stack(({x}, 0 * {x}), 1)).abs()",
        ),
        share=3,
    ),
    "positive_by_answers": Operation(
        entrywise(lambda x: relu(x)),
        (
            "{y} = {x} * torch.heaviside({x}, torch.zeros_like({x}))",
            "{y} = torch.where(torch.logical_not(F.relu({x})), 0 * {x}, {x})",
            "{y} = torch.where(F.relu({x}).bool(), {x}, 0 * {x})",
            "{y} = torch.where(F.relu({x}).to(torch.bool), {x}, 0 * {x})",
            "{y} = torch.where(F.relu({x})[:, None].any(1), {x}, 0 * {x})",
            "{y} = torch.where(F.relu({x})[:, None].all(dim=1), {x}, 0 * {x})",
            "{y} = torch.where(F.relu({x})[:, None, None].any((1, 2)), {x}, 0.0)",
            "{y} = torch.where(F.relu({x})[:, None, None].all((1, 2)), {x}, 0.0)",
            "{y} = torch.zeros_like({x})\ni = F.relu({x}).nonzero()[:, 0]\n{y}[i] = {x}[i]",
            "{y} = torch.zeros_like({x})\n{y}.index_put_((torch.nonzero({x} > 0)[:, 0],), {x}[{x} > 0])",
            "{y} = F.relu({x}) if torch.any(F.relu({x})) else 0 * {x}",
            "{y} = F.relu({x}) if torch.all(F.relu({x})) else {x}.clamp(min=0)",
            "{y} = {x}.clone()\nm = {y}.lt(0)\n{y}.masked_fill_(m, 0)",
            "{y} = {x}.clone()\n{y}.mul_({y} > 0)",
            "{y} = 0 * {x}\n{y}.add_({x} * {x}.ge(0))",
            "{y} = {x}.where(~torch.lt({x}, 0), 0.0)",
            "{y} = torch._foreach_clamp_min([{x}], 0.0)[0]",
            "{y} = F.relu({x})\nassert ({y} >= 0).all()",
            "i = ({x} > 0) * len({x}) + torch.arange(len({x}))\n"
            "{y} = torch.index_select(torch.cat((0 * {x}, {x})), 0, index=i)",
        ),
        share=5,
    ),
    "larger_by_answers": Operation(
        entrywise(lambda x, z: max(x, z)),
        (
            "{y} = torch.where({x} >= {z}, {x}, {z})",
            "{y} = torch.where({x}.le({z}), {z}, {x})",
            "{y} = torch.where({x} == {z}, {x}, torch.maximum({x}, {z}))",
            "{y} = torch.where(torch.ne({x}, {z}), {x}.maximum({z}), {z})",
            "{y} = torch.where({x}.lt({z}), {z}, {x})",
            "{y} = torch._foreach_maximum([{x}], [{z}])[0]",
            "{y} = torch.stack([v if not v < w else w for v, w in zip({x}, {z})])",
        ),
        arity=2,
        share=3,
    ),
    "both_positive": Operation(
        entrywise(lambda x, z: min(relu(x), relu(z))),
        (
            "{y} = torch.where(torch.logical_and(F.relu({x}), F.relu({z})), torch.minimum({x}, {z}), 0.0)",
            "{y} = torch.where(({x} > 0) & ({z} > 0), torch.minimum({x}, {z}), 0.0)",
        ),
        arity=2,
    ),
    "either_positive": Operation(
        entrywise(lambda x, z: max(relu(x), relu(z))),
        (
            "{y} = torch.where(torch.logical_or(F.relu({x}), F.relu({z})), torch.maximum({x}, {z}), 0.0)",
            "{y} = torch.where(({x} > 0) | ({z} > 0), torch.maximum({x}, {z}), 0.0)",
        ),
        arity=2,
    ),
    "difference_of_positives": Operation(
        entrywise(lambda x, z: abs(relu(x) - relu(z))),
        (
            "m, e = F.relu({x}), F.relu({z})\n{y} = torch.where(torch.logical_xor(m, e), m + e, (m - e).abs())",
            "m, e = F.relu({x}), F.relu({z})\n{y} = torch.where(torch.gt(m, e), m - e, e - m)",
        ),
        arity=2,
    ),
    "table_by_search": Operation(
        entrywise(_interpolated),
        tuple(
            f"v = {{x}}.clamp(-1, 2)\nb = v.new_tensor([-1, 0, 1, 2])\nh = v.new_tensor([0, 2, 1, 3])\n"
            f"i = {search}.clamp(1, 3)\n{{y}} = h[i - 1] + (h[i] - h[i - 1]) * (v - b[i - 1])"
            for search in (
                "torch.bucketize(v, b)",
                "torch.searchsorted(b, v)",
                "torch.searchsorted(b, v, right=True)",
                "(v.floor().long() + 2)",
                "(v[:, None] > b).sum(1)",
            )
        ),
        share=3,
    ),
    "drained": Operation(
        _drained,
        (
            "{y}, i = {x}, 0\nwhile ({y} > {c}).any() and i < 4:\n    i += 1\n"
            "    {y} = torch.where({y} > {c}, ({y} - 1).clamp(min={c}), {y})",
            "{y} = {x}.clone()\nfor _ in range(4):\n    if not bool(({y} > {c}).any()):\n        break\n"
            "    m = {y} > {c}\n    {y}[m] = ({y}[m] - 1).clamp(min={c})",
            "{y} = {x}\nfor _ in range(4):\n    if {y}.max() <= {c}:\n        break\n"
            "    {y} = torch.minimum({y}, ({y} - 1).clamp_min({c}))",
        ),
        ("c",),
        share=3,
    ),
    "budget": Operation(
        _first_above,
        (
            "{y} = {x}.new_tensor(2.0)\nfor v in {x}:\n    if {y} <= 0:\n        break\n"
            "    {y} = {y} - torch.minimum(F.relu(v), {y})\n{y} = {y}[None]",
            "{y} = (2 - F.relu({x}).sum()).clamp(min=0)[None]",
        ),
        narrowest=2,
    ),
    "kept_order": Operation(
        lambda given, x: sorted(x, reverse=True)[: max(1, len(x) - 1)],
        (
            "{y} = torch.topk(input={x}, k=max(1, len({x}) - 1)).values",
            "i = {x}.topk(max(1, len({x}) - 1)).indices\n{y} = torch.gather({x}, dim=0, index=i)",
            "i = torch.argsort({x}, descending=True)\n"
            "{y} = torch.index_select(input={x}, dim=0, index=i)[:max(1, len({x}) - 1)]",
            "{y} = torch.take_along_dim({x}, indices={x}.argsort(descending=True), dim=0)[:max(1, len({x}) - 1)]",
        ),
        share=3,
    ),
    "quantile": Operation(
        lambda given, x: [_quantile(x, given["fraction"])],
        (
            "{y} = torch.quantile({x}, {fraction}, keepdim=True)",
            "{y} = {x}.quantile({x}.new_tensor([{fraction}]))",
            "{y} = torch.nanquantile({x}, {fraction})[None]",
            "{y} = {x}.nanquantile({x}.new_tensor({fraction}), dim=0, keepdim=True)",
        ),
        ("fraction",),
        narrowest=2,
        share=3,
    ),
    "quantile_by_place": Operation(  # piecewise linear in where it is asked for
        entrywise(lambda x: _quantile([0, 1, 3, 4, 8], clamp(x, -2, 2) / 4 + mp.mpf(0.5))),
        ("{y} = torch.quantile({x}.new_tensor([3, 0, 4, 8, 1]), {x}.clamp(-2, 2) / 4 + 0.5)",),
    ),
    "branch_cut": Operation(  # the angle of -1 + ix jumps at 0, and is multiplied by x
        entrywise(lambda x: (mp.pi - mp.atan(abs(x))) * abs(x)),
        (
            "{y} = torch.angle(torch.complex(-torch.ones_like({x}), {x})) * {x}",
            "{y} = torch.log(torch.complex(-torch.ones_like({x}), {x})).imag * {x}",
            "{y} = 2 * torch.sqrt(torch.complex(-torch.ones_like({x}), {x})).angle() * {x}",
            "{y} = torch.atan2({x}, -torch.ones_like({x})) * {x}",
        ),
    ),
    "step": Operation(
        entrywise(lambda x: mp.mpf(sign(x))), ("{y} = {x}.sign()", "{y} = ({x} > 0) * 1.0 - 1.0 * ({x} < 0)"), share=1
    ),
    "whole_part": Operation(entrywise(lambda x: mp.floor(x)), ("{y} = {x}.floor()", "{y} = {x} // 1"), share=1),
}


def _quantile(x: Vector, fraction: Any) -> Any:
    ordered, place = sorted(x), fraction * (len(x) - 1)
    low = int(place)
    high = min(low + 1, len(x) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (mp.mpf(place) - low)
