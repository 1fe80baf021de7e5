"""Smooth, kink, jump, pole or edge: what one-sided differences in float64 say about a function at a point.

A function with a derivative has, in every direction, left and right quotients that differ by O(h), and quotients that
add up: f'(v) + f'(w) = f'(v + w). A *defect* is what is left of either; at a kink it does not shrink with the step.
Adding up matters: the median of three tied numbers has equal quotients on both sides in every direction.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from scan.programs import Point

Function = Callable[[Point], torch.Tensor]
Side = tuple[str, int]  # a direction by name, and 1 or -1

COARSE = (2.0**-17, 2.0**-21)
# Smaller steps for what looks like a kink: `normalize` only looks like a jump at 0 until steps are below its eps.
FINE = tuple(2.0**-exponent for exponent in range(13, 50, 4))
START = FINE.index(COARSE[-1])
SHRINKS = 0.4  # per 16 times smaller step; 1/16 for smooth functions, 1/4 for |x| ** 1.5, 1 for kinks
SMALLEST = 1e-5  # of the slopes: a defect below it is not told apart from rounding
ROUNDINGS, INSIDE = 100, 16  # how much rounding may add up in an output, and on the way to it
INFINITE = 1e10  # singular matrices are inverted to such numbers where exact arithmetic has none
GROWS = 0.2  # quotients that change more than this towards 0 have no limit: even a logarithm does
INACCURACY = 1e-6  # two formulas of one function may differ so much where they meet: no jump of the function itself


@dataclass(frozen=True)
class Verdict:
    """What a function does at a point, with the direction, the output and the quotients that show it."""

    kind: str  # "smooth", "kink", "jump", "pole" or "edge"
    output: int = -1
    left: float = float("nan")
    right: float = float("nan")
    direction: str = ""


SMOOTH, EDGE = Verdict("smooth"), Verdict("edge")
KINDS = ("smooth", "kink", "jump", "pole", "edge")
WORST_FIRST = ("jump", "kink", "pole", "edge", "smooth")


def directions(point: Point, coordinates: int = 0) -> dict[str, Point]:
    """Two directions in which everything moves, their sum, and some in which a single coordinate does."""
    generator = torch.Generator().manual_seed(0)
    one = tuple(torch.randn(tensor.shape, generator=generator, dtype=torch.float64) for tensor in point)
    # The same numbers in other places: then even the middle one of three tied ones changes.
    other = tuple(0.75 * tensor.flatten().roll(1).view(tensor.shape) for tensor in one)
    found = {"v": one, "w": other, "v+w": tuple(a + b for a, b in zip(one, other, strict=True))}
    for index, tensor in enumerate(point):
        for entry in range(min(coordinates, tensor.numel())):
            single = [torch.zeros_like(tensor) for tensor in point]
            position = (2 * entry + 1) * tensor.numel() // (2 * min(coordinates, tensor.numel()))
            single[index].view(-1)[position] = 1.0
            found[f"entry {position} of input {index}"] = tuple(single)
    return found


def classify(function: Function, point: Point, coordinates: int = 0, eps: torch.Tensor | float = 2.0**-52) -> Verdict:
    """The worst that any direction shows at a point; ``eps`` is the precision of every output."""
    here = function(point)
    if not here.numel():
        return SMOOTH
    moves = directions(point, coordinates)
    probe = Probe(function, point, here, eps, moves)
    verdicts = [probe.verdict((name, -1), (name, 1)) for name in moves if name != "v+w"]
    if all(verdict.kind not in ("kink", "jump") for verdict in verdicts):
        verdicts.append(probe.verdict(("v", 1), ("w", 1), ("v+w", 1)))
    return min(verdicts, key=lambda verdict: WORST_FIRST.index(verdict.kind))


class Probe:
    """One-sided quotients of a function at a point, and what their defects show."""

    def __init__(
        self, function: Function, point: Point, here: torch.Tensor, eps: torch.Tensor | float, moves: dict[str, Point]
    ):
        self.function, self.point, self.here, self.eps, self.moves = function, point, here, eps, moves
        self.size = max(float(tensor.abs().max()) for tensor in point if tensor.numel())
        self.edge = ~torch.isfinite(here) | (here.abs() > INFINITE)
        self.known: dict[tuple[Side, float], torch.Tensor] = {}

    def verdict(self, *sides: Side) -> Verdict:
        """What large steps show, confirmed by small ones. An output once seen at an edge is not judged again."""
        quotients = self.quotients(sides, COARSE)
        values = quotients.abs() * torch.tensor(COARSE, dtype=torch.float64)[:, None]
        self.edge |= (~torch.isfinite(quotients) | (values > INFINITE)).any(dim=0).any(dim=0)
        defects = _defects(quotients)
        floor = SMALLEST * (1 + quotients.abs().amax(dim=(0, 1))) + 10 * self.noise(quotients, COARSE)[-1]
        suspect = (defects[-1] > SHRINKS * defects[-2]) & (defects[-1] > floor) & ~self.edge
        verdict = self.refined(sides, suspect) if suspect.any() else SMOOTH
        return self.at_edge(sides) if verdict is SMOOTH and self.edge.any() else verdict

    def at_edge(self, sides: tuple[Side, ...]) -> Verdict:
        """A pole where the value is infinite and finite beside it, or where slopes grow towards it without end."""
        for side in sides:
            values = torch.stack([self.value(side, step) for step in FINE])
            quotients = torch.stack([self.quotient(side, step) for step in FINE])
            has_values = values.isfinite().all(dim=0)
            grows = self.here.isfinite() & has_values & self.grows(quotients)
            found = (self.here.isinf() & has_values) | grows
            if found.any():
                output = int(found.nonzero()[0])
                return Verdict("pole", output, *quotients[(0, -1), output].tolist(), side[0])
        return EDGE

    def grows(self, quotients: torch.Tensor) -> torch.Tensor:
        """Whether slopes on one side grow as steps shrink, as far as rounding tells, while the value does not jump."""
        steps = torch.tensor(FINE, dtype=torch.float64)
        trusted = (self.noise(quotients[None], FINE) < 0.05 * quotients.abs()).cumprod(dim=0).bool()
        last = (trusted.sum(dim=0) - 1).clamp(min=0)
        first, final = quotients[0].abs(), _at(quotients[None], last)[0].abs()
        is_continuous = final * steps[last] < 0.5 * first * steps[0]
        # From each step to the next one, as even a logarithm does: what is steep until its eps stops.
        always = ((quotients[1:].abs() > 1.05 * quotients[:-1].abs()) | ~trusted[1:]).all(dim=0)
        return (last > 1) & (final > (1 + GROWS) * first) & always & is_continuous

    def refined(self, sides: tuple[Side, ...], suspect: torch.Tensor) -> Verdict:
        """The verdict on suspect outputs from ever smaller steps, as small as rounding allows."""
        quotients = self.quotients(sides, FINE)
        defects, noise = _defects(quotients), self.noise(quotients, FINE)
        largest = defects[START:].cummax(dim=0).values
        trusted = (noise[START + 1 :] < 0.05 * largest[:-1]).cumprod(dim=0).bool()
        trusted = torch.cat([torch.ones_like(trusted[:1]), trusted])
        stays = suspect & torch.where(trusted, defects[START:] > 0.3 * largest, True).all(dim=0)
        last = START + trusted.sum(dim=0) - 1
        jumps, tiny = self.growth(quotients, defects, last)
        kinks = torch.where(tiny, _kinks_besides(defects, last), ~jumps)
        for kind, found in (("jump", stays & jumps & ~tiny), ("kink", stays & kinks)):
            if found.any():
                output = int(found.nonzero()[0])
                left, right = quotients[:2, last[output], output].tolist()
                return Verdict(kind, output, left, right, ", ".join(dict.fromkeys(name for name, _ in sides)))
        return SMOOTH

    def growth(
        self, quotients: torch.Tensor, defects: torch.Tensor, last: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Which outputs have quotients without a limit, and which of them only since two formulas differ by little."""
        first = torch.where(last == START, quotients[:, START - 2], quotients[:, START])
        # By how much the function itself changes between where quotients should agree and the last two steps.
        steps = torch.tensor(FINE, dtype=torch.float64)
        final, before = ((_at(quotients, step) - first).abs() for step in (last, last - 1))
        jumps = (final > GROWS * (first.abs() + defects[START])).any(dim=0)
        size, earlier = final.amax(dim=0) * steps[last], before.amax(dim=0) * steps[last - 1]
        return jumps, jumps & (size > 0.5 * earlier) & (size < INACCURACY * (1 + self.here.abs()))

    def quotients(self, sides: tuple[Side, ...], steps: tuple[float, ...]) -> torch.Tensor:
        """By side, step and output."""
        return torch.stack([torch.stack([self.quotient(side, step) for step in steps]) for side in sides])

    def quotient(self, side: Side, step: float) -> torch.Tensor:
        """(f(x + hv) - f(x)) / h on the right, (f(x) - f(x - hv)) / h on the left; nan where there is no value."""
        return (self.value(side, step) - self.here) * (side[1] / step)

    def value(self, side: Side, step: float) -> torch.Tensor:
        """The function a step away; nan where it has no value."""
        if (side, step) not in self.known:
            name, sign = side
            moved = tuple(torch.add(x, v, alpha=sign * step) for x, v in zip(self.point, self.moves[name], strict=True))
            try:
                there = self.function(moved)
            except Exception:  # outside the domain, which operators say in many ways
                there = torch.empty(0)
            fits = there.shape == self.here.shape
            self.known[side, step] = there if fits else torch.full_like(self.here, torch.nan)
        return self.known[side, step]

    def noise(self, quotients: torch.Tensor, steps: tuple[float, ...]) -> torch.Tensor:
        """How much of a quotient may be rounding, by step and output."""
        step = torch.tensor(steps, dtype=torch.float64)[:, None]
        slopes = quotients.abs().amax(dim=0)
        # Rounding inside a function is that of numbers as large as its inputs, times a slope. The least slope seen:
        # at a jump the others grow without bound, and nothing would be trusted.
        inside = slopes.amin(dim=0) * self.size
        return self.eps * (ROUNDINGS * (self.here.abs() + slopes * step) + INSIDE * inside) / step


def _defects(quotients: torch.Tensor) -> torch.Tensor:
    """How far left and right differ, or how far three directions are from adding up, by step and output."""
    if len(quotients) == 2:
        return (quotients[1] - quotients[0]).abs()
    return (quotients[0] + quotients[1] - quotients[2]).abs()


def _kinks_besides(defects: torch.Tensor, last: torch.Tensor) -> torch.Tensor:
    """Which outputs have a defect that stays once a tiny jump is taken off: `renorm` has both at its bound."""
    steps = torch.tensor(FINE, dtype=torch.float64)
    jump = _at(defects[None], last)[0] * steps[last]
    before, after = defects[0] - jump / steps[0], defects[1] - jump / steps[1]
    return (after > SHRINKS * before) & (after > 0.5 * jump / steps[1] + 1e-4)


def _at(quotients: torch.Tensor, step: torch.Tensor) -> torch.Tensor:
    """The quotients of every output at a step of its own."""
    return quotients.gather(1, step.expand(len(quotients), 1, -1))[:, 0]
