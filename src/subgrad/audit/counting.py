"""How many entries of one call lie on its kinks: counted below autograd, on the device, and read by nobody yet."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache, lru_cache
from math import inf, prod
from typing import Any, NamedTuple

import torch
from torch import Tensor

from subgrad.apply.autograd_nodes import is_readable
from subgrad.apply.operators import Operator
from subgrad.apply.pass_kernels import PassCall
from subgrad.audit.result import DECADES
from subgrad.kernels.cuda_bitmask import is_dense
from subgrad.kernels.cuda_corner_scan import count_at
from subgrad.kernels.window_scan import tied_windows
from subgrad.kinks import KINKS, Kink
from subgrad.kinks.pooling_windows import of_call, regular
from subgrad.kinks.rounded import rounded
from subgrad.kinks.sets import Ball, Joint, Jump, Pole, Slopes, Ties
from subgrad.torch_internals.autograd import below_autograd_and_views as values
from subgrad.torch_internals.dispatcher import disable_autocast

COMPARISONS = tuple(f"{name}.{form}" for name in ("gt", "ge", "lt", "le", "eq", "ne") for form in ("Tensor", "Scalar"))
KINDS = {Slopes: "corner", Ties: "tie", Ball: "norm", Joint: "joint", Jump: "jump", Pole: "pole"}

PIECE = 2**22  # entries looked at at once, so that looking takes little memory: torch counts in 8 bytes an entry
MOST = 2**27  # entries of what places of many rows are made of; beyond it is not looked
SAMPLE = 1024  # entries of each call whose distances are measured

INTEGERS = {2: torch.int16, 4: torch.int32, 8: torch.int64}


def operators() -> tuple[str, ...]:
    """Those that are looked at. The condition of `where` comes from a comparison, which is counted itself."""
    finite = dict.fromkeys(kink.op for kink in KINKS if not kink.is_infinite and kink.op != "where.self")
    return (*finite, *COMPARISONS)


class Place(NamedTuple):
    """A kink that calls of an operator can meet, in words."""

    kind: str
    kink: str
    set: str


@cache
def place_of(kink: Kink) -> Place:
    return Place(KINDS[type(kink.set)], kink.words, str(kink.set))


COMPARED = Place("comparison", "self == other", "what the answer decides")


class Sample(NamedTuple):
    """Some entries of a call.

    Attributes:
        entries: copied, since the call may overwrite them.
        corners: where the kinks are to which they may be near; None where the entries are themselves distances.
    """

    entries: Tensor
    corners: tuple[float, ...] | None = None


class Found(NamedTuple):
    """What one call meets. The tensors are counts on the device: they hold one place after the other, whatever their
    shapes.

    Attributes:
        places: that it can meet.
        entries: how many of them there are at each place.
        hits, near: how many lie on it, and beside it.
        sample: of its entries, from which to tell how far they are from the nearest place.
    """

    places: tuple[Place, ...]
    entries: tuple[int, ...]
    hits: Sequence[Tensor]
    near: Sequence[Tensor] = ()
    sample: Sample | None = None

    def has_hits(self) -> bool:
        return any(bool(each.any()) for each in self.hits)


NOTHING = Found((), (), ())


class NotLookedAt(Exception):  # noqa: N818
    """Why a call was not looked at."""


def differentiated(call: PassCall) -> frozenset[str]:
    """The arguments that require grad, while autograd records."""
    if not torch.is_grad_enabled():
        return _NONE
    found = []
    for name in call.op.tensor_names:
        each = call.arguments[name]
        if isinstance(each, Tensor) and each.requires_grad:
            found.append(name)
    return frozenset(found) if found else _NONE


_NONE: frozenset[str] = frozenset()


def found(call: PassCall, names: frozenset[str], ulps: int) -> Found:
    """What a call meets at each of its places. Called before it runs, since it may overwrite its argument."""
    for name in call.op.tensor_names:
        each = call.arguments[name]
        if isinstance(each, Tensor) and not is_readable(each):
            raise NotLookedAt(
                "tensors that are no plain memory: compiled, transformed, captured or of a class of their own"
            )
    with values(), disable_autocast():
        corners = _corners(call)
        if corners is not None:
            return _at_corners(corners, call.arguments["self"], ulps)
        if call.op.op in COMPARISONS:
            return _compared(call.arguments, ulps)
        return _at_kinks(applying(call, names), call, ulps)


# Corners of operators of one tensor, which most calls are: their places depend on numbers alone.


class Corners(NamedTuple):
    """Where the corners of an operator lie, for its numbers."""

    places: tuple[Place, ...]
    at: tuple[float, ...]


def _corners(call: PassCall) -> Corners | None:
    """None for calls with kinks of another kind."""
    op = call.op
    if not op.has_corners or not call.arguments["self"].is_floating_point():
        return None
    numbers = [call.arguments[name] for name in op.argument_names if name != "self"]
    return _corners_of(op.op, tuple(numbers), call.arguments["self"].dtype)


@lru_cache(maxsize=1024)  # numbers may be other ones in every call
def _corners_of(op: str, numbers: tuple[Any, ...], dtype: torch.dtype) -> Corners | None:
    operator = Operator(op)
    names = [name for name in operator.argument_names if name != "self"]
    arguments = dict(zip(names, numbers, strict=True))
    kinks = [kink for kink in operator.kinks if kink.applies(arguments, dtype)]
    if not all(isinstance(kink.set, Slopes) for kink in kinks):
        return None
    at = tuple(rounded(kink.place_value(arguments, dtype), dtype) for kink in kinks)
    return Corners(tuple(map(place_of, kinks)), at)


def _at_corners(corners: Corners, x: Tensor, ulps: int) -> Found:
    if not corners.at:
        return NOTHING
    entries = (x.numel(),) * len(corners.at)
    hits, near = _equal(x, corners.at), ()
    if ulps:
        near = [_total([_beside(steps_between(each, at), ulps) for each in _split(x)]) for at in corners.at]
    return Found(corners.places, entries, hits, near, Sample(_sample(x), corners.at))


def _equal(x: Tensor, numbers: tuple[float, ...]) -> Sequence[Tensor]:
    """How many entries equal each of some numbers."""
    counts = count_at(x, numbers)
    if counts is not None:
        return [counts]
    if x.numel() <= PIECE:
        return [torch.count_nonzero(x == number) for number in numbers]
    return [_total([torch.count_nonzero(each == number) for each in _split(x)]) for number in numbers]


def _split(x: Tensor) -> Sequence[Tensor]:
    return flat(x).split(PIECE)


# All other kinks.


def _at_kinks(kinks: list[Kink], call: PassCall, ulps: int) -> Found:
    if not kinks:
        return NOTHING
    _refuse_too_much(call)
    entries, hits = zip(*(_count(kink, call.arguments) for kink in kinks), strict=True)
    near = [_near(kink, call.arguments, ulps) for kink in kinks] if ulps else ()
    distances = _distances(kinks, call.arguments)
    return Found(tuple(map(place_of, kinks)), entries, hits, near, None if distances is None else Sample(distances))


def applying(call: PassCall, names: frozenset[str]) -> list[Kink]:
    """The kinks that exist for a call's arguments, in those that are differentiated."""
    return [
        kink
        for kink in call.op.kinks
        if (isinstance(kink.set, Jump) or not names.isdisjoint(kink.set.candidates))
        if not kink.is_infinite and kink.applies(call.arguments)
    ]


