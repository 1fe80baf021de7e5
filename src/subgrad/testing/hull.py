"""Whether a gradient lies in the hull of the gradients nearby: a search for a direction that separates them.

For an element g of the generalised set and every direction v, <g, v> is at most the largest <z, v> of the gradients z
near the point. So a g that no direction separates from the gradients that were found is accepted. Before one is
refused, gradients are looked for that reach further in the direction in question, in the pieces around the point.

Near a point a function is made of pieces, each with a gradient; what separates two of them is a plane through the point
whose normal is the difference of their gradients, since values agree on it. So the pieces that were found say where
further ones begin, however thin they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from heapq import heappop, heappush

import torch
from torch import Tensor

from subgrad.clarke.engine.wolfe import least_point

TILTS = (1e-2, 1e-4)  # beside a vector that lies on kinks itself
NEAREST = 1e-3  # to the point
QUICK, THOROUGH, WIDEST = 2, 16, 8  # starts of a search; before a gradient is refused, for each entry up to so many
PATIENCE = 6  # starts that find nothing new, for each entry, until a search is given up
KEPT = 128  # gradients that are kept, if they do not reach further than others
RAYS = (2, 12)  # for each start
COARSE, DEEPEST = 3, 10  # halvings of a segment between two pieces, if it is known what separates them, and if not
SMALLEST = 1 / 16  # changes along a segment that are followed, of that from one end to the other
HALVINGS = 128  # of all parts of a segment together
PLANES = 64  # that are kept: more are those of a gradient that turns
SAME = 1e-6  # gradients that differ by less, relatively, are of one piece
ROUNDS = 64  # vertices that are looked for at least, and twice as many as there are entries

# The gradient at the point moved along a vector, in units of the radius; None where there is none.
Nearby = Callable[[Tensor], Tensor | None]
Place = tuple[Tensor, Tensor]  # such a vector, and the gradient there


@dataclass(frozen=True)
class Plane:
    """What separates two pieces.

    Attributes:
        change: of the gradient, from one to the other.
        normal: the same with length 1.
        is_convex: the change points to the other one.
    """

    change: Tensor
    normal: Tensor
    is_convex: bool


@dataclass(frozen=True)
class Separated:
    """A gradient that lies outside.

    Attributes:
        nearest: the point of the hull that is nearest to it.
        direction: in which it reaches further than all gradients nearby.
        reaches: its own product with the direction.
        furthest: the largest of theirs.
    """

    nearest: Tensor
    direction: Tensor
    reaches: float
    furthest: float


class Hull:
    """The gradients found near a point, and where they were found.

    Args:
        nearby: gives the gradient where a vector leads.
        tolerance: of each entry, of the sizes that the entry has among the gradients.
        generator: of random vectors.
    """

    def __init__(self, nearby: Nearby, tolerance: Callable[[Tensor], Tensor], generator: torch.Generator):
        self.nearby, self.tolerance, self.generator = nearby, tolerance, generator
        self.places: list[Place] = []
        self.planes: list[Plane] = []

    @property
    def vertices(self) -> Tensor:
        return torch.stack([gradient for _, gradient in self.places])

    def separates(self, g: Tensor, is_thorough: bool = True) -> Separated | None:
        """What tells a gradient from the hull; None if nothing does."""
        if not self.places:
            self.places += self.found(self.noise(len(g)))
        if not self.places:
            return None
        for _ in range(ROUNDS + 2 * len(g)):
            vertices = self.vertices
            unit = self.tolerance(vertices.abs().amax(0))
            away = nearest((vertices - g) / unit)
            if float(away.abs().amax()) <= 1:
                return None
            ahead = -away / unit
            if not self.reach(ahead / ahead.abs().amax(), g, unit, is_thorough):
                ahead = ahead / ahead.norm()
                return Separated(g + away * unit, ahead, float(g @ ahead), float((self.vertices @ ahead).amax()))
        return None  # new vertices were found to the end: no direction separates

    def covers(self, g: Tensor, entry: int) -> bool:
        """Whether one entry lies between those of the gradients nearby."""
        for _ in range(ROUNDS):
            values = self.vertices[:, entry]
            unit = self.tolerance(self.vertices.abs().amax(0))
            low, high = float(values.amin() - unit[entry]), float(values.amax() + unit[entry])
            if low <= float(g[entry]) <= high:
                return True
            ahead = torch.zeros_like(g)
            ahead[entry] = 1.0 if float(g[entry]) > high else -1.0
            if not self.reach(ahead, g, unit):
                return False
        return True

    def reach(self, ahead: Tensor, g: Tensor, unit: Tensor, is_thorough: bool = True) -> bool:
        """Look for a gradient that reaches further in a direction than those that are known."""
        best = float((self.vertices @ ahead).amax())
        goal, step = float(g @ ahead), float(unit @ ahead.abs())
        enough = best + 1e-3 * step
        for thoroughly in (False, True)[: 1 + is_thorough]:
            for place in self.explored(ahead, step, thoroughly):
                reached = float(place[1] @ ahead)
                if reached > best or (len(self.places) < KEPT and self.is_new(place[1])):
                    self.places.append(place)
                best = max(best, reached)
                if best >= goal:
                    return True
            if best > enough:
                return True
        return False

    def explored(self, ahead: Tensor, step: float, is_thorough: bool) -> Iterator[Place]:
        """Gradients from where the function is likely to be steep in a direction."""
        for tilt in TILTS:  # of a convex function the first, of a concave one the second
            for sign in (1, -1):
                yield from self.found(sign * ahead + tilt * self.noise(len(ahead)))
        moving = int(((self.vertices.amax(0) > self.vertices.amin(0)) | (ahead.abs() > 1e-3)).sum())
        in_vain, known = 0, self.progress(ahead, step)
        for number in range(THOROUGH * min(moving, WIDEST) if is_thorough else QUICK):
            in_vain, known = (in_vain + 1 if self.progress(ahead, step) == known else 0), self.progress(ahead, step)
            if in_vain > PATIENCE * (moving + 1):
                return
            order = (self.vertices @ ahead).argsort(descending=True).tolist()
            best = self.places[order[number % min(4, len(order))]]
            towards = self.noise(len(ahead)) if number % 2 else ahead if number % 4 else -ahead
            for other in self.found(towards + TILTS[0] * self.noise(len(ahead))):
                yield other
                yield from self.between(best, other)
            for tilt in TILTS:
                yield from self.found(self.on_their_sides(ahead) + tilt * self.noise(len(ahead)))
            for _ in range(RAYS[is_thorough]):
                ray = self.on_planes(best[0] if number % 3 == 0 else self.noise(len(ahead)))
                for _ in range(2):
                    yield from self.found(ray + TILTS[1] * self.noise(len(ahead)))

    def progress(self, ahead: Tensor, step: float) -> tuple[int, ...]:
        """What changes as long as a search finds something: where no planes are, gradients turn, and all are new."""
        reached = int(float((self.vertices @ ahead).amax()) / step) if step else 0
        return reached, len(self.planes), len(self.places) if self.planes else 0

    def between(self, one: Place, other: Place) -> Iterator[Place]:
        """The pieces that a segment runs through, where the gradient changes most first. Their planes are kept."""
        parts: list[tuple[float, int, Place, Place, int]] = []

        def add(start: Place, end: Place, depth: int) -> None:
            change = _size(end[1] - start[1])
            if change > max(SAME * (_size(start[1]) + _size(end[1])), least):
                heappush(parts, (-change, number, start, end, depth))

        number, least = 0, SMALLEST * _size(other[1] - one[1])
        add(one, other, 0)
        while parts and number < HALVINGS:
            _, _, start, end, depth = heappop(parts)
            change = end[1] - start[1]
            is_known = depth >= COARSE and self.is_known(change)
            if depth == DEEPEST and not is_known and len(self.planes) < PLANES:
                is_convex = float((end[0] - start[0]) @ change) > 0
                self.planes.append(Plane(change, change / change.norm(), is_convex))
            if depth == DEEPEST or is_known:
                continue
            for middle in self.found((start[0] + end[0]) / 2):
                yield middle
                number += 1
                add(start, middle, depth + 1)
                number += 1
                add(middle, end, depth + 1)

    def is_new(self, gradient: Tensor) -> bool:
        """Whether it is that of no piece that is known."""
        away = (self.vertices - gradient).abs().amax(1)
        return bool((away > SAME * (_size(gradient) + self.vertices.abs().amax())).all())

    def is_known(self, change: Tensor) -> bool:
        """Whether a change of the gradient is that across a plane that is known."""
        if not self.planes:
            return False
        products = torch.stack([each.normal for each in self.planes]) @ change
        return bool((products.abs() >= (1 - 1e-9) * change.norm()).any())

    def on_their_sides(self, ahead: Tensor) -> Tensor:
        """A vector on those sides of the planes, as far as there is one, on which slopes in a direction are larger.

        Where it cannot be on all of them, planes count by how much the slope changes: a perceptron, in random order.
        """
        place = 0.1 * self.noise(len(ahead))
        if not self.planes:
            return place
        gains = torch.stack([each.change for each in self.planes]) @ ahead
        if not bool(gains.any()):
            return place
        signs = torch.tensor([1 if each.is_convex else -1 for each in self.planes]) * gains.sign()
        sides = signs[:, None] * torch.stack([each.normal for each in self.planes])
        weights = gains.abs() / gains.abs().amax()
        place = place + weights @ sides
        for _ in range(4 * len(sides)):
            wrong = ((sides @ place <= 1e-3) & (weights > 0)).nonzero()[:, 0].tolist()
            if not wrong:
                break
            which = wrong[int(torch.randint(len(wrong), (), generator=self.generator))]
            if float(torch.rand((), generator=self.generator)) < float(weights[which]) + 0.1:
                place = place + sides[which] / 2
        return _of_size_one(place)

    def on_planes(self, place: Tensor) -> Tensor:
        """A vector moved onto several of the planes, mostly as many as leave a ray: many pieces meet there."""
        most = min(len(self.planes), len(place) - 1)
        if most < 1:
            return place
        fewer = int(torch.randint(2 * most, (), generator=self.generator))
        chosen = torch.randperm(len(self.planes), generator=self.generator)[: max(1, most - max(0, fewer - most))]
        normals = torch.stack([self.planes[each].normal for each in chosen.tolist()])
        away = torch.linalg.lstsq(normals, (normals @ place)[:, None], driver="gelsd").solution[:, 0]
        return _of_size_one(place - away)

    def found(self, place: Tensor) -> list[Place]:
        """The gradient at a place; never at the point itself, which is the one in question."""
        gradient = self.nearby(place) if _size(place) > NEAREST else None
        return [] if gradient is None else [(place, gradient)]

    def noise(self, size: int) -> Tensor:
        return 2 * torch.rand(size, generator=self.generator, dtype=torch.float64) - 1


def _size(vector: Tensor) -> float:
    return float(vector.abs().amax())


def _of_size_one(vector: Tensor) -> Tensor:
    size = _size(vector)
    return vector / size if size > 1e-9 else vector


def nearest(points: Tensor) -> Tensor:
    """The least point of the hull of some points."""
    first = points[int(points.norm(dim=1).argmin())]
    found, _ = least_point(first, lambda ahead: points[int((points @ ahead).argmax())], 1e-12, None, 8 * len(points))
    return found
