"""What random programs are made of: operations, exactly as germs, and the ways to write each of them in torch.

A spelling is code with holes: ``{y}`` is the result, ``{x}``, ``{z}`` and ``{u}`` the arguments, all of them vectors,
and the parameters go by their names. ``F``, ``torch`` and ``inf`` are in scope.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from clarke.germs import Cell, Germ

Vector = list[Germ]
Parameters = dict[str, Any]
Exact = Callable[..., Vector]


@dataclass(frozen=True)
class Operation:
    """An operation on vectors.

    Attributes:
        exact: the result, of a cell, the parameters and the arguments.
        parameters: the names of what it takes beside vectors.
        arity: how many vectors it takes, all as wide as the first.
        spellings: torch code, by the rows of the table that it meets.
        narrowest: how wide its arguments must at least be.
        curved: whether it is not piecewise affine.
    """

    exact: Exact
    spellings: dict[str, tuple[str, ...]]
    parameters: tuple[str, ...] = ()
    arity: int = 1
    narrowest: int = 1
    curved: bool = False

    @property
    def ways(self) -> list[tuple[str, str]]:
        """All spellings, each with its row."""
        return [(row, code) for row, codes in self.spellings.items() for code in codes]


def entrywise(one: Callable[..., Germ]) -> Exact:
    return lambda cell, given, *arguments: [one(cell, given, *each) for each in zip(*arguments, strict=True)]


def _grid(cell: Cell, given: Parameters, x: Germ) -> Germ:
    low, middle, high = given["t"]
    return low + (middle - low) * (cell.clamped(x, -1, 0) + 1) + (high - middle) * cell.clamped(x, 0, 1)


def _affine(cell: Cell, given: Parameters, x: Vector) -> Vector:
    return [
        sum((w * each for w, each in zip(line, x, strict=True)), b + 0 * x[0])
        for line, b in zip(*_map(given), strict=True)
    ]


def _map(given: Parameters) -> tuple[list[list[int]], list[int]]:
    return given["W"], given["b"]


def _iterated(cell: Cell, given: Parameters, x: Vector) -> Vector:
    for _ in range(given["k"]):
        x = [cell.bent(each, 0, 1) for each in _affine(cell, given, x)]
    return x


def _running(cell: Cell, given: Parameters, x: Vector) -> Vector:
    return [cell.largest(x[: last + 1]) for last in range(len(x))]


def _hinges(cell: Cell, given: Parameters, x: Vector) -> Vector:
    return [sum((cell.bent(1 - x[0] + each, 0, 1) for each in x[1:]), 0 * x[0])]


def _soft(cell: Cell, given: Parameters, x: Germ) -> Germ:
    return x - cell.clamped(x, -given["c"], given["c"])


def _folded(cell: Cell, x: Vector) -> Vector:
    return [cell.bent(each, -1, 1) for each in x]


def of_all(end: str) -> dict[str, tuple[str, ...]]:
    """The operators that take the largest, or the least, of all entries: ``max`` or ``min``."""
    return {
        f"a{end}": (f"{{y}} = {{x}}.a{end}(0, keepdim=True)",),
        end: (f"{{y}} = {{x}}.{end}()[None]",),
        f"{end}.dim": (f"{{y}} = {{x}}.{end}(0, keepdim=True).values",),
    }


OPERATIONS: dict[str, Operation] = {
    "affine": Operation(
        _affine,
        {
            "none": (
                "{y} = {x}.new_tensor({W}) @ {x} + {x}.new_tensor({b})",
                "{y} = F.linear({x}, {x}.new_tensor({W}), {x}.new_tensor({b}))",
                "{y} = {x}.new_tensor({b}).addmv({x}.new_tensor({W}), {x})",
                "{y} = {x}.new_tensor({b})\nfor line, v in zip({x}.new_tensor({W}).T, {x}):\n    {y} = {y} + line * v",
                "{y} = ({x}.new_tensor({W}) * {x}).sum(1)\n{y} += {x}.new_tensor({b})",
            )
        },
        ("W", "b"),
    ),
    "relu": Operation(
        entrywise(lambda cell, given, x: cell.bent(x, 0, 1)),
        {
            "relu": ("{y} = F.relu({x})", "{y} = {x}.clone()\n{y}.relu_()", "{y} = torch.nn.ReLU()({x})"),
            "clamp": (
                "{y} = torch.clamp({x}, min=0)",
                "{y} = {x} - {x}.clip(max=0)",
                "{y} = {x}.clone().clamp_(min=0)",
            ),
            "clamp_min": ("{y} = {x}.clamp_min(0.0)", "{y} = {x}.clone().clamp_min_(0.0)"),
            "maximum": ("{y} = torch.maximum({x}, torch.zeros_like({x}))", "{y} = torch.maximum(0 * {x}, {x})"),
            "fmax": ("{y} = torch.fmax({x}, torch.zeros_like({x}))",),
            "minimum": ("{y} = -torch.minimum(-{x}, torch.zeros_like({x}))",),
            "abs": ("{y} = ({x} + {x}.abs()) / 2",),
            "threshold": ("{y} = F.threshold({x}, 0.0, 0.0)",),
            "leaky_relu": ("{y} = F.leaky_relu({x}, 0.0)",),
            "prelu": ("{y} = F.prelu({x}, {x}.new_zeros(1))",),
            "hardtanh": ("{y} = F.hardtanh({x}, 0.0, inf)",),
            "losses": (
                "{y} = F.margin_ranking_loss({x}, 0 * {x}, -torch.ones_like({x}), reduction='none')",
                "{y} = F.hinge_embedding_loss(-{x}, -torch.ones_like({x}), margin=0.0, reduction='none')",
            ),
            "where": (
                "{y} = torch.where({x} > 0, {x}, 0.0)",
                "{y} = torch.where({x} >= 0, {x}, torch.zeros_like({x}))",
                "{y} = torch.where({x} < 0, 0.0, {x})",
                "{y} = torch.where(torch.le({x}, 0), 0 * {x}, {x})",
                "{y} = torch.where(0 < {x}, {x}, 0 * {x})",
            ),
            "masks": (
                "{y} = {x} * ({x} > 0)",
                "{y} = {x} * ({x} >= 0).to({x}.dtype)",
                "{y} = {x}.masked_fill({x} < 0, 0.0)",
                "{y} = {x}.clone()\n{y}[{y} < 0] = 0",
                "{y} = {x}.clone()\n{y}[{y} <= 0] = 0",
                "{y} = {x}.clone()\n{y}.masked_fill_({y} < 0, 0.0)",
                "{y} = torch.zeros_like({x})\nm = {x} > 0\n{y}[m] = {x}[m]",
                "m = {x} > 0\n{y} = torch.zeros_like({x}).masked_scatter(m, {x}[m])",
                "{y} = {x} * ~({x} < 0)",
            ),
            "if": (
                "{y} = torch.stack([v if v > 0 else 0 * v for v in {x}])",
                "{y} = torch.stack([v if v >= 0 else 0 * v for v in {x}])",
                "{y} = torch.stack([max(v, 0 * v) for v in {x}])",
                "{y} = []\nfor v in {x}:\n    if v < 0:\n        v = 0 * v\n    {y}.append(v)\n{y} = torch.stack({y})",
            ),
            "amax": ("{y} = torch.stack((0 * {x}, {x})).amax(0)",),
            "max.dim": ("{y} = torch.stack(({x}, 0 * {x})).max(0).values",),
            "sort": ("{y} = torch.stack(({x}, 0 * {x})).sort(0).values[1]",),
        },
    ),
    "abs": Operation(
        entrywise(lambda cell, given, x: cell.bent(x, -1, 1)),
        {
            "abs": ("{y} = {x}.abs()", "{y} = abs({x})", "{y} = {x}.clone()\n{y}.abs_()"),
            "maximum": ("{y} = torch.maximum({x}, -{x})",),
            "relu": ("{y} = F.relu({x}) + F.relu(-{x})", "{y} = 2 * F.relu({x}) - {x}"),
            "leaky_relu": ("{y} = F.leaky_relu({x}, -1.0)",),
            "prelu": ("{y} = F.prelu({x}, -{x}.new_ones(1))",),
            "copysign": ("{y} = torch.copysign({x}, torch.ones_like({x}))", "{y} = torch.copysign({x}, 1.0)"),
            "hypot": ("{y} = torch.hypot({x}, torch.zeros_like({x}))", "{y} = torch.hypot({x}, 0 * {x})"),
            "norms": (
                "{y} = torch.linalg.vector_norm({x}[:, None], dim=1)",
                "{y} = {x}[:, None].norm(dim=1)",
                "{y} = {x}[:, None].norm(p=1, dim=1)",
                "{y} = torch.linalg.vector_norm({x}[:, None], ord=inf, dim=1)",
                "{y} = torch.stack([torch.dist(v, 0 * v) for v in {x}])",
                "{y} = torch.cdist({x}[:, None], {x}.new_zeros(1, 1), p=1.0)[:, 0]",
            ),
            "losses": (
                "{y} = F.l1_loss({x}, 0 * {x}, reduction='none')",
                "{y} = F.smooth_l1_loss({x}, torch.zeros_like({x}), beta=0.0, reduction='none')",
            ),
            "where": (
                "{y} = torch.where({x} > 0, {x}, -{x})",
                "{y} = {x} * torch.where({x} < 0, -1.0, 1.0)",
            ),
            "masks": (
                "{y} = {x}.clone()\n{y}[{y} < 0] *= -1",
                "{y} = {x} * ({x} > 0) - {x} * ({x} <= 0)",
            ),
            "if": ("{y} = torch.stack([v if v >= 0 else -v for v in {x}])",),
        },
    ),
    "leaky_relu": Operation(
        entrywise(lambda cell, given, x: cell.bent(x, given["a"], 1)),
        {
            "leaky_relu": ("{y} = F.leaky_relu({x}, {a})", "{y} = F.leaky_relu({x}.clone(), {a}, inplace={a} > 0)"),
            "prelu": ("{y} = F.prelu({x}, {x}.new_tensor([{a}]))",),
            "rrelu": ("{y} = F.rrelu({x}, {a}, {a}, training=False)",),
            "where": ("{y} = torch.where({x} > 0, {x}, {a} * {x})", "{y} = torch.where({x} < 0, {a} * {x}, {x})"),
            "relu": ("{y} = {a} * {x} + (1 - {a}) * F.relu({x})",),
            "masks": (
                "{y} = {x}.clone()\n{y}[{y} < 0] *= {a}",
                "{y} = {x} * ({x} > 0) + {a} * {x} * ({x} <= 0)",
            ),
            "if": ("{y} = torch.stack([v if v > 0 else {a} * v for v in {x}])",),
        },
        ("a",),
    ),
    "clamp": Operation(
        entrywise(lambda cell, given, x: cell.clamped(x, given["low"], given["high"])),
        {
            "clamp": (
                "{y} = torch.clamp({x}, {low}, {high})",
                "{y} = {x}.clone().clamp_({low}, {high})",
                "{y} = {x}.clip({low}, {high})",
            ),
            "clamp_min": ("{y} = {x}.clamp_min({low}).clamp_max({high})",),
            "hardtanh": ("{y} = F.hardtanh({x}, {low}, {high})", "{y} = F.hardtanh_({x}.clone(), {low}, {high})"),
            "clamp.Tensor": (
                "{y} = torch.clamp({x}, torch.full_like({x}, {low}), torch.full_like({x}, {high}))",
                "{y} = {x}.clamp(min=0 * {x} + {low}).clamp(max=torch.full_like({x}, {high}))",
            ),
            "maximum": (
                "{y} = torch.minimum(torch.maximum({x}, torch.full_like({x}, {low})), torch.full_like({x}, {high}))",
            ),
            "fmax": ("{y} = torch.fmin(torch.fmax({x}, torch.full_like({x}, {low})), 0 * {x} + {high})",),
            "relu": ("{y} = {low} + F.relu({x} - {low}) - F.relu({x} - {high})",),
            "where": (
                "{y} = torch.where({x} < {low}, {low}, torch.where({x} > {high}, {high}, {x}))",
                "{y} = torch.where(({x} >= {low}) & ({x} <= {high}), {x}, torch.where({x} > {low}, {high}, {low}))",
            ),
            "masks": (
                "{y} = {x}.clone()\n{y}[{y} < {low}] = {low}\n{y}[{y} > {high}] = {high}",
                "{y} = {x}.masked_fill({x} <= {low}, {low}).masked_fill({x} >= {high}, {high})",
            ),
            "if": (
                "{y} = torch.stack([min(max(v, 0 * v + {low}), 0 * v + {high}) for v in {x}])",
                "{y} = {x}.clone()\nfor i in range(len({y})):\n    if {y}[i] > {high}:\n        {y}[i] = {high}\n"
                "    elif {y}[i] < {low}:\n        {y}[i] = {low}",
            ),
        },
        ("low", "high"),
    ),
    "relu6": Operation(
        entrywise(lambda cell, given, x: cell.clamped(x, 0, 6)),
        {
            "relu6": ("{y} = F.relu6({x})", "{y} = torch.nn.ReLU6(inplace=True)({x}.clone())"),
            "hardtanh": ("{y} = F.hardtanh({x}, 0.0, 6.0)",),
            "relu": ("{y} = F.relu({x}) - F.relu({x} - 6)",),
            "clamp": ("{y} = {x}.clamp(0, 6)", "{y} = F.relu({x}).clamp(max=6)"),
            "where": ("{y} = torch.where({x} > 6, 6.0, F.relu({x}))",),
        },
    ),
    "softshrink": Operation(
        entrywise(_soft),
        {
            "softshrink": ("{y} = F.softshrink({x}, {c})",),
            "clamp": ("{y} = {x} - {x}.clamp(-{c}, {c})",),
            "relu": ("{y} = F.relu({x} - {c}) - F.relu(-{x} - {c})",),
            "abs": ("{y} = {x} + (({x} - {c}).abs() - ({x} + {c}).abs()) / 2",),
            "where": ("{y} = torch.where({x} > {c}, {x} - {c}, torch.where({x} < -{c}, {x} + {c}, 0 * {x}))",),
            "masks": ("{y} = ({x} - {c}) * ({x} > {c}) + ({x} + {c}) * ({x} < -{c})",),
        },
        ("c",),
    ),
    "floor": Operation(  # max(x, c): "at least c"
        entrywise(lambda cell, given, x: cell.clamped(x, given["c"], None)),
        {
            "threshold": ("{y} = F.threshold({x}, {c}, {c})", "{y} = F.threshold_({x}.clone(), {c}, {c})"),
            "clamp_min": ("{y} = {x}.clamp_min({c})",),
            "clamp_min.Tensor": ("{y} = {x}.clamp_min(torch.full_like({x}, {c}))",),
            "maximum": ("{y} = torch.maximum(torch.full_like({x}, {c}), {x})",),
            "relu": ("{y} = F.relu({x} - {c}) + {c}",),
            "where": ("{y} = torch.where({x} > {c}, {x}, {c})",),
        },
        ("c",),
    ),
    "bend": Operation(  # slope p up to c, q beyond it
        entrywise(lambda cell, given, x: cell.bent(x, given["p"], given["q"], given["c"])),
        {
            "where": (
                "{y} = torch.where({x} > {c}, {q} * ({x} - {c}), {p} * ({x} - {c}))",
                "{y} = ({x} - {c}) * torch.where({x} >= {c}, {q}, {p})",
                "{y} = torch.where({x} - {c} < 0, {p} * ({x} - {c}), {q} * ({x} - {c}))",
                "{y} = torch.where({c} > {x}, {p} * ({x} - {c}), {q} * ({x} - {c}))",
            ),
            "masks": (
                "{y} = {x} - {c}\nm = {y} > 0\n{y}[m] *= {q}\n{y}[~m] *= {p}",
                "{y} = {x} - {c}\n{y} = {y} * ({p} + ({q} - {p}) * ({y} > 0))",
            ),
            "if": ("{y} = torch.stack([({q} if v > {c} else {p}) * (v - {c}) for v in {x}])",),
            "relu": ("{y} = {q} * F.relu({x} - {c}) - {p} * F.relu({c} - {x})",),
            "minimum": (
                "{y} = {q} * torch.maximum({x} - {c}, 0 * {x}) + {p} * torch.minimum({x} - {c}, torch.zeros_like({x}))",
            ),
        },
        ("p", "q", "c"),
    ),
    "interpolate": Operation(  # through t at -1, 0 and 1, constant beyond
        entrywise(_grid),
        {
            "grid_sample": (
                "m = torch.stack(({x}, torch.zeros_like({x})), 1)[None, None]\n"
                "{y} = {x}.new_tensor({t}).view(1, 1, 1, 3)\n"
                "{y} = F.grid_sample({y}, m, padding_mode='border', align_corners=True)[0, 0, 0]",
            ),
            "clamp": (
                "{y} = {t}[0] + ({t}[1] - {t}[0]) * ({x}.clamp(-1, 0) + 1) + ({t}[2] - {t}[1]) * {x}.clamp(0, 1)",
            ),
            "hardtanh": (
                "{y} = {t}[0] + ({t}[1] - {t}[0]) * F.hardtanh({x} + 1, 0.0, 1.0)\n"
                "{y} = {y} + ({t}[2] - {t}[1]) * F.hardtanh({x}, 0.0, 1.0)",
            ),
        },
        ("t",),
    ),
    "larger": Operation(
        entrywise(lambda cell, given, x, z: cell.larger(x, z)),
        {
            "maximum": ("{y} = torch.maximum({x}, {z})", "{y} = {z}.max({x})"),
            "fmax": ("{y} = torch.fmax({x}, {z})",),
            "clamp.Tensor": ("{y} = {x}.clamp(min={z})",),
            "clamp_min.Tensor": ("{y} = {x}.clamp_min({z})", "{y} = {x}.clone().clamp_min_({z})"),
            "relu": ("{y} = {x} + F.relu({z} - {x})",),
            "abs": ("{y} = ({x} + {z} + ({x} - {z}).abs()) / 2",),
            "amax": ("{y} = torch.stack(({x}, {z})).amax(0)",),
            "max.dim": ("{y} = torch.stack(({z}, {x})).max(0).values",),
            "sort": ("{y} = torch.stack(({x}, {z})).sort(0).values[1]",),
            "topk": ("{y} = torch.stack(({x}, {z})).topk(1, dim=0).values[0]",),
            "cummax": ("{y} = torch.stack(({x}, {z})).cummax(0).values[1]",),
            "scatter_reduce": (
                "{y} = {x}.scatter_reduce(0, torch.arange(len({x})), {z}, 'amax')",
                "{y} = {x}.index_reduce(0, torch.arange(len({x})), {z}, 'amax')",
            ),
            "where": ("{y} = torch.where({x} > {z}, {x}, {z})", "{y} = torch.where({x} <= {z}, {z}, {x})"),
            "masks": ("{y} = {x}.clone()\nm = {z} > {x}\n{y}[m] = {z}[m]", "m = {x} > {z}\n{y} = m * {x} + ~m * {z}"),
            "if": (
                "{y} = torch.stack([v if v > w else w for v, w in zip({x}, {z})])",
                "{y} = torch.stack([max(v, w) for v, w in zip({x}, {z})])",
            ),
            "argmax": ("{y} = torch.stack(({x}, {z}))\n{y} = {y}.gather(0, {y}.argmax(0, keepdim=True))[0]",),
        },
        arity=2,
    ),
    "smaller": Operation(
        entrywise(lambda cell, given, x, z: cell.smaller(x, z)),
        {
            "minimum": ("{y} = torch.minimum({x}, {z})", "{y} = {z}.min({x})"),
            "fmin": ("{y} = torch.fmin({x}, {z})",),
            "clamp.Tensor": ("{y} = {x}.clamp(max={z})",),
            "clamp_max.Tensor": ("{y} = {x}.clamp_max({z})",),
            "relu": ("{y} = {x} - F.relu({x} - {z})",),
            "amin": ("{y} = torch.stack(({x}, {z})).amin(0)",),
            "min.dim": ("{y} = torch.stack(({z}, {x})).min(0).values",),
            "kthvalue": ("{y} = torch.stack(({x}, {z})).kthvalue(1, dim=0).values",),
            "median.dim": ("{y} = torch.stack(({x}, {z})).median(0).values",),
            "cummin": ("{y} = torch.stack(({x}, {z})).cummin(0).values[1]",),
            "where": ("{y} = torch.where({x} < {z}, {x}, {z})",),
            "masks": ("{y} = {x}.clone()\n{y}[{z} < {x}] = {z}[{z} < {x}]",),
            "if": ("{y} = torch.stack([min(v, w) for v, w in zip({x}, {z})])",),
        },
        arity=2,
    ),
    "clamp_between": Operation(
        entrywise(lambda cell, given, x, z, u: cell.smaller(cell.larger(x, z), u)),
        {
            "clamp.Tensor": ("{y} = torch.clamp({x}, {z}, {u})",),
            "clamp_min.Tensor": ("{y} = {x}.clamp_min({z}).clamp_max({u})",),
            "maximum": ("{y} = torch.minimum(torch.maximum({x}, {z}), {u})",),
            "where": ("{y} = torch.where({x} > {z}, {x}, {z})\n{y} = torch.where({y} < {u}, {y}, {u})",),
        },
        arity=3,
    ),
    "middle_of_three": Operation(
        entrywise(lambda cell, given, *three: cell.sorted(three)[1]),
        {
            "median.dim": ("{y} = torch.stack(({x}, {z}, {u})).median(0).values",),
            "nanmedian.dim": ("{y} = torch.stack(({x}, {z}, {u})).nanmedian(0).values",),
            "kthvalue": ("{y} = torch.stack(({x}, {z}, {u})).kthvalue(2, dim=0).values",),
            "sort": ("{y} = torch.stack(({x}, {z}, {u})).sort(0).values[1]",),
            "topk": ("{y} = torch.stack(({x}, {z}, {u})).topk(2, dim=0).values[1]",),
            "maximum": ("{y} = torch.maximum(torch.minimum({x}, {z}), torch.minimum(torch.maximum({x}, {z}), {u}))",),
            "aminmax": (
                "{y} = torch.stack(({x}, {z}, {u}))\nends = {y}.aminmax(dim=0)\n{y} = {y}.sum(0) - ends.min - ends.max",
            ),
        },
        arity=3,
    ),
    "largest": Operation(
        lambda cell, given, x: [cell.largest(x)],
        {
            **of_all("max"),
            "aminmax": ("{y} = {x}.aminmax().max[None]",),
            "topk": ("{y} = {x}.topk(1).values",),
            "sort": ("{y} = {x}.sort().values[-1:]",),
            "kthvalue": ("{y} = {x}.kthvalue(len({x}), keepdim=True).values",),
            "cummax": ("{y} = {x}.cummax(0).values[-1:]",),
            "max_pool": (
                "{y} = F.max_pool1d({x}[None, None], len({x}))[0, 0]",
                "{y} = F.max_pool2d({x}[None, None], (1, len({x})))[0, 0]",
                "{y} = F.max_pool3d({x}[None, None, None], (1, 1, len({x})))[0, 0, 0]",
                "{y} = F.adaptive_max_pool1d({x}[None, None], 1)[0, 0]",
                "{y} = F.adaptive_max_pool2d({x}[None, None], 1)[0, 0]",
            ),
            "scatter_reduce": (
                "m = torch.zeros(len({x}), dtype=int)\n"
                "{y} = {x}.new_zeros(1).scatter_reduce(0, m, {x}, 'amax', include_self=False)",
            ),
            "segment_reduce": ("{y} = torch.segment_reduce({x}, 'max', lengths=torch.tensor([len({x})]))",),
            "embedding_bag": ("{y} = F.embedding_bag(torch.arange(len({x}))[None], {x}[:, None], mode='max')[0]",),
            "argmax": ("{y} = {x}[{x}.argmax()][None]", "{y} = {x}[{x}.max(0).indices][None]"),
            "if": (
                "{y} = max({x})[None]",
                "{y} = {x}[0]\nfor v in {x}[1:]:\n    if v > {y}:\n        {y} = v\n{y} = {y}[None]",
                "{y} = {x}[0]\nfor v in {x}[1:]:\n    {y} = torch.maximum({y}, v)\n{y} = {y}[None]",
                "{y} = {x}[:1].clone()\nfor v in {x}[1:]:\n    {y}.clamp_(min=v)",
            ),
        },
        narrowest=2,
    ),
    "least": Operation(
        lambda cell, given, x: [cell.smallest(x)],
        {
            **of_all("min"),
            "aminmax": ("{y} = torch.aminmax({x}, dim=0, keepdim=True).min",),
            "topk": ("{y} = {x}.topk(1, largest=False).values",),
            "cummin": ("{y} = {x}.cummin(0).values[-1:]",),
            "scatter_reduce": (
                "m = torch.zeros(len({x}), dtype=int)\n"
                "{y} = {x}.new_zeros(1).index_reduce(0, m, {x}, 'amin', include_self=False)",
            ),
            "segment_reduce": ("{y} = torch.segment_reduce({x}, 'min', lengths=torch.tensor([len({x})]))",),
            "argmax": ("{y} = {x}[{x}.argmin()][None]",),
            "if": ("{y} = min({x})[None]",),
        },
        narrowest=2,
    ),
    "median": Operation(  # the lower one, as torch.median
        lambda cell, given, x: [cell.sorted(x)[(len(x) - 1) // 2]],
        {
            "median": ("{y} = {x}.median()[None]", "{y} = {x}.nanmedian()[None]"),
            "median.dim": ("{y} = {x}.median(0, keepdim=True).values", "{y} = {x}.nanmedian(0, keepdim=True).values"),
            "kthvalue": ("{y} = {x}.kthvalue((len({x}) + 1) // 2, keepdim=True).values",),
            "sort": (
                "{y} = {x}.sort().values[(len({x}) - 1) // 2][None]",
                "{y} = {x}.quantile(0.5, interpolation='lower')[None]",
            ),
        },
        narrowest=2,
    ),
    "sorted": Operation(
        lambda cell, given, x: cell.sorted(x),
        {
            "sort": (
                "{y} = {x}.sort().values",
                "{y} = torch.sort({x}, stable=True).values",
                "{y} = {x}.sort(descending=True).values.flip(0)",
                "{y} = torch.msort({x})",
                "{y} = {x}.gather(0, {x}.sort().indices)",
            ),
            "topk": ("{y} = {x}.topk(len({x})).values.flip(0)",),
            "argsort": ("{y} = {x}[{x}.argsort()]",),
            "if": (
                "{y} = list({x})\nfor i in range(len({y})):\n    for j in range(len({y}) - 1 - i):\n"
                "        if {y}[j] > {y}[j + 1]:\n            {y}[j], {y}[j + 1] = {y}[j + 1], {y}[j]\n"
                "{y} = torch.stack({y})",
                "{y} = torch.stack(sorted({x}))",
            ),
        },
        narrowest=2,
    ),
    "running": Operation(
        _running,
        {
            "cummax": ("{y} = {x}.cummax(0).values",),
            "cummin": ("{y} = -(-{x}).cummin(0).values",),
            "amax": ("{y} = torch.stack([{x}[: i + 1].amax() for i in range(len({x}))])",),
            "if": (
                "{y} = {x}.clone()\nfor i in range(1, len({y})):\n"
                "    {y}[i] = torch.maximum({y}[i - 1].clone(), {y}[i].clone())",
            ),
        },
        narrowest=2,
    ),
    "pool": Operation(  # the larger of every two neighbours
        lambda cell, given, x: [cell.larger(*pair) for pair in pairwise(x)],
        {
            "max_pool": (
                "{y} = F.max_pool1d({x}[None, None], 2, 1)[0, 0]",
                "{y} = F.max_pool2d({x}[None, None], (1, 2), 1)[0, 0]",
                "{y} = F.max_pool3d({x}[None, None, None], (1, 1, 2), 1)[0, 0, 0]",
            ),
            "maximum": ("{y} = torch.maximum({x}[:-1], {x}[1:])",),
            "amax": ("{y} = {x}.unfold(0, 2, 1).amax(1)",),
        },
        narrowest=2,
    ),
    "taxicab": Operation(
        lambda cell, given, x: [sum(_folded(cell, x), 0 * x[0])],
        {
            "norms": (
                "{y} = {x}.norm(1)[None]",
                "{y} = torch.linalg.vector_norm({x}, ord=1)[None]",
                "{y} = torch.dist({x}, torch.zeros_like({x}), p=1)[None]",
                "{y} = torch.cdist({x}[None], 0 * {x}[None], p=1.0)[0]",
            ),
            "losses": ("{y} = F.l1_loss({x}, 0 * {x}, reduction='sum')[None]",),
            "abs": ("{y} = {x}.abs().sum(0, keepdim=True)",),
            "masks": ("{y} = ({x}[{x} > 0].sum() - {x}[{x} < 0].sum())[None]",),
        },
        narrowest=2,
    ),
    "largest_size": Operation(
        lambda cell, given, x: [cell.largest(_folded(cell, x))],
        {
            "norms": (
                "{y} = torch.linalg.vector_norm({x}, ord=inf)[None]",
                "{y} = {x}.norm(inf)[None]",
                "{y} = torch.dist({x}, torch.zeros_like({x}), p=inf)[None]",
                "{y} = torch.cdist({x}[None], 0 * {x}[None], p=inf)[0]",
            ),
            "amax": ("{y} = {x}.abs().amax()[None]",),
            "maximum": ("{y} = torch.maximum({x}.max(), -{x}.min())[None]",),
        },
        narrowest=2,
    ),
    "positive_part": Operation(
        lambda cell, given, x: [sum((cell.bent(each, 0, 1) for each in x), 0 * x[0])],
        {
            "masks": (
                "{y} = {x}[{x} > 0].sum()[None]",
                "{y} = {x}.masked_select({x} >= 0).sum()[None]",
                "{y} = {x}[torch.nonzero({x} > 0)[:, 0]].sum()[None]",
                "{y} = ({x}.new_zeros(1) + {x} @ ({x} > 0).to({x}.dtype))",
            ),
            "relu": ("{y} = F.relu({x}).sum()[None]",),
            "if": ("{y} = {x}.new_zeros(1)\nfor v in {x}:\n    if v > 0:\n        {y} = {y} + v",),
        },
        narrowest=2,
    ),
    "hinges": Operation(  # the multi-class hinge loss for class 0
        _hinges,
        {
            "multi_margin_loss": (
                "{y} = F.multi_margin_loss({x}[None], torch.tensor([0]), reduction='none') * len({x})",
            ),
            "multilabel_margin_loss": (
                "m = torch.tensor([[0] + [-1] * (len({x}) - 1)])\n"
                "{y} = F.multilabel_margin_loss({x}[None], m, reduction='none') * len({x})",
            ),
            "relu": ("{y} = F.relu(1 - {x}[0] + {x}[1:]).sum()[None]",),
            "clamp": ("{y} = (1 - {x}[0] + {x}[1:]).clamp(min=0).sum()[None]",),
        },
        narrowest=2,
    ),
    "iterated": Operation(  # k layers with the same square weights
        _iterated,
        {
            "relu": (
                "{y} = {x}\nfor _ in range({k}):\n    {y} = F.relu({x}.new_tensor({W}) @ {y} + {x}.new_tensor({b}))",
            ),
            "where": (
                "{y} = {x}\nfor _ in range({k}):\n    {y} = {x}.new_tensor({W}) @ {y} + {x}.new_tensor({b})\n"
                "    {y} = torch.where({y} > 0, {y}, 0.0)",
            ),
            "clamp": (
                "{y}, i = {x}, 0\nwhile i < {k}:\n    i += 1\n"
                "    {y} = torch.addmv({x}.new_tensor({b}), {x}.new_tensor({W}), {y}).clamp_(min=0)",
            ),
        },
        ("k", "W", "b"),
    ),
    "square": Operation(
        entrywise(lambda cell, given, x: x * x),
        {
            "none": (
                "{y} = {x} * {x}",
                "{y} = {x} ** 2",
                "{y} = {x}.square()",
                "{y} = F.relu({x}) ** 2 + F.relu(-{x}) ** 2",
            ),
            "abs": ("{y} = {x}.abs() ** 2", "{y} = {x}.abs() * {x}.abs()"),
            "where": ("{y} = {x} * torch.where({x} > 0, {x}, 0.0) + {x} * torch.where({x} > 0, 0.0, {x})",),
            "masks": ("{y} = {x}.clone()\n{y}[{y} < 0] *= -1\n{y} = {y} * {y}",),
        },
        curved=True,
    ),
    "product": Operation(
        entrywise(lambda cell, given, x, z: x * z),
        {
            "none": ("{y} = {x} * {z}", "{y} = torch.addcmul(torch.zeros_like({x}), {x}, {z})"),
            "maximum": ("{y} = torch.maximum({x}, {z}) * torch.minimum({x}, {z})",),
            "sort": ("{y} = torch.stack(({x}, {z})).sort(0).values.prod(0)",),
            "relu": ("{y} = (F.relu({x}) - F.relu(-{x})) * {z}",),
            "if": ("{y} = torch.stack([w * v if v > w else v * w for v, w in zip({x}, {z})])",),
        },
        arity=2,
        curved=True,
    ),
}
