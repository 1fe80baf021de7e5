"""The windows of pooling operators: which entries each output is selected from."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache, reduce
from inspect import signature
from itertools import product, starmap
from math import prod
from typing import Any

import torch
from torch import Tensor

from subgrad.torch_internals.tracing import jit_tracing_state
from subgrad.torch_internals.transforms import DisableTorchFunction, len_dispatch_stack, peek_interpreter_stack


@dataclass(frozen=True)
class Look:
    """Along one dimension some entries, against the windows that have them: one entry of each, or all of one.

    Attributes:
        entries: their places; a tensor where those lie at no regular distance, with leading dimensions as ``lines``.
        windows: which those are.
        exists: which of the places do, of a tensor.
        is_window: whether all entries are of one window.
    """

    entries: slice | Tensor
    windows: slice
    exists: Tensor | None = None
    is_window: bool = False


@dataclass(frozen=True)
class Windows:
    """For every output the positions of its candidates in the flattened spatial dimensions.

    Attributes:
        lines: for each dimension the places of the candidates along it, and which of them exist: windows may reach over
            the border, and differ in size. With leading dimensions where windows differ from plane to plane.
        sizes: the spatial shape of the input.
        looks: for each dimension as few looks as show all entries of all windows; none where entries are the windows.
        slices: for regular windows the first place, step and end of each candidate, dimension by dimension, in an input
            padded by ``padding``.
    """

    lines: tuple[tuple[Tensor, Tensor], ...]
    sizes: tuple[int, ...]
    looks: tuple[tuple[Look, ...], ...]
    slices: tuple[tuple[slice, ...], ...] = ()
    padding: tuple[int, ...] = ()

    @property
    def shape(self) -> tuple[int, ...]:
        """That of the output, in space."""
        return tuple(index.shape[-2] for index, _ in self.lines)

    @cached_property
    def is_whole(self) -> bool:
        """Whether all candidates exist."""
        return bool(self.slices) and not any(self.padding)

    @cached_property
    def candidates(self) -> int:
        """How many each output has at most."""
        return prod(index.shape[-1] for index, _ in self.lines)

    @property
    def are_alike(self) -> bool:
        """Whether windows are the same in every plane."""
        return self.lines[0][0].ndim == 2

    # Not needed where windows are looked at by their slices.

    @cached_property
    def positions(self) -> Tensor:
        """Long, ``[..., outputs, candidates]``."""
        found, *rest = (index.clamp(0, size - 1) for (index, _), size in zip(self.lines, self.sizes, strict=True))
        for index, size in zip(rest, self.sizes[1:], strict=True):
            found = _outer(found * size, index, torch.add)
        return found

    @cached_property
    def valid(self) -> Tensor:
        """Which of the positions exist."""
        return reduce(lambda one, other: _outer(one, other, torch.logical_and), (exists for _, exists in self.lines))

    def columns(self, x: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Candidate after candidate: that of every output, shaped as the output, and whether it exists."""
        leading = x.shape[: -len(self.shape)]
        padded = self.padded(x)
        slices = [*product(*self.slices)]
        flat = None if self.slices else x.flatten(-len(self.shape))
        for column in range(self.candidates):
            if flat is None:
                entries = padded[(..., *slices[column])]
            elif self.are_alike:
                entries = flat.index_select(-1, self.positions[:, column])
            else:
                entries = flat.gather(-1, self.positions[..., column].expand(*leading, -1))
            yield entries.reshape(*leading, *self.shape), self._exists(column)

    def padded(self, x: Tensor) -> Tensor:
        """For ``slices``."""
        return torch.nn.functional.pad(x, self.padding) if any(self.padding) else x

    def _exists(self, column: int) -> Tensor:
        if self.is_whole:
            return self.lines[0][1].new_ones(())
        valid = self.valid[..., column]
        return valid.reshape(*valid.shape[:-1], *self.shape)

    def entries(self, x: Tensor) -> Tensor:
        """The candidates of all outputs at once, ``[..., *shape, candidates]``, of windows that are alike."""
        flat = x.flatten(-len(self.sizes))
        return flat.index_select(-1, self._laid_out).view(*flat.shape[:-1], *self.in_space.shape)

    @cached_property
    def in_space(self) -> Tensor:
        """The positions as ``[..., *shape, candidates]``."""
        return self.positions.unflatten(-2, self.shape)

    @cached_property
    def valid_in_space(self) -> Tensor:
        return self.valid.unflatten(-2, self.shape)

    @cached_property
    def _laid_out(self) -> Tensor:
        return self.positions.view(-1)

    def of(self, outputs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """For some outputs, numbered through all planes: their planes, their candidates' positions, which exist."""
        plane, output = outputs // prod(self.shape), outputs % prod(self.shape)
        # Windows that are the same in every plane, or one set of them for each.
        row = output if self.are_alike else outputs
        positions, valid = (each.reshape(-1, self.candidates)[row] for each in (self.positions, self.valid))
        return plane, positions, valid


def of_call(make: Callable[..., Windows], arguments: Mapping[str, Any]) -> Windows:
    """The windows of a call, from those of its arguments that ``make`` names."""
    return make(arguments["self"], *[arguments[name] for name in _names(make)])


@cache
def _names(make: Callable[..., Windows]) -> tuple[str, ...]:
    return tuple(signature(make).parameters)[1:]


def regular(
    x: Tensor,
    kernel_size: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] | int = 0,
    dilation: Sequence[int] | int = 1,
    ceil_mode: bool = False,
) -> Windows:
    """The windows of ``max_pool2d`` and its relatives, with their arguments."""
    given = [each if isinstance(each, int) else tuple(each) for each in (kernel_size, stride, padding, dilation)]
    keep = _may_keep(x)
    places, numbers = (_known_numbers if keep else _numbers)(x.shape, *given)
    return _made(_regular, x, places, *numbers, ceil_mode, keep=keep)


