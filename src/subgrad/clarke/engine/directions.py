"""Random directions: the same for the same seed, and large ones in a form that costs little to multiply with.

A direction is generic if no switching quantity of the program is constant along it by accident. Of a large parameter it
is drawn as a product of two vectors: a linear function of it vanishes on all products only if it vanishes. Matrix
products and convolutions with it then cost next to nothing. Norms and spectra are not linear, and ask for a direction
without such a form.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from subgrad.clarke.engine.duals import carries_tangents_alone, tangent, values, with_tangent
from subgrad.torch_internals.tensors import version_of

LARGE = 4096  # entries
KEPT = 1 << 16  # entries of a direction that is not drawn again
MOST = 32  # of those
FEW = 1 << 16  # to call an operator takes longer than to copy so many


class NotGeneric(Exception):  # noqa: N818
    """What is decided is not linear in the direction: one without a form is needed."""


class Direction(tuple[Tensor, ...]):
    """A tensor for each leaf; ``pairs`` has the factors of those that are products."""

    pairs: Sequence[tuple[Tensor, Tensor] | None] = ()

    @property
    def version(self) -> int:
        """Another one once anything was written into a tensor."""
        return sum(map(version_of, (*self, *(part for pair in self.pairs if pair for part in pair))))

    def factors(self, leaves: Sequence[Tensor]) -> dict[int, tuple[Tensor, Tensor]]:
        """Those of the leaves, by where they lie in memory."""
        pairs = zip(leaves, self.pairs, strict=False)  # of a direction that is given there are none
        return {leaf.data_ptr(): pair for leaf, pair in pairs if pair is not None}


def random_direction(leaves: Sequence[Tensor], seed: int, products: bool = False) -> Direction:
    generators: dict[torch.device, torch.Generator] = {}
    found, pairs = [], []
    for leaf in leaves:
        if leaf.device not in generators:
            generators[leaf.device] = torch.Generator(leaf.device).manual_seed(seed)
        generator, pair = generators[leaf.device], None
        if products and leaf.ndim > 1 and leaf.numel() > LARGE and leaf.is_contiguous():
            rows, columns = _drawn(leaf, (len(leaf) + leaf[0].numel(),), generator).split((len(leaf), leaf[0].numel()))
            pair = rows, columns.view(leaf.shape[1:])
            found.append(torch.outer(rows, columns).view(leaf.shape))
        else:
            found.append(_drawn(leaf, leaf.shape, generator))
        pairs.append(pair)
    direction = Direction(found)
    direction.pairs = pairs
    return direction


_known: dict[Any, tuple[Direction, int]] = {}  # the last ones of small programs, and their versions


def known_direction(leaves: Sequence[Tensor], seed: int, products: bool = False) -> Direction:
    """The same; not drawn again for leaves like those before, unless somebody has written into it."""
    alike = [(leaf.shape, leaf.is_contiguous(), leaf.dtype, None if leaf.is_cpu else leaf.device) for leaf in leaves]
    key = seed, products, *alike
    found, version = _known.get(key, (None, 0))
    if found is None or found.version != version:
        found = random_direction(leaves, seed, products)
        if sum(leaf.numel() for leaf in leaves) <= KEPT and {*map(type, found)} == {Tensor}:
            _known[key] = found, found.version
            if len(_known) > MOST:
                _known.pop(next(iter(_known)), None)
    return found


def _drawn(leaf: Tensor, shape: Sequence[int], generator: torch.Generator) -> Tensor:
    wide = torch.float64 if leaf.dtype == torch.float64 else torch.float32
    return torch.randn(shape, generator=generator, dtype=wide, device=leaf.device).to(leaf.dtype)


def _factors(weight: Any, factors: Mapping[int, tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor] | None:
    """The factors of a weight's tangent, if it is one of the leaves, whole."""
    if not isinstance(weight, Tensor) or not weight.is_contiguous():
        return None
    pair = factors.get(weight.data_ptr())
    moved = tangent(weight) if pair is not None else None
    if pair is None or moved is None or weight.shape != pair[0].shape + pair[1].shape:
        return None
    return pair


def linear(factors: Mapping[int, tuple[Tensor, Tensor]], input: Tensor, weight: Tensor, bias: Any = None) -> Tensor:
    """`torch.nn.functional.linear` in the tangent pass."""
    pair = _factors(weight, factors)
    if pair is None:
        return F.linear(input, weight, bias)
    rows, columns = pair
    return _multiplied(F.linear, input, weight, bias, columns.unsqueeze(0), rows)


def convolved(
    convolution: Any,
    factors: Mapping[int, tuple[Tensor, Tensor]],
    input: Tensor,
    weight: Tensor,
    bias: Any = None,
    *settings: Any,
    **named: Any,
) -> Tensor:
    """`torch.conv1d`, `conv2d` and `conv3d` in the tangent pass."""
    given = {**dict(zip(("stride", "padding", "dilation", "groups"), settings, strict=False)), **named}
    multiply, pair = partial(convolution, **given), _factors(weight, factors)
    if pair is not None and given.get("groups", 1) == 1:
        rows, kernel = pair
        wide = rows.view(-1, *[1] * (kernel.ndim - 1))
        return _multiplied(multiply, input, weight, bias, kernel.unsqueeze(0), wide)
    moved, turned = tangent(input), tangent(weight)
    if turned is None or not carries_tangents_alone():
        return multiply(input, weight, bias)
    if moved is None:
        return _of_data(multiply, input, weight, bias, turned)
    if given.get("groups", 1) != 1 or input.numel() > FEW or input.dtype != weight.dtype:
        return multiply(input, weight, bias)
    return _of_both(multiply, input, weight, bias, moved, turned)


def _of_data(multiply: Callable[..., Tensor], input: Tensor, weight: Tensor, bias: Any, turned: Tensor) -> Tensor:
    """The product with an input that does not move: torch would multiply the zeros that it moves by as well."""
    shifted = tangent(bias)
    with values():
        out, further = multiply(input, weight, bias), multiply(input, turned, shifted)
    return with_tangent(out, further)


def _of_both(
    multiply: Callable[..., Tensor], input: Tensor, weight: Tensor, bias: Any, moved: Tensor, turned: Tensor
) -> Tensor:
    """Both terms of the derivative by one convolution, of twice the channels."""
    shifted, channels = tangent(bias), input.ndim - weight.ndim + 1
    with values():
        out = multiply(input, weight, bias)
        further = multiply(torch.cat((input, moved), channels), torch.cat((turned, weight), 1), shifted)
    return with_tangent(out, further)


def _multiplied(
    multiply: Callable[..., Tensor], input: Tensor, weight: Tensor, bias: Any, part: Tensor, rows: Tensor
) -> Tensor:
    """The product, and its derivative by the rule of products, in which torch would multiply with zeros as well."""
    moved, shifted = tangent(input), tangent(bias)
    with values():
        out = multiply(input, weight, bias)
        change, rows = multiply(input, part).to(out.dtype), rows.to(out.dtype)
        if moved is not None:
            further = multiply(moved, weight, shifted).addcmul_(change, rows)
        else:
            rest = torch.zeros_like(rows) if shifted is None else shifted.to(out.dtype).view(rows.shape)
            further = torch.addcmul(rest, change, rows)
    return with_tangent(out, further)
