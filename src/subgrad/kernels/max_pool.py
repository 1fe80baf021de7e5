"""Max-pooling whose tied entries share: the forward keeps a bit for each entry of a window, and nothing else.

Of windows of more than 64 entries it keeps the input, the position of the largest entry and how many are as large.

On CUDA by the kernels in `triton_max_pool.py`; on the CPU by the loops in `cpu_max_pool.h`, which the C++ part alone
calls: there this module says what windows a call has, and what is done with cotangents that are differentiated.

Torch keeps the input and an index of 8 bytes an output. Neither way is the device waited for, and the gradient is
written in one pass, in an order that is always the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from itertools import product
from math import gcd, prod
from typing import Any, NamedTuple

import torch
from torch import Tensor

from subgrad.apply import tied_windows
from subgrad.apply.autograd_nodes import Gate, alias, is_memory, outer_levels
from subgrad.apply.call import Arguments, Call
from subgrad.apply.executors import Run
from subgrad.apply.plan import Plan
from subgrad.kernels.cuda_bitmask import DTYPES, MOST_SIZES, anchor
from subgrad.kernels.native import build
from subgrad.kernels.triton_launch import Compiled, Launch, triton_kernels
from subgrad.kinks.pooling_windows import Windows, adaptive, evenly_apart
from subgrad.torch_internals.autograd import forward_level

ENTRIES, WARPS = 1024, 4  # of a program
LONG = 64  # entries side by side; in longer lines more than one is looked at at once
_CHANNELS = 128  # at most in a tile: two lines of the cache, and threads that read 16 bytes each
# What keeps a bit for each of so many entries, and their count; without it up to 64, and the bits are counted.
_WORDS = ((12, torch.int16), (27, torch.int32), (64, torch.int64))
_READS = 72  # that a thread of contiguous planes may have under way, as eight windows of nine entries
_LOOPED_BITS = 27  # in 32 with their count; loops over wider words are slower than those over large windows
_POSITION = (1 << 31) - 1  # in a word of a large window; above are how many entries are as large
_HELD = 160  # numbers that a thread may have in registers
_MOST_PLACES = 64  # entries of a cell, or windows that reach it, which the kernel names one by one
_NUMBERS = ("kernel_size", "stride", "padding", "dilation")
_FORMATS = {4: torch.channels_last, 5: torch.channels_last_3d}
Three = tuple[int, int, int]


@dataclass(frozen=True)
class Geometry:
    """The windows of one call, as the kernels know them, in three dimensions.

    Attributes:
        shape, out: of the input and the output.
        channels_last: whether channels come last in memory.
        sizes, outputs: in space.
        kernel: the size of a window; the largest, if they differ.
        steps: how far windows lie apart; None if they differ.
        most_bits: that a word has for entries.
    """

    shape: tuple[int, ...]
    out: tuple[int, ...]
    channels_last: bool
    sizes: Three
    outputs: Three
    kernel: Three
    steps: Three | None
    padding: Three = (0, 0, 0)
    dilation: Three = (1, 1, 1)
    most_bits: int = 64

    @cached_property
    def entries(self) -> int:
        """Of a window, at most."""
        return prod(self.kernel)

    @cached_property
    def is_by_loops(self) -> bool:
        """Whether it is the loops of the C++ part that pool so, on the CPU."""
        return self.most_bits == _LOOPED_BITS

    @cached_property
    def word(self) -> torch.dtype:
        return next(dtype for most, dtype in _WORDS if self.entries <= most) if self.is_small else torch.int64

    @cached_property
    def lanes(self) -> int:
        """Channels, if they come last; else planes, in all images."""
        return self.shape[1] if self.channels_last else prod(self.shape) // prod(self.sizes)

    @cached_property
    def layout(self) -> torch.memory_format:
        return _FORMATS[len(self.shape)] if self.channels_last else torch.contiguous_format

    @cached_property
    def cells(self) -> int:
        """The positions of the backward: groups of as many entries as windows lie apart."""
        if self.steps is None:
            return prod(map(min, self.sizes, self.outputs))
        return prod(-(-size // step) for size, step in zip(self.sizes, self.steps, strict=True))

    @cached_property
    def most_windows(self) -> Three:
        """In how many windows an entry is, at most."""
        if self.steps is None:
            both = zip(self.sizes, self.outputs, strict=True)
            several = (-(-(out + size - gcd(out, size)) // size) for size, out in both)
        else:
            given = zip(self.kernel, self.steps, self.dilation, strict=True)
            several = (((k - 1) * d) // s + 1 for k, s, d in given)
        return tuple(several)  # pyright: ignore[reportReturnType]

    @cached_property
    def in_cell(self) -> Three:
        """How many entries a cell has, at most."""
        several = (-(-size // out) for size, out in zip(self.sizes, self.outputs, strict=True))
        return self.steps or tuple(several)  # pyright: ignore[reportReturnType]

    @cached_property
    def has_indices_of_32_bits(self) -> bool:
        return max(prod(self.sizes), prod(self.outputs)) < 1 << 31

    @cached_property
    def is_small(self) -> bool:
        """Whether a word has a bit for each entry, and the kernels, which name entries and windows, stay small."""
        places = prod(self.most_windows) if self.steps is None else max(prod(self.steps), self.reach)
        return self.entries <= self.most_bits and places <= _MOST_PLACES

    @cached_property
    def reach(self) -> int:
        """How many windows, evenly apart, reach into a cell."""
        given = zip(self.kernel, self.steps or self.kernel, self.padding, self.dilation, strict=True)
        return prod(((k - 1) * d - p) // s + (s - 1 + p) // s + 1 for k, s, p, d in given)

    def pool(self, x: Tensor, with_indices: bool) -> tuple[Tensor, Tensor, Tensor | None]:
        """Values, words and, if wanted, indices."""
        if not self.is_small:
            values, words = self._lines(x)
            return values, words, words & _POSITION if with_indices else None
        layout, device = self.layout, x.device
        values = torch.empty(self.out, dtype=x.dtype, device=device, memory_format=layout)
        words = torch.empty(self.out, dtype=self.word, device=device, memory_format=layout)
        indices = None
        if with_indices:
            indices = torch.empty(self.out, dtype=torch.long, device=device, memory_format=layout)
        self._kernel(with_indices, x)(x, values, words, words if indices is None else indices)
        return values, words, indices

    def tied(self, x: Tensor) -> Tensor:
        """Which windows hold their largest entry more than once."""
        _, words, _ = self.pool(x.contiguous(memory_format=self.layout), False)
        if not self.is_small:
            return words >> 32 > 1
        bits = words if self.entries == 64 else words & ((1 << self.entries) - 1)
        return bits & (bits - 1) != 0

    def spread(self, cotangent: Tensor, words: Tensor, x: Tensor | None) -> Tensor:
        """The gradient of the input, which large windows need once more."""
        layout, dtype = self.layout, cotangent.dtype
        cotangent = cotangent.contiguous(memory_format=layout)
        gradient = torch.empty(self.shape, dtype=dtype, device=cotangent.device, memory_format=layout)
        if x is not None:
            shares = _accurate(cotangent) / (words >> 32)
            self._kernel(None, cotangent)(x, shares, self._largest(x, words), words, gradient)
        else:
            self._kernel(None, cotangent)(cotangent, words, gradient)
        return gradient

    def compiled(self, x: Tensor) -> tuple[Compiled | None, Compiled | None]:
        """The kernels of forward and backward, as C++ launches them; by a run on the input."""
        values, words, _ = self.pool(x, False)
        forward = self._kernel(False, x).compiled(x, values, words, words)
        return forward, self._kernel(None, x).compiled(values, words, torch.empty_like(x))

    @cached_property
    def _kernels(self) -> dict[tuple[Any, ...], Launch]:
        return {}

    def _kernel(self, with_indices: bool | None, like: Tensor) -> Launch:
        """That of the forward, with indices or without; None for the backward."""
        key = with_indices, like.dtype, like.device
        if key not in self._kernels:
            self._kernels[key] = self._backward() if with_indices is None else self._forward(with_indices)
        return self._kernels[key]

    def _forward(self, with_indices: bool) -> Launch:
        steps = self.steps or (1, 1, 1)
        of_windows = (self.steps is not None, self._counts, with_indices)
        constants = (*self.kernel, *steps, *self.padding, *self.dilation, *of_windows)
        return self._launch("max_pool_forward", prod(self.outputs), constants)

    def _backward(self) -> Launch:
        if not self.is_small:
            return self._large_backward()
        if self.steps is None:
            constants = (*self.kernel, *self.in_cell, *self.most_windows, self._counts)
            return self._launch("adaptive_max_pool_backward", self.cells, constants, 2 * prod(self.most_windows))
        is_in_pairs = self.steps[2] == 2 and self.sizes[2] % 2 == 0 and not self.channels_last
        constants = (*self.kernel, *self.steps, *self.padding, *self.dilation, is_in_pairs)
        return self._launch("max_pool_backward", self.cells, constants, 2 * self.reach + prod(self.steps))

    @property
    def _counts(self) -> Any:
        """The type of products of sizes and windows along one dimension, which adaptive pooling divides."""
        return triton_kernels().index_type(self._most_counted)

    @property
    def _most_counted(self) -> int:
        return max((size + 1) * (out + 1) for size, out in zip(self.sizes, self.outputs, strict=True))

    def _lines(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Values and words of large windows, one dimension after the other; the innermost, along which windows lie side
        by side in memory, last, when the fewest are left."""
        found, words, sizes = x, x, [*self.sizes]
        differ = [dim for dim in (0, 1, 2) if (self.sizes[dim], self.kernel[dim]) != (self.outputs[dim], 1)]
        for dim in differ:
            sizes[dim] = self.outputs[dim]
            shape = self.out if dim == differ[-1] else (prod(self.out) // prod(self.outputs) * prod(sizes),)
            layout = self.layout if dim == differ[-1] else torch.contiguous_format
            given, of_given = found, words
            found, words = (
                torch.empty(shape, dtype=dtype, device=x.device, memory_format=layout)
                for dtype in (x.dtype, torch.int64)
            )
            inner = prod(sizes[dim + 1 :]) * (self.lanes if self.channels_last else 1)
            key = dim, x.dtype, x.device
            if key not in self._kernels:
                self._kernels[key] = self._line(dim, inner, found.numel(), dim == differ[0])
            self._kernels[key](given, of_given, found, words)
        return found, words

    def _largest(self, x: Tensor, words: Tensor) -> Tensor:
        """Of each window, as it lies in the input."""
        if self.channels_last:
            flat, index = (each.movedim(1, -1).flatten(1, -2) for each in (x, words & _POSITION))
            return flat.gather(1, index)
        return x.view(self.lanes, -1).gather(1, (words & _POSITION).view(self.lanes, -1))

    def _line(self, dim: int, inner: int, total: int, is_first: bool) -> Launch:
        is_long = inner == 1 and self.kernel[dim] > LONG
        entries = min(_power_of_two(self.kernel[dim]), 512) if is_long else 1
        at_once = 1024 if entries == 1 else max(1, 2048 // entries)
        below = prod(self.sizes[dim + 1 :])
        index = triton_kernels().index_type(max(prod(self.shape), prod(self.out), self._most_counted))
        step, even = (1, False) if self.steps is None else (self.steps[dim], True)
        constants = (self.kernel[dim], step, self.padding[dim], self.dilation[dim], even, is_first, index)
        numbers = (total, self.sizes[dim], self.outputs[dim], inner, below)
        return Launch("large_windows_forward", -(-total // at_once), numbers, (*constants, at_once, entries))

    def _large_backward(self) -> Launch:
        space, lanes, tile = prod(self.sizes), _power_of_two(self.lanes), 1024
        if self.channels_last:
            lanes = min(lanes, _CHANNELS)
            at_once = min(tile // lanes, _power_of_two(space))
        else:
            at_once = min(tile, _power_of_two(space))
            lanes = min(lanes, tile // at_once)
        images = self.shape[0] if self.channels_last else 1
        programs = -(-space // at_once) * -(-self.lanes // lanes) * images
        index = triton_kernels().index_type(max(space, prod(self.outputs)) * max(lanes, images and self.lanes))
        steps = self.steps or (1, 1, 1)
        constants = (*self.kernel, *steps, *self.padding, *self.dilation, *self.most_windows)
        constants = (*constants, self.steps is not None, self._counts, self.channels_last, index, at_once, lanes)
        return Launch("large_windows_backward", programs, (self.lanes, *self.sizes, *self.outputs), constants)

    @cached_property
    def in_loops(self) -> Any:
        """What the loops of the C++ part know, on the CPU."""
        channels, planes = self.lanes if self.channels_last else 1, prod(self.shape) // prod(self.sizes)
        sizes = (*self.sizes, *self.outputs, *self.kernel, *(self.steps or (1, 1, 1)), *self.padding, *self.dilation)
        loops = build.built()
        assert loops is not None
        return loops.Windows([channels, planes, *sizes, int(self.steps is not None)])

    def _launch(self, name: str, positions: int, constants: tuple[Any, ...], held: int = 1) -> Launch:
        kernels = triton_kernels()
        at_once, lanes, turns = self._tile(positions, held)
        images = self.shape[0] if self.channels_last else 1
        programs = -(-positions // at_once) * -(-self.lanes // (lanes * turns)) * images
        is_whole = self.lanes % (lanes * turns) == 0
        reach = max(prod(self.sizes), prod(self.outputs)) * (self.lanes if self.channels_last else 1)
        index, word = (kernels.index_type(most) for most in (reach, 1 << 31 if self.word is torch.int64 else 0))
        given = (*constants, self.channels_last, is_whole, index, word, at_once, lanes, turns)
        return Launch(name, programs, (self.lanes, *self.sizes, *self.outputs), given, WARPS)

    def _tile(self, positions: int, held: int) -> Three:
        """How many positions and lanes a program does at once, and in how many turns.

        For each of them a thread holds so many numbers.
        """
        entries = min(ENTRIES, 32 * WARPS * _power_of_two(max(1, _HELD // held) // 2 + 1))
        if self.channels_last:
            lanes = min(_power_of_two(self.lanes), _CHANNELS)
            return min(entries // lanes, _power_of_two(positions)), lanes, 1
        at_once = min(32 * WARPS, _power_of_two(positions))
        return at_once, 1, max(1, min(entries // at_once, _READS // self.entries, self.lanes))

    def spread_by_torch(self, cotangent: Tensor, words: Tensor, x: Tensor | None) -> Tensor:
        """The same with torch's operators, for cotangents that are differentiated, batched or traced."""
        if x is not None:
            return self._spread_large(cotangent, words, x)
        planes = prod(self.shape) // prod(self.sizes)
        hits, count = self._hits(words)
        # Summed as the kernel does, and rounded once.
        shares = _accurate(cotangent).reshape(planes, -1) / count
        found = torch.zeros(planes, prod(self.sizes), dtype=shares.dtype, device=words.device)
        for hit, position in zip(hits, self._positions(words.device), strict=True):
            found = found.index_add(1, position, torch.where(hit == 1, shares, 0))
        return found.view(self.shape).to(cotangent.dtype)

    def gather_by_torch(self, vector: Tensor, words: Tensor) -> Tensor:
        """The transpose of `spread`, for small windows: the mean of a vector over the largest entries of each."""
        hits, count = self._hits(words)
        wide = _accurate(vector).reshape(len(count), -1)
        total = torch.zeros_like(count, dtype=wide.dtype)
        for hit, position in zip(hits, self._positions(words.device), strict=True):
            total += torch.where(hit == 1, wide[:, position], 0)
        return (total / count).view(self.out).to(vector.dtype)

    def _hits(self, words: Tensor) -> tuple[list[Tensor], Tensor]:
        """For each entry of a window whether it is among the largest, by planes; and how many are."""
        planes = prod(self.shape) // prod(self.sizes)
        hits = [((words >> number) & 1).reshape(planes, -1) for number in range(self.entries)]
        return hits, torch.stack(hits).sum(0).clamp(min=1)

    def _spread_large(self, cotangent: Tensor, words: Tensor, x: Tensor) -> Tensor:
        planes, windows = prod(self.shape) // prod(self.sizes), self._windows(x)
        count, index, flat = (each.reshape(planes, -1) for each in (words >> 32, words & _POSITION, x))
        shares = _accurate(cotangent).reshape(planes, -1) / count
        alone = torch.zeros_like(flat, dtype=shares.dtype).scatter_add(1, index, torch.where(count > 1, 0, shares))
        values = flat.gather(1, index).view(planes, *self.outputs)
        largest = tied_windows.largest_of_lines(flat.view(planes, *self.sizes), values, windows)
        tied = torch.where(count > 1, shares, 0).view(planes, *self.outputs)
        shared = tied_windows.given_back(tied, largest, windows)
        return (alone.view(self.shape) + shared.view(self.shape)).to(cotangent.dtype)

    def _windows(self, x: Tensor) -> Windows:
        if self.steps is None:
            return adaptive(x, self.outputs)
        return evenly_apart(self.sizes, self.outputs, self.kernel, self.steps, self.padding, self.dilation)

    def _positions(self, device: torch.device) -> list[Tensor]:
        """For each entry of a window its position in all windows; any, where a window does not have it."""
        lines = []
        for size, outputs, entries, step, before, apart in zip(
            self.sizes, self.outputs, self.kernel, self.steps or (0, 0, 0), self.padding, self.dilation, strict=True
        ):
            window = torch.arange(outputs, device=device)
            starts = window * step - before if step else window * size // outputs
            lines.append([(starts + number * apart).clamp(0, size - 1) for number in range(entries)])
        _, height, width = self.sizes
        return [
            ((z[:, None, None] * height + y[:, None]) * width + x).flatten() for z, y, x in product(*lines)
        ]  # fmt: skip


def geometry_of(x: Tensor, arguments: Arguments) -> Geometry | None:
    """None for calls that the kernels are not made for, and for those that torch refuses."""
    return geometry_for(tuple(x.shape), is_channels_last(x), arguments, _LOOPED_BITS if _is_by_loops(x) else 64)


def geometry_for(shape: tuple[int, ...], last: bool, arguments: Arguments, most_bits: int = 64) -> Geometry | None:
    """For an input of a shape, whose channels come last or not."""
    numbers = arguments.get("output_size")
    if numbers is not None:
        # In space torch's own kernel lays its results out one way only.
        return _adaptive(shape, len(numbers) == 2 and last, tuple(numbers), most_bits)
    given = tuple(_as_tuple(arguments[name]) for name in _NUMBERS)
    return _regular(shape, last, given, bool(arguments["ceil_mode"]), most_bits)


@lru_cache(maxsize=1024)
def _regular(
    shape: tuple[int, ...], last: bool, given: tuple[tuple[int, ...], ...], ceil_mode: bool, most_bits: int
) -> Geometry | None:
    kernel, steps, padding, dilation = given
    dims = max(2, *map(len, given))  # one number in a list, too, is for all dimensions
    kernel, steps, padding, dilation = (_each(each, dims) for each in (kernel, steps or kernel, padding, dilation))
    if not _is_sound(shape, dims, (*kernel, *steps, *dilation)) or (last and len(shape) == dims + 1):
        return None  # of an image in space without a batch the second dimension is none of channels
    outputs = []
    for size, k, s, p, d in zip(shape[-dims:], kernel, steps, padding, dilation, strict=True):
        room = size + 2 * p - d * (k - 1) - 1
        outputs.append((-(-room // s) if ceil_mode else room // s) + 1)
        if ceil_mode and (outputs[-1] - 1) * s >= size + p:
            outputs[-1] -= 1  # the last window must begin inside the padded input
        if not 0 <= p <= (d * (k - 1) + 1) // 2 or outputs[-1] < 1:
            return None
    sizes, outs, kernel, steps, dilation = (
        _three(each, 1) for each in (shape[-dims:], outputs, kernel, steps, dilation)
    )
    out = (*shape[:-dims], *outputs)
    found = Geometry(shape, out, last, sizes, outs, kernel, steps, _three(padding, 0), dilation, most_bits)
    return found if found.has_indices_of_32_bits else None


@lru_cache(maxsize=1024)
def _adaptive(shape: tuple[int, ...], last: bool, outputs: tuple[int, ...], most_bits: int) -> Geometry | None:
    dims = len(outputs)
    if not _is_sound(shape, dims, outputs):
        return None
    sizes, outs = _three(shape[-dims:], 1), _three(outputs, 1)
    both = tuple(zip(sizes, outs, strict=True))
    is_even = all(size % out == 0 for size, out in both)
    kernel = _three([-(-(size + out - gcd(size, out)) // out) for size, out in both], 1)
    steps, out = kernel if is_even else None, (*shape[:-dims], *outputs)
    found = Geometry(shape, out, last, sizes, outs, kernel, steps, most_bits=most_bits)
    return found if found.has_indices_of_32_bits else None


def _is_sound(shape: tuple[int, ...], dims: int, positive: Sequence[int]) -> bool:
    return len(shape) in (dims + 1, dims + 2) and 0 not in shape and min(positive) > 0


class MaxPool:
    """See `Executor`."""

    def accepts(self, plan: Plan, call: Call) -> Run | None:
        x = call.args[0]
        if not plan.shares or call.op.op not in POOLINGS or forward_level() >= 0:
            return None
        if x.dtype not in DTYPES or not is_memory(x):
            return None
        kernels = triton_kernels() if x.is_cuda else build.loops() if x.is_cpu else None
        return None if kernels is None else _Pool(call)

    def gains(self, op: str, key: str) -> bool:
        kernels = {"AutogradCUDA": triton_kernels, "AutogradCPU": build.loops}.get(key)
        return op in POOLINGS and kernels is not None and kernels() is not None


POOLINGS = ("max_pool2d_with_indices", "max_pool3d_with_indices", "adaptive_max_pool2d", "adaptive_max_pool3d")


class _Pool:
    """Calls with the same numbers: by shapes and strides their geometry, None for what no kernel is made for."""

    def __init__(self, call: Call):
        self.with_indices, self.is_line = call.form == call.op.op, call.form == "max_pool1d"
        self.arguments = {name: each for name, each in call.arguments.items() if name != "self"}
        if self.is_line:  # is pooled as an image of one line
            for name, default in (("kernel_size", 1), ("stride", 1), ("padding", 0), ("dilation", 1)):
                self.arguments[name] = [default, *self.arguments[name]] if self.arguments[name] else []
        self.geometries: dict[Any, Geometry | None] = {}

    def geometry_of(self, x: Tensor) -> Geometry | None:
        key = x.shape, x.stride()
        if key not in self.geometries:
            if len(self.geometries) >= MOST_SIZES:
                self.geometries.clear()
            self.geometries[key] = geometry_of(x, self.arguments)
        return self.geometries[key]

    def __call__(self, call: Call) -> Any:
        x = call.args[0]
        if not self.is_line:
            return pooled(x, self.geometry_of(x), self.with_indices)
        if x.ndim not in (2, 3):
            return NotImplemented
        lines = x.unsqueeze(-2)
        found = pooled(lines, self.geometry_of(lines), False)
        return found if found is NotImplemented else found.squeeze(-2)


def pooled(x: Tensor, geometry: Geometry | None, with_indices: bool) -> Any:
    """What the operator returns, without indices if they are not wanted."""
    if geometry is None or geometry.is_by_loops:  # who is here was not answered in C++
        return NotImplemented
    return Shared.apply(x, [anchor(x)], geometry, with_indices)


class Pooling(NamedTuple):
    """One call as the C++ part runs it.

    Attributes:
        kernels: for the input, values, words, and words again; and for the cotangent, words, and the gradient.
        windows: what the loops know, on the CPU.
        is_small: whether words have a bit for each entry, and the input is not kept.
        out: the shape of the values.
        channels_last: whether channels come last in memory.
        word: a tensor of the words' dtype.
        in_python: the gradient, of cotangents that are differentiated, batched, traced, or lie differently.
    """

    kernels: tuple[Compiled, Compiled] | None
    windows: Any
    is_small: bool
    out: tuple[int, ...]
    channels_last: bool
    word: Tensor
    in_python: Callable[..., Tensor]


def pooling_of(run: Run, call: Call) -> Pooling | None:
    """None for what the C++ part is not made for."""
    x = call.args[0]
    if not isinstance(run, _Pool) or (run.is_line and x.ndim not in (2, 3)):
        return None
    lines = x.unsqueeze(-2) if run.is_line else x
    geometry = run.geometry_of(lines)
    if geometry is None:
        return None
    is_dense = lines.is_contiguous(memory_format=geometry.layout)
    if x.is_cuda and (run.is_line or run.with_indices or not geometry.is_small or not is_dense):
        return None
    if run.is_line and geometry.channels_last:
        return None
    with torch.no_grad():
        kernels = geometry.compiled(x.detach()) if x.is_cuda else None
    if kernels is not None and None in kernels:
        return None
    out = (*geometry.out[:-2], geometry.out[-1]) if run.is_line else geometry.out
    return Pooling(
        kernels,  # pyright: ignore[reportArgumentType]
        None if x.is_cuda else geometry.in_loops,
        geometry.is_small,
        out,
        geometry.channels_last,
        torch.empty(0, dtype=geometry.word),
        partial(_spread_line if run.is_line else _spread, geometry),
    )


class Shared(Gate):
    """Max-pooling with words for its backward, and torch's indices where they are wanted."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, anchors: list[Tensor], geometry: Geometry, with_indices: bool) -> Any:
        x = x.contiguous(memory_format=geometry.layout)
        values, words, indices = geometry.pool(x, with_indices)
        ctx.geometry, (ctx.anchor,) = geometry, anchors
        ctx.save_for_backward(words, None if geometry.is_small else x)
        ctx.set_materialize_grads(False)
        if indices is None:
            return values
        ctx.mark_non_differentiable(indices)
        return values, indices

    @staticmethod
    def backward(ctx: Any, cotangent: Tensor | None, *_: Any) -> tuple[Tensor | None, ...]:
        words, x = ctx.saved_tensors
        gradient = None if cotangent is None else _spread(ctx.geometry, cotangent, words, ctx.anchor, x)
        return gradient, None, None, None


def _spread(geometry: Geometry, cotangent: Tensor, words: Tensor, anchor: Tensor, x: Tensor | None = None) -> Tensor:
    x = None if x is None else x.detach()
    if torch.is_grad_enabled():
        return _Constant.apply(geometry.spread_by_torch(cotangent, words, x), anchor)
    # Dynamo, for compiled autograd, takes what it traces for plain tensors.
    is_elsewhere = geometry.is_by_loops or cotangent.device != words.device
    if torch.compiler.is_dynamo_compiling() or is_elsewhere or not is_memory(cotangent):
        return geometry.spread_by_torch(cotangent, words, x)
    return geometry.spread(cotangent, words, x)


def _spread_line(geometry: Geometry, cotangent: Tensor, words: Tensor, anchor: Tensor, x: Tensor | None) -> Tensor:
    lines = None if x is None else x.unsqueeze(-2)
    return _spread(geometry, cotangent.unsqueeze(-2), words.unsqueeze(-2), anchor, lines).squeeze(-2)


class _Constant(Gate):
    """A gradient that does not change with the input: second derivatives are zeros, not missing."""

    @staticmethod
    def forward(ctx: Any, gradient: Tensor, anchor: Tensor) -> Tensor:
        ctx.save_for_backward(anchor)
        with outer_levels():
            return alias(gradient)

    @staticmethod
    def backward(ctx: Any, cotangent: Tensor) -> tuple[Tensor, Tensor]:
        (anchor,) = ctx.saved_tensors
        return cotangent, torch.zeros_like(anchor)


def _is_by_loops(x: Tensor) -> bool:
    """Whether C++ does it; tests run the kernels of Triton on the CPU, too."""
    return x.is_cpu


def is_channels_last(x: Tensor) -> bool:
    """Whether strides are those of channels that come last, which is how torch's own kernels then lay out results."""
    if x.ndim not in _FORMATS:
        return False
    least, sizes, strides = 0, x.shape, x.stride()
    for dim in (1, *range(x.ndim - 1, 1, -1), 0):
        if strides[dim] < least or (dim == 0 and least == strides[1]):
            return False
        least = strides[dim] * max(sizes[dim], 1)
    return strides[1] > 0


def _accurate(cotangent: Tensor) -> Tensor:
    """As it is summed."""
    return cotangent if cotangent.dtype is torch.float64 else cotangent.float()


def _power_of_two(number: int) -> int:
    """The smallest that is as large."""
    return 1 << (number - 1).bit_length()


def _as_tuple(value: Sequence[int] | int) -> tuple[int, ...]:
    return (value,) if isinstance(value, int) else tuple(value)


def _each(values: tuple[int, ...], dims: int) -> tuple[int, ...]:
    return values * dims if len(values) == 1 else values


def _three(values: Sequence[int], fill: int) -> Three:
    return (fill,) * (3 - len(values)) + tuple(values)  # pyright: ignore[reportReturnType]