def _numbers(shape: Sequence[int], *given: Sequence[int] | int) -> tuple[int, tuple[tuple[int, ...], ...]]:
    """About how many positions such windows have, and what is given, dimension by dimension."""
    kernel_size, stride, *others = given
    given = (kernel_size, stride or kernel_size, *others)
    # One number in a list, too, is for all dimensions.
    dims = max(2 if len(shape) < 5 else 3, *(1 if isinstance(each, int) else len(each) for each in given))
    sizes, (k, s, p, d) = tuple(shape[-dims:]), (_each(value, dims) for value in given)
    places = prod((size + 2 * pad) * wide for size, pad, wide in zip(sizes, p, k, strict=True))
    return places, (sizes, k, s, p, d)


_known_numbers = lru_cache(maxsize=256)(_numbers)


def _regular(device: torch.device, sizes: tuple[int, ...], *numbers: Any) -> Windows:
    *given, ceil_mode = numbers
    lines, looks, slices, padded = [], [], [], []
    for size, k, s, p, d in zip(sizes, *given, strict=True):
        room = size + 2 * p - d * (k - 1) - 1
        outputs = (-(-room // s) if ceil_mode else room // s) + 1
        if ceil_mode and (outputs - 1) * s >= size + p:
            outputs -= 1  # the last window must begin inside the padded input
        starts = torch.arange(outputs, device=device)[:, None] * s - p
        index = starts + torch.arange(k, device=device) * d
        lines.append((index, (index >= 0) & (index < size)))
        looks.append(_looks_of_regular(size, outputs, k, s, p, d))
        slices.append(tuple(slice(i * d, i * d + (outputs - 1) * s + 1, s) for i in range(k)))
        padded.append((p, max(0, (outputs - 1) * s + d * (k - 1) + 1 - size - p)))
    padding = tuple(amount for line in reversed(padded) for amount in line)  # as `pad` wants it: last dimension first
    return Windows(tuple(lines), sizes, tuple(looks), tuple(slices), padding)


def evenly_apart(sizes: tuple[int, ...], *numbers: tuple[int, ...]) -> Windows:
    """Those to be looked at alone; by numbers of windows, their sizes, steps, padding and dilation."""
    return Windows((), sizes, tuple(starmap(_looks_of_regular, zip(sizes, *numbers, strict=True))))


def _looks_of_regular(size: int, outputs: int, k: int, s: int, p: int, d: int) -> tuple[Look, ...]:
    if k == s == 1 and not p:
        return ()
    if outputs < k:
        starts = [window * s - p for window in range(outputs)]
        places = [slice(a if a >= 0 else a % d, min(a + (k - 1) * d + 1, size), d) for a in starts]
        if all(place.start < place.stop for place in places):
            return _window_by_window(places)
    looks = []
    for shift in range(-p, k * d - p, d):
        first, end = max(0, -(shift // s)), min(outputs, (size - 1 - shift) // s + 1)
        if first < end:
            start = first * s + shift
            looks.append(Look(slice(start, start + (end - first - 1) * s + 1, s), slice(first, end)))
    return tuple(looks)


def _window_by_window(places: Sequence[slice]) -> tuple[Look, ...]:
    return tuple(Look(place, slice(i, i + 1), is_window=True) for i, place in enumerate(places))


def _entry_by_entry(index: Tensor, exists: Tensor | None, size: int, number: int, dims: int) -> tuple[Look, ...]:
    """Along dimension ``number`` of so many in space."""
    *leading, outputs, candidates = index.shape
    shape = (*leading, *[1] * number, outputs, *[1] * (dims - 1 - number), candidates)
    entries = index.clamp(0, size - 1).reshape(shape).unbind(-1)
    valid = [None] * candidates if exists is None else exists.reshape(shape).unbind(-1)
    return tuple(Look(each, slice(0, outputs), which) for each, which in zip(entries, valid, strict=True))


def adaptive(x: Tensor, output_size: Sequence[int]) -> Windows:
    """The windows of ``adaptive_max_pool2d`` and its relatives."""
    sizes, wanted = tuple(x.shape[-len(output_size) :]), tuple(output_size)
    places = prod(size + 2 * outputs for size, outputs in zip(sizes, wanted, strict=True))
    return _made(_adaptive, x, places, sizes, wanted, keep=_may_keep(x))


def _adaptive(device: torch.device, sizes: tuple[int, ...], output_size: tuple[int, ...]) -> Windows:
    if not any(size % outputs for size, outputs in zip(sizes, output_size, strict=True)):
        widths = tuple(size // outputs for size, outputs in zip(sizes, output_size, strict=True))
        return _regular(device, sizes, widths, widths, (0,) * len(sizes), (1,) * len(sizes), False)
    lines: list[tuple[Tensor, Tensor]] = []
    looks = []
    for number, (size, outputs) in enumerate(zip(sizes, output_size, strict=True)):
        i = torch.arange(outputs, device=device)[:, None]
        start, end = i * size // outputs, -(-(i + 1) * size // outputs)
        index = start + torch.arange(-(-size // outputs) + 1, device=device)
        lines.append((index, index < end))
        looks.append(_looks_of_adaptive(size, outputs, *lines[-1], number, len(sizes)))
    return Windows(tuple(lines), sizes, tuple(looks))


def _looks_of_adaptive(
    size: int, outputs: int, index: Tensor, exists: Tensor, number: int, dims: int
) -> tuple[Look, ...]:
    if size % outputs == 0:
        return _looks_of_regular(size, outputs, size // outputs, size // outputs, 0, 1)
    if outputs > _MANY:
        return _entry_by_entry(index, exists, size, number, dims)
    return _window_by_window([slice(i * size // outputs, -(-(i + 1) * size // outputs)) for i in range(outputs)])


def fractional(x: Tensor, kernel_size: Sequence[int], output_size: Sequence[int], random_samples: Tensor) -> Windows:
    """The windows of ``fractional_max_pool2d`` and its relatives, which differ from plane to plane."""
    dims, lines, looks = len(output_size), [], []
    # One number per plane and dimension; in two dimensions torch takes the one for the width first.
    columns = range(dims) if dims == 3 else reversed(range(dims))
    samples = random_samples if x.ndim > dims + 1 else random_samples.squeeze(0)
    given = zip(x.shape[-dims:], kernel_size, output_size, columns, strict=True)
    for number, (size, k, outputs, column) in enumerate(given):
        u = samples[..., column, None]
        alpha = (size - k) / (outputs - 1) if outputs > 1 else 0.0
        steps = torch.arange(outputs, device=x.device)
        starts = ((steps + u) * alpha).long() - (u * alpha).long()
        starts = torch.where(steps == outputs - 1, size - k, starts)
        index = starts[..., None] + torch.arange(k, device=x.device)
        lines.append((index, torch.ones_like(index, dtype=torch.bool)))
        looks.append(_entry_by_entry(index, None, size, number, dims))
    return Windows(tuple(lines), tuple(x.shape[-dims:]), tuple(looks))


_MANY = 32  # windows of different sizes, of which one after the other is looked at


# To make the windows of a small image takes longer than to look at them, and they depend on numbers alone.

_FEW = 2**15  # places, so that what is kept stays small: some 20 MB at most
_PLAIN = (Tensor, torch.nn.Parameter)


def _made(make: Callable[..., Windows], x: Tensor, places: int, *numbers: Any, keep: bool) -> Windows:
    """Windows for a tensor, from numbers alone; about ``places`` positions at most."""
    return _kept(make, numbers) if keep and places <= _FEW else make(x.device, *numbers)


def _may_keep(x: Tensor) -> bool:
    """Whether tensors that are made here are memory like any other, and the same ever after.

    Not where something traces, batches or wraps what is made; elsewhere than on the CPU, streams and graphs own it.
    """
    return (
        not torch.compiler.is_compiling()
        and type(x) in _PLAIN
        and x.is_cpu
        and not len_dispatch_stack()
        and peek_interpreter_stack() is None
        and not torch.is_inference_mode_enabled()
        and jit_tracing_state() is None
    )


@lru_cache(maxsize=64)
def _kept(make: Callable[..., Windows], numbers: tuple[Any, ...]) -> Windows:
    with DisableTorchFunction():  # whatever modes a program has
        windows = make(torch.device("cpu"), *numbers)
        _ = windows._laid_out, windows.in_space, windows.valid_in_space  # made here, too
    return windows


def _each(value: Sequence[int] | int, dims: int) -> tuple[int, ...]:
    values = (value,) if isinstance(value, int) else tuple(value)
    return values * dims if len(values) == 1 else values


def _outer(one: Tensor, other: Tensor, combine: object) -> Tensor:
    grid = combine(one[..., :, None, :, None], other[..., None, :, None, :])  # type: ignore[operator]
    return grid.flatten(-4, -3).flatten(-2, -1)
