"""On CUDA, strong zeros in one launch a call, which nobody waits for: products, quotients, operators of entries.

Torch has made the gradients. The kernel looks for nan where that shows in little memory, and mends them in place.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from math import prod
from typing import Any, NamedTuple

import torch
from torch import Tensor

from subgrad.apply.autograd_nodes import is_memory
from subgrad.apply.strong_zero.products import PRODUCTS
from subgrad.apply.strong_zero.reach import Entries, Lines
from subgrad.apply.strong_zero.spare import Called, Vectors
from subgrad.apply.torch_compile.guards import is_compiling
from subgrad.kernels.cuda_bitmask import DTYPES
from subgrad.kernels.triton_launch import Launch, triton_kernels
from subgrad.torch_internals.autograd import saved_operand

# The tensors of a call: its cotangent, the gradients of its operands, and these.
COTANGENT, FIRST, SECOND, FIRST_OPERAND, SECOND_OPERAND = range(5)
_OPERANDS = {FIRST: FIRST_OPERAND, SECOND: SECOND_OPERAND}
_BLOCK = 1024
Layout = tuple[Sequence[int], Sequence[int]]  # sizes and strides
Strides = Mapping[str, int]  # by dimension, each of which has a letter


class Step(NamedTuple):
    """A launch, and which tensors it is given."""

    launch: Launch
    tensors: tuple[int, ...]


class _LayoutError(Exception):
    """Tensors that lie otherwise than the kernel can read them."""


def spare(called: Called, node: Any, gradients: Vectors, cotangents: Vectors) -> bool:
    """See `ForCuda`."""
    cotangent, product = cotangents[0], PRODUCTS.get(called.name)
    if cotangent is None or torch.is_grad_enabled() or is_compiling() or triton_kernels() is None:
        return False
    if product is not None:
        names, letters = (product.first, product.second), product.letters
        if not letters or called.is_scaled:
            return False
    elif called.name in ("mul", "div") and called.likes:
        names, letters = ("self", "other"), ""
    elif len(cotangents) == 1 and not (called.likes and cotangent.ndim) and isinstance(called.reach, (Entries, Lines)):
        dim = called.given["dim"] if isinstance(called.reach, Lines) else None
        return all(each is None or _are_run([cotangent, each], dim) for each in gradients)
    else:
        return False
    if node is None or not called.reads_node:
        return False
    first, second = (gradients[called.op.tensor_names.index(each)] for each in names)
    divides = called.name == "div"
    operands = [
        None if second is None else saved_operand(node, names[0]),
        None if first is None and not divides else saved_operand(node, names[1]),
    ]
    return _are_run([cotangent, first, second, *operands], "quotient" if divides else "product", letters)


def _are_run(tensors: Sequence[Tensor | None], kind: str | int | None, letters: str = "") -> bool:
    """``kind``: a product or quotient; else the dimension along which entries depend on each other, if any do."""
    layouts: list[Layout | None] = []
    dtype, device = None, None
    for each in tensors:
        if each is None:
            layouts.append(None)
            continue
        dtype = dtype or each.dtype
        if each.dtype is not dtype or dtype not in DTYPES or not is_memory(each):
            return False
        device = each.device
        layouts.append((each.shape, each.stride()))
    steps = _planned(kind, letters, dtype, device, *layouts)
    if steps is None:
        return False
    for launch, places in steps:
        launch(*[tensors[place] for place in places])  # pyright: ignore[reportArgumentType]
    return True


@lru_cache(maxsize=4096)
def _planned(
    kind: str | int | None, letters: str, dtype: torch.dtype, device: torch.device, *layouts: Layout | None
) -> list[Step] | None:
    """The launches for tensors that lie like this; None for what the kernel is not made for.

    What is launched is kept for one dtype and device.
    """
    sizes: dict[str, int] = {}
    try:
        spelled = _spelled(kind, letters, layouts)
        pairs = zip(spelled, layouts, strict=True)
        strides = [None if layout is None else _by_letter(each, layout, sizes) for each, layout in pairs]
        calls = _Calls(sizes, strides)
        if isinstance(kind, str):
            return list(calls.of_products(kind == "quotient"))
        if kind is None:
            return [calls.step(FIRST, spreads=FIRST, factor=FIRST)]
        return [calls.step(FIRST, narrow=FIRST, lines=True)]
    except _LayoutError:
        return None


class _Calls(NamedTuple):
    """The tensors of calls that are alike: the sizes of all dimensions, and the strides of each tensor."""

    sizes: dict[str, int]
    strides: list[Strides | None]

    def of_products(self, divides: bool) -> Iterable[Step]:
        """Sums of terms, with gradients that are none in the same launch if their slopes are the operand's entries."""
        wide: dict[int, int] = {}  # by the operand in which their slopes show
        sums = []
        for place, other in ((FIRST, SECOND), (SECOND, FIRST)):
            own, factor = self.strides[place], self.strides[_OPERANDS[other]]
            if own is None:
                continue
            if len(own) < len(self.sizes):
                sums.append((place, other))
            elif factor is not None and len(factor) < len(own) and not (divides and place == SECOND):
                wide[_OPERANDS[other]] = place
            else:
                yield self.step(place, spreads=place, factor=place)
        for place, other in sums:
            operand = _OPERANDS[place]
            has_slopes = self.strides[operand] == self.strides[place]
            if divides and (place == FIRST or not has_slopes):  # terms are divided by other than entries of the operand
                raise _LayoutError
            if self.strides[_OPERANDS[other]] is None:  # not saved
                raise _LayoutError
            spreads = wide.pop(operand, None) if has_slopes else None
            factor = operand if divides or spreads is not None else None
            yield self.step(place, place, _OPERANDS[other], spreads, factor, divides)
        for operand, place in wide.items():
            yield self.step(operand, spreads=place, factor=operand, divides=divides)

    def step(
        self,
        base: int,
        narrow: int | None = None,
        other: int | None = None,
        spreads: int | None = None,
        factor: int | None = None,
        divides: bool = False,
        lines: bool = False,
    ) -> Step:
        """One launch: of the entries of ``base``, each with all terms that it belongs to."""
        lying = self.strides[base] or {}
        tensors = [COTANGENT if each is None else each for each in (narrow, spreads, COTANGENT, other, factor)]
        used = [self.strides[tensors[number]] or {} for number in (2, 3, 1)]
        outer = sorted(lying, key=lambda each: -lying[each])
        size = 1
        for each in reversed(outer):
            if lying[each] != size:  # entries that share memory, or gaps
                raise _LayoutError
            size *= self.sizes[each]
        rest = sorted(self.sizes.keys() - lying.keys(), key=lambda each: (-used[0].get(each, 0), each))
        outer_sizes, outer_strides = self._joined(outer, used, 3)
        rest_sizes, rest_strides = self._joined(rest, used, 2)
        numbers = [size, *outer_sizes[1:], prod(rest_sizes), rest_sizes[1]]
        for one, another in zip(outer_strides, rest_strides, strict=True):
            numbers += [*one, *another]
        constants = (narrow is not None and not lines, spreads is not None, divides, lines, _BLOCK)
        return Step(Launch("spare", -(-size // _BLOCK), tuple(numbers), constants), tuple(tensors))

    def _joined(self, letters: Sequence[str], used: Sequence[Strides], most: int) -> tuple[list[int], list[list[int]]]:
        """Sizes, and the strides of some tensors, with dimensions made one where they lie behind each other in all."""
        lengths: list[int] = []
        steps: list[list[int]] = []  # by dimension, of all tensors
        for each in letters:
            size, step = self.sizes[each], [strides.get(each, 0) for strides in used]
            if steps and steps[-1] == [one * size for one in step]:
                lengths[-1], steps[-1] = lengths[-1] * size, step
            else:
                lengths.append(size)
                steps.append(step)
        lacking = most - len(lengths)
        if lacking < 0:
            raise _LayoutError
        steps = [[0] * len(used)] * lacking + steps
        return [1] * lacking + lengths, [[step[number] for step in steps] for number in range(len(used))]


def _spelled(kind: str | int | None, letters: str, layouts: Sequence[Layout | None]) -> list[str]:
    """The letters of all tensors."""
    ndims = [-1 if layout is None else len(layout[0]) for layout in layouts]
    if not isinstance(kind, str):
        every = _letters(ndims[FIRST])
        if not ndims[COTANGENT]:  # a loss may be the mean of all
            return ["", every]
        # An entry of a gradient has one place along its line, and belongs to the cotangents of all.
        return [every if kind is None else every.replace(every[kind], "z"), every]
    if letters:
        first, second, result = letters.replace("->", ",").split(",")
        more = _letters(ndims[COTANGENT] - len(result.replace("...", "")))
        first, second, result = (each.replace("...", more) for each in (first, second, result))
    else:  # aligned at their ends
        result = _letters(ndims[COTANGENT])
        first, second = (
            result[len(result) - max(ndims[each], ndims[_OPERANDS[each]], 0) :] for each in (FIRST, SECOND)
        )
    return [result, first, second, first, second]


def _letters(ndim: int) -> str:
    return "".join(chr(ord("A") + number) for number in range(ndim))


def _by_letter(letters: str, layout: Layout, sizes: dict[str, int]) -> Strides:
    """The strides along dimensions of more than one entry, whose sizes are noted."""
    if len(letters) != len(layout[0]):
        raise _LayoutError
    found = {}
    for letter, size, stride in zip(letters, *layout, strict=True):
        if size != 1:
            found[letter] = stride
            if sizes.setdefault(letter, size) != size:
                raise _LayoutError
    return found
