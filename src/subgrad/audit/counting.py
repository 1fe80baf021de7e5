"""How many entries of one call lie on its kinks: counted below autograd, on the device, and read by nobody yet."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from math import inf, prod
from typing import Any

import torch
from torch import Tensor

from subgrad.apply import window_scan
from subgrad.apply.autograd_nodes import is_readable
from subgrad.apply.pass_kernels import Call
from subgrad.audit.result import DECADES
from subgrad.kernels.cuda_bitmask import is_dense
from subgrad.kinks import KINKS, Kink
from subgrad.kinks.pooling_windows import of_call, regular
from subgrad.kinks.sets import Ball, Joint, Jump, Slopes, Ties
from subgrad.torch_internals.autograd import below_autograd_and_views as values
from subgrad.torch_internals.dispatcher import disable_autocast

COMPARISONS = tuple(f"{name}.{form}" for name in ("gt", "ge", "lt", "le", "eq", "ne") for form in ("Tensor", "Scalar"))
KINDS = {Slopes: "corner", Ties: "tie", Ball: "norm", Joint: "joint", Jump: "jump"}

PIECE = 2**22  # entries looked at at once, so that looking takes little memory: torch counts in 8 bytes an entry
MOST = 2**27  # entries of what places of many rows are made of; beyond it is not looked
SAMPLE = 1024  # entries of each call whose distances are measured

INTEGERS = {2: torch.int16, 4: torch.int32, 8: torch.int64}


def operators() -> tuple[str, ...]:
    """Those that are looked at. The condition of `where` comes from a comparison, which is counted itself."""
    return (*(op for op in KINKS.overloads if op != "where.self"), *COMPARISONS)


@dataclass(frozen=True)
class Place:
    """A kink that calls of an operator can meet, in words."""

    kind: str
    kink: str
    set: str

    @classmethod
    @cache
    def of(cls, kink: Kink | None) -> Place:
        if kink is None:
            return cls("comparison", "self == other", "what the answer decides")
        return cls(KINDS[type(kink.set)], kink.words, str(kink.set))


@dataclass(frozen=True)
class Found:
    """What one call meets at one place. The tensors are counts on the device.

    Attributes:
        beyond: of a sample of entries, how many are not on the kink, and how many are 10^k or further away from the
            nearest one, for every k of ``DECADES``.
    """

    place: Place
    entries: int
    hits: Tensor
    near: Tensor | None = None
    beyond: Tensor | None = None


class NotLookedAt(Exception):  # noqa: N818
    """Why a call was not looked at."""


def differentiated(call: Call) -> frozenset[str]:
    """The arguments that require grad, while autograd records."""
    if not torch.is_grad_enabled():
        return frozenset()
    tensors = ((name, call.arguments[name]) for name in call.op.tensor_names)
    return frozenset(name for name, each in tensors if isinstance(each, Tensor) and each.requires_grad)


def found(call: Call, names: frozenset[str], ulps: int) -> list[Found]:
    """What a call meets at each of its places. Called before it runs, since it may overwrite its argument."""
    given = [call.arguments[name] for name in call.op.tensor_names]
    if not all(is_readable(each) for each in given if isinstance(each, Tensor)):
        raise NotLookedAt(
            "tensors that are no plain memory: compiled, transformed, captured or of a class of their own"
        )
    with values(), disable_autocast():
        if call.op.op in COMPARISONS:
            return _compared(call.arguments, ulps)
        kinks = applying(call, names)
        _refuse_too_much(call)
        distances = _beyond(kinks, call.arguments)
        return [
            Found(
                Place.of(kink),
                *_count(kink, call.arguments),
                near=_near(kink, call.arguments, ulps) if ulps else None,
                beyond=distances if index == 0 else None,
            )
            for index, kink in enumerate(kinks)
        ]


def applying(call: Call, names: frozenset[str]) -> list[Kink]:
    """The kinks that exist for a call's arguments, in those that are differentiated."""
    return [
        kink
        for kink in call.op.kinks
        if (isinstance(kink.set, Jump) or not names.isdisjoint(kink.set.candidates)) and kink.applies(call.arguments)
    ]


def _compared(arguments: Mapping[str, Any], ulps: int) -> list[Found]:
    one, other = arguments["self"], arguments["other"]
    if one is other:  # as `isnan` asks
        return []
    ties = (one == other) & (one.abs() != inf)  # what is masked with an infinity is not about to move
    near = torch.count_nonzero((steps_between(one, other) <= ulps) & ~ties) if ulps else None
    return [Found(Place.of(None), ties.numel(), torch.count_nonzero(ties), near)]


def _refuse_too_much(call: Call) -> None:
    sizes = {name: each.shape for name, each in call.arguments.items() if isinstance(each, Tensor)}
    if call.op.op == "_pdist_forward":
        size = sizes["self"].numel() * sizes["self"][0]
    elif call.op.op == "multilabel_margin_loss_forward":
        size = sizes["self"].numel() * (*sizes["self"], 1)[-1]
    else:
        return
    if size > MOST:
        raise NotLookedAt("too many pairs to look at")