def _compared(arguments: Mapping[str, Any], ulps: int) -> Found:
    one, other = arguments["self"], arguments["other"]
    if one is other:  # as `isnan` asks
        return NOTHING
    ties = (one == other) & (one.abs() != inf)  # what is masked with an infinity is not about to move
    near = [torch.count_nonzero((steps_between(one, other) <= ulps) & ~ties)] if ulps else ()
    return Found((COMPARED,), (ties.numel(),), [torch.count_nonzero(ties)], near)


def _refuse_too_much(call: PassCall) -> None:
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
    x = arguments["self"]
    tied = tied_windows(x, arguments)
    if tied is None:
        return None
    outputs = of_call(regular, arguments).shape
    return x.shape[: -len(outputs)].numel() * prod(outputs), tied


def _pieces(kink: Kink, arguments: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The call in pieces that are looked at one after the other."""
    if isinstance(kink.set, Slopes):
        for piece in _split(arguments["self"]):
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
    return x.as_strided((x.numel(),), (1,)) if is_dense(x) else x.reshape(-1)


# Beside a kink.


def _near(kink: Kink, arguments: Mapping[str, Any], ulps: int) -> Tensor:
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
    else:  # there is no such distance
        return torch.zeros((), dtype=torch.int64, device=next(_tensors(arguments)).device)
    return _beside(steps, ulps)


def _tensors(arguments: Mapping[str, Any]) -> Iterator[Tensor]:
    return (each for each in arguments.values() if isinstance(each, Tensor))


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


def _distances(kinks: list[Kink], arguments: Mapping[str, Any]) -> Tensor | None:
    """For corners and ties between tensors of one shape, of a sample of the entries, to the nearest kink."""
    if not all(isinstance(kink.set, Slopes | Ties) for kink in kinks):
        return None
    found = [_distance(kink, arguments) for kink in kinks]
    distances = [each for each in found if each is not None]
    if len(distances) < len(kinks):
        return None
    return torch.stack(distances).amin(0) if len(distances) > 1 else distances[0]


def _distance(kink: Kink, arguments: Mapping[str, Any]) -> Tensor | None:
    if isinstance(kink.set, Slopes):
        place = kink.place_value(arguments)
        return None if isinstance(place, Tensor) else (_sample(arguments["self"]).float() - place).abs()
    one, other = (arguments[name] for name in kink.set.candidates[:2])
    if one.shape != other.shape or one.stride() != other.stride():
        return None
    return (_sample(one).float() - _sample(other).float()).abs()


def _sample(x: Tensor) -> Tensor:
    """A copy of some entries, spread over all of them."""
    if not is_dense(x):
        x = (x[(0,) * (x.ndim - 1)] if x.numel() else x).contiguous()
    return torch.as_strided_copy(x, (min(x.numel(), SAMPLE),), (max(1, x.numel() // SAMPLE),))


def decades(samples: Sequence[Sample]) -> list[list[int]]:
    """For each sample how many of its entries lie off the kinks in each decade of distance to the nearest one.

    The first decade begins at the kink, those after it where ``DECADES`` say, and the last has no end.
    """
    alike: dict[Any, list[int]] = {}
    for number, (entries, corners) in enumerate(samples):
        alike.setdefault((corners, entries.device), []).append(number)
    width = len(DECADES) + 1
    counts = torch.zeros(len(samples) * width, dtype=torch.int64)
    for (corners, _), numbers in alike.items():
        parts = [samples[number].entries for number in numbers]
        distances = torch.cat(parts).float().cpu()
        if corners is not None:
            distances = (distances.unsqueeze(1) - distances.new_tensor(corners)).abs().amin(1)
        rows = torch.tensor(numbers).repeat_interleave(torch.tensor([len(part) for part in parts]))
        places = rows * width + torch.bucketize(distances, _EDGES, right=True)
        counts += torch.bincount(places[distances > 0], minlength=len(counts))  # neither hits nor nan
    return counts.view(-1, width).tolist()


_EDGES = torch.tensor([10.0**k for k in DECADES])
