"""Every kink of the table at every sample, with the elements of conventions, and with elements that are none.

The sets are those of the rows where these are corners, ties and balls, which other tests hold against values; where a
kink is one of many entries at once, they are taken from difference quotients of values at points nearby.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import nan
from typing import Any

import torch
from torch import Tensor

import subgrad
from subgrad.kinks import KINKS
from subgrad.kinks.overloads import call_by_name
from subgrad.kinks.sets import Ball, Jump, Slopes, Ties
from subgrad.kinks.table import CLAMPED
from subgrad.survey.joint import JointCall
from subgrad.survey.measure import Place, places

# Torch divides by the norm and 1e-7: where a slice has just the largest norm, its value jumps by that.
JUMPING = ("renorm", "norms(self, p, dim) == maxnorm")
NEAR, STEP, DRAWS = 2.0**-12, 2.0**-22, 256
FAR = 0.05  # from the set, relative to its size


@dataclass(frozen=True)
class Spot:
    """One kink met by one call, as a function of the tensors that are differentiated."""

    name: str
    place: Place
    function: Callable[..., Tensor]
    inputs: tuple[Tensor, ...]

    @property
    def given(self) -> tuple[Tensor, ...]:
        return tuple(each.clone().requires_grad_() for each in self.inputs)

    @property
    def vector(self) -> Tensor:
        return torch.cat([each.flatten() for each in self.inputs])

    def shaped(self, vector: Tensor) -> list[Tensor]:
        parts = vector.split([each.numel() for each in self.inputs])
        return [part.view(each.shape) for part, each in zip(parts, self.inputs, strict=True)]

    def planted(self, element: Tensor) -> Callable[..., Tensor]:
        """The function with an element of its own at the point, and torch's own gradient elsewhere."""
        spot, parts = self, self.shaped(element)

        class Planted(torch.autograd.Function):
            @staticmethod
            def forward(ctx: Any, *inputs: Tensor) -> Tensor:
                ctx.save_for_backward(*inputs)
                return spot.function(*inputs)

            @staticmethod
            def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, ...]:  # type: ignore[override]
                inputs = ctx.saved_tensors
                if all(torch.equal(one, other) for one, other in zip(inputs, spot.inputs, strict=True)):
                    return tuple(grad * part for part in parts)
                leaves = [each.detach().clone().requires_grad_() for each in inputs]
                with torch.enable_grad(), subgrad.use("torch"):
                    out = spot.function(*leaves)
                return torch.autograd.grad(out, leaves, grad, materialize_grads=True)

        return Planted.apply

    def wrong(self, generator: torch.Generator) -> Iterator[tuple[str, Tensor]]:
        """Elements that are none, each with what is wrong with it."""
        known = self.vertices(generator)
        size = float(known.abs().amax()) + 0.1
        for name in ("beyond", "far beyond"):
            ahead = torch.randn(known.shape[1], generator=generator, dtype=torch.float64)
            ahead = ahead / ahead.norm()
            furthest = known[int((known @ ahead).argmax())]
            yield name, furthest + ahead * size * (FAR if name == "beyond" else 1) * known.shape[1] ** 0.5 * 2
        broken = known.mean(0)
        broken[int(torch.randint(len(broken), (), generator=generator))] = nan
        yield "nan", broken

    def vertices(self, generator: torch.Generator) -> Tensor:
        """Elements of the set: of the row, or of values nearby."""
        kind = self.place.kink.set
        numbers = {k: v.item() if isinstance(v, Tensor) and v.numel() == 1 else v for k, v in self.place.call.items()}
        if isinstance(kind, Slopes):
            slopes = kind.at(numbers)
            return torch.tensor([[slopes.left_slope], [slopes.right_slope]], dtype=torch.float64)
        rows = [self.quotients(generator) for _ in range(DRAWS if not isinstance(kind, Ties | Ball) else 32)]
        return torch.stack(rows)

    def quotients(self, generator: torch.Generator) -> Tensor:
        here = self.vector
        there = here + NEAR * (2 * torch.rand(len(here), generator=generator, dtype=torch.float64) - 1)
        found = []
        for entry in range(len(here)):
            ends = []
            for sign in (1, -1):
                moved = there.clone()
                moved[entry] += sign * STEP
                ends.append(float(self.function(*self.shaped(moved)).detach()))
            found.append((ends[0] - ends[1]) / (2 * STEP))
        return torch.tensor(found, dtype=torch.float64)


def spots() -> Iterator[Spot]:
    """All places of the table but those without a set."""
    for place in places():
        if isinstance(place.kink.set, Jump):
            continue
        if place.kink.op not in KINKS.entrywise:
            joint = JointCall(place.kink, place.call)
            function = _of_symmetric(joint.function) if place.kink.op == "_linalg_eigh" else joint.function
            if (place.kink.op, place.kink.at) != JUMPING:
                yield Spot(str(joint), place, function, tuple(joint.inputs))
            continue
        names = place.differentiated
        if "self" in names and len(names) == 1 and place.kink.set == CLAMPED:
            continue  # of `self` alone it is a constant, and the middle of the set over all three is another thing
        inputs = tuple(place.call[name] for name in names)
        yield Spot(f"{place.kink.op} at {place.kink.place}", place, _of_named(place, names), inputs)


def _of_symmetric(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Torch reads one half of a matrix, and shares the gradient with the other."""
    return lambda x: function((x + x.mT) / 2)


def _of_named(place: Place, names: tuple[str, ...]) -> Callable[..., Tensor]:
    return lambda *inputs: call_by_name(place.kink.op, {**place.call, **dict(zip(names, inputs, strict=True))})