def _count(kink: Kink, arguments: Mapping[str, Any]) -> tuple[int, Tensor]:
    """How many places there are, and how many of them are hit."""
    if "regular(" in kink.at:
        counted = _in_one_pass(arguments)
        if counted is not None:
            return counted
    entries, hits = 0, []
    for piece in _pieces(kink, arguments):
        met = kink.hits(piece)
        entries += met.numel()
        hits.append(torch.count_nonzero(met))
    return entries, _total(hits)


def _total(counts: list[Tensor]) -> Tensor:
    return counts[0] if len(counts) == 1 else torch.stack(counts).sum()


def _in_one_pass(arguments: Mapping[str, Any]) -> tuple[int, Tensor] | None:
    """Windows and tied ones, where a kernel of ours looks at all of them at once."""
    shortcut, x = window_scan.for_windows(), arguments["self"]
    tied = None if shortcut is None else shortcut.ties(x, None, arguments)
    if tied is None:
        return None
    return x.shape[:-2].numel() * prod(of_call(regular, arguments).shape), tied.long()


def _pieces(kink: Kink, arguments: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The call in pieces that are looked at one after the other."""
    if isinstance(kink.set, Slopes):
        for piece in flat(arguments["self"]).split(PIECE):
            yield {**arguments, "self": piece}
    elif kink.op in ("_cdist_forward", "_euclidean_dist"):
        x1, x2 = arguments["x1"], arguments["x2"]
        rows = max(1, PIECE // max(1, x2.shape[:-2].numel() * x2.shape[-2:].numel()))
        for piece in x1.split(rows, dim=-2):
            yield {**arguments, "x1": piece}
    elif "tied_in_windows" in kink.at and arguments["self"].ndim > 3 and "random_samples" not in arguments:
        images = max(1, PIECE // max(1, arguments["self"][0].numel()))
        for piece in arguments["self"].split(images):
            yield {**arguments, "self": piece}
    else:
        yield arguments


def flat(x: Tensor) -> Tensor:
    """All entries in a row, in whichever order they lie in memory."""
    return x.detach().as_strided((x.numel(),), (1,)) if is_dense(x) else x.detach().reshape(-1)


# Beside a kink.


def _near(kink: Kink, arguments: Mapping[str, Any], ulps: int) -> Tensor | None:
    """How many entries are within some units in the last place of a kink, and not on it."""
    if isinstance(kink.set, Slopes):
        pieces = _pieces(kink, arguments)
        return _total([_beside(steps_between(each["self"], kink.place_value(each)), ulps) for each in pieces])
    if isinstance(kink.set, Ties):
        one, other = (arguments[name] for name in kink.set.candidates[:2])
        steps = steps_between(one, other)
    elif isinstance(kink.set, Ball):
        one, other = (steps_between(arguments[name], 0.0) for name in kink.set.candidates)
        steps = torch.maximum(one, other)
    else:
        return None
    return _beside(steps, ulps)


def _beside(steps: Tensor, ulps: int) -> Tensor:
    return torch.count_nonzero((steps <= ulps) & (steps > 0))


def steps_between(one: Tensor, other: Tensor | float) -> Tensor:
    """How many floating-point numbers one has to step over to come from one to the other."""
    other = other if isinstance(other, Tensor) else torch.full((), other, dtype=one.dtype, device=one.device)
    one, other = (each.detach().to(torch.promote_types(one.dtype, other.dtype)) for each in (one, other))
    steps = (_rank(one) - _rank(other)).abs()
    return torch.where((one == one) & (other == other), steps, 2**62)


def _rank(x: Tensor) -> Tensor:
    """The number of a floating-point number among all of them, in their order."""
    kind = INTEGERS[x.element_size()]
    bits = x.contiguous().view(kind).long()
    return torch.where(bits < 0, torch.iinfo(kind).min - bits, bits)


# How far away from the nearest kink.


def _beyond(kinks: list[Kink], arguments: Mapping[str, Any]) -> Tensor | None:
    """For corners and ties between tensors of one shape, of a sample of the entries."""
    if not kinks or not all(isinstance(kink.set, Slopes | Ties) for kink in kinks):
        return None
    found = [_distance(kink, arguments) for kink in kinks]
    distances = [each for each in found if each is not None]
    if len(distances) < len(kinks):
        return None
    nearest = torch.stack(distances).amin(0) if len(distances) > 1 else distances[0]
    away = (nearest > 0)[:, None] & (nearest[:, None] >= _edges(nearest.device))
    return torch.count_nonzero(away, dim=0)


def _distance(kink: Kink, arguments: Mapping[str, Any]) -> Tensor | None:
    if isinstance(kink.set, Slopes):
        place = kink.place_value(arguments)
        return None if isinstance(place, Tensor) else (_sample(arguments["self"]).float() - place).abs()
    one, other = (arguments[name] for name in kink.set.candidates[:2])
    if one.shape != other.shape or one.stride() != other.stride():
        return None
    return (_sample(one).float() - _sample(other).float()).abs()


def _sample(x: Tensor) -> Tensor:
    if not is_dense(x):
        x = x.detach()[(0,) * max(0, x.ndim - 1)] if x.ndim > 1 and x.numel() else x.detach()
    return flat(x)[:: max(1, x.numel() // SAMPLE)]


@cache
def _edges(device: torch.device) -> Tensor:
    return torch.tensor([0.0, *(10.0**k for k in DECADES)], device=device)
