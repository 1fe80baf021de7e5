"""Structured places: points where operators tend to have kinks, made from the inputs of a sample."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch

from scan.programs import Point, Program

Place = tuple[str, Point]

NUMBERS = (0.0, 1.0, -1.0, 0.5, -0.5, 2.0, 3.0, -3.0)
# Numbers that only one entry knows: for the first, x * 1000 lies halfway between integers.
OWN_NUMBERS = {"round.decimals_3": (0.0625,), "round.decimals_neg_3": (500.0,)}
SMALL, LARGE = 1e-3, 20.0  # a parameter that is smaller is an eps, which no step tells from 0
FEW, SEVERAL, MANY = 3, 12, 24


def places(program: Program, parameters: Iterable[float], thorough: bool) -> Iterator[Place]:
    """The places of one sample, by name; ``parameters`` are the numbers that the operators it calls were given."""
    seen: set[tuple[bytes, ...]] = set()
    for name, point in _all(program, parameters, thorough):
        content = tuple(tensor.contiguous().numpy().tobytes() for tensor in point)
        if content not in seen:
            seen.add(content)
            yield name, point


def _all(program: Program, parameters: Iterable[float], thorough: bool) -> Iterator[Place]:
    point = program.point
    own = next((values for name, values in OWN_NUMBERS.items() if name in program.entry.full_name), ())
    special = _related([*program.numbers(), *parameters])[:MANY]
    numbers = [*own, *dict.fromkeys([*NUMBERS, *special])]
    yield "as sampled", point
    yield "all zero", tuple(torch.zeros_like(tensor) for tensor in point)
    inputs = [index for index, tensor in enumerate(point) if tensor.numel()]
    for index in inputs if thorough else inputs[:FEW]:
        yield from _numbers(point, index, numbers, thorough)
        yield from _repetitions(point, index, thorough)
        yield from _ties(point, index, program.constants, special if thorough else special[:FEW])
        yield from _matrices(point, index, special if thorough else special[:FEW])
    if "grid_sample" in program.entry.full_name and len(point) == 2:
        yield from _cells(point)


def _related(parameters: list[float]) -> list[float]:
    """Parameters first, then their negatives and ratios, what lies as far from 1, and their doubles."""
    known = [number for number in dict.fromkeys(parameters) if SMALL <= abs(number) <= LARGE]
    ratios = [x / y for x in known for y in known]  # the threshold of softplus over its beta
    related = (known, [-x for x in known], ratios, [1 - x for x in known], [2 * x for x in known])
    return [number for number in dict.fromkeys(x for numbers in related for x in numbers) if number]


def _with(point: Point, index: int, tensor: torch.Tensor) -> Point:
    return (*point[:index], tensor.reshape(point[index].shape).clone(), *point[index + 1 :])


def _numbers(point: Point, index: int, numbers: list[float], thorough: bool) -> Iterator[Place]:
    """Special values in one of the tensors: each in some entries, and as many as there is room for in all of them."""
    tensor, size = point[index], point[index].numel()
    values = torch.tensor(numbers, dtype=torch.float64)
    rounds = min(SEVERAL, max(2, -(-len(numbers) // size)))  # every number at least once, in two arrangements
    for turn in range(rounds):
        start = turn * size if size < len(numbers) else turn
        cycle = values.roll(-start).repeat(size // len(numbers) + 1)[:size]
        yield f"input {index}: numbers, {turn}", _with(point, index, cycle)
    for number in numbers if thorough else numbers[:1]:
        filled = tensor.clone().flatten()
        filled[::2] = number
        yield f"input {index}: entries {number:g}", _with(point, index, filled)
    yield f"input {index}: zero", _with(point, index, torch.zeros_like(tensor))
    yield f"input {index}: integers", _with(point, index, tensor.round())
    yield f"input {index}: half-integers", _with(point, index, tensor.floor() + 0.5)


def _repetitions(point: Point, index: int, thorough: bool) -> Iterator[Place]:
    """Equal entries, repeated entries, repeated rows and rows of zeros in one of the tensors."""
    tensor = point[index]
    if tensor.numel() == 1:
        return
    repeated = tensor.clone().flatten()
    repeated[1::2] = repeated[: 2 * (len(repeated) // 2) : 2]
    yield f"input {index}: repeated entries", _with(point, index, repeated)
    exact = _dyadic(tensor)  # the mean of equal entries must be that entry, not almost
    yield f"input {index}: equal", _with(point, index, exact.flatten()[:1].expand(tensor.numel()))
    for axis in range(tensor.ndim) if thorough else {0, tensor.ndim - 1}:
        yield f"input {index}: equal along {axis}", _with(point, index, exact.narrow(axis, 0, 1).expand(tensor.shape))
        zeroed = tensor.clone()
        zeroed.narrow(axis, 0, 1).zero_()
        yield f"input {index}: zero slice of {axis}", _with(point, index, zeroed)


def _ties(point: Point, index: int, constants: Point, shifts: list[float]) -> Iterator[Place]:
    """One tensor equal to another one, to a multiple of it, or a given distance away."""
    tensor = point[index]
    others = [(f"input {k}", other, k) for k, other in enumerate(point) if k != index]
    others += [(f"constant {k}", other, None) for k, other in enumerate(constants)]
    for name, other, k in others:
        try:
            same = other.double().expand(tensor.shape)
        except RuntimeError:  # shapes that do not go together
            continue
        for factor in (1.0, -1.0, 2.0):
            yield f"input {index} = {factor:g} * {name}", _with(point, index, factor * same)
        if tensor.ndim > 1:
            yield f"input {index}: row 0 of {name}", _with(point, index, torch.cat([same[:1], tensor[1:]]))
        exact = point if k is None else _with(point, k, _dyadic(other))  # the difference must be the shift, not almost
        same = same if k is None else _dyadic(same)
        for shift in dict.fromkeys((1.0, -1.0, *shifts)):
            yield f"input {index} = {name} + {shift:g}", _with(exact, index, same + shift)
            if tensor.ndim > 0:
                column = same.clone()
                column[..., 0] += shift
                yield f"input {index} = {name} + {shift:g} in column 0", _with(exact, index, column)


def _dyadic(tensor: torch.Tensor) -> torch.Tensor:
    return (tensor * 16).round() / 16


def _matrices(point: Point, index: int, parameters: list[float]) -> Iterator[Place]:
    """Repeated and zero singular values; slices whose norm is exactly a parameter, for every norm."""
    tensor = point[index]
    if tensor.ndim < 2:
        return
    identity = torch.eye(*tensor.shape[-2:], dtype=torch.float64).expand(tensor.shape)
    diagonal = torch.zeros_like(tensor)
    for entry in range(min(tensor.shape)):
        diagonal[(entry,) * tensor.ndim] = 1.0
    whole = tensor.round()  # of whole numbers: rounding may not make the matrix regular
    for scale in dict.fromkeys((1.0, *(abs(number) for number in parameters))):
        yield f"input {index}: {scale:g} * identity", _with(point, index, scale * identity)
        if tensor.ndim > 2:
            yield f"input {index}: {scale:g} * diagonal", _with(point, index, scale * diagonal)
    yield f"input {index}: rank one", _with(point, index, whole[..., :, :1] * whole[..., :1, :])
    yield f"input {index}: all one", _with(point, index, torch.ones_like(tensor))


def _cells(point: Point) -> Iterator[Place]:
    """A grid whose points lie on pixel centres, for either meaning of the corners, or on the border of the image."""
    image, grid = point
    sizes = list(image.shape[2:])[::-1]  # the first coordinate of the grid is x, the last dimension of the image
    for name, centres in (
        ("centres, corners aligned", [[2 * k / max(n - 1, 1) - 1 for k in range(n)] for n in sizes]),
        ("centres, corners not aligned", [[(2 * k + 1) / n - 1 for k in range(n)] for n in sizes]),
        ("between centres, aligned", [[(2 * k + 1) / max(n - 1, 1) - 1 for k in range(n)] for n in sizes]),
        ("between centres, not aligned", [[2 * k / n - 1 for k in range(n + 1)] for n in sizes]),
        ("image border", [[-1.0, 1.0]] * len(sizes)),
    ):
        count = grid[..., 0].numel()
        columns = [torch.tensor(values, dtype=torch.float64).repeat(count)[:count] for values in centres]
        yield f"grid: {name}", (image, torch.stack(columns, dim=-1).view(grid.shape))
