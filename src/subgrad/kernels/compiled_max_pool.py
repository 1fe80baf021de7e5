"""Max-pooling whose tied entries share, inside a compiled graph on CUDA: the kernels of `max_pool.py` as operators.

The general rule would put torch's own pooling into the graph, and a dozen operators for the ties beside it. A compiler
takes these operators as they are: ``max_pool`` returns values and words, ``max_pool_spread`` makes the gradient of the
input from the cotangent and the words, and ``max_pool_gather`` is its transpose, for derivatives of higher order.

Graphs that are stored on disk call them by name. Whoever loads one has traced the same function before, and with that
has defined them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor

from subgrad.apply.autograd_nodes import Gate, below_autograd, through
from subgrad.apply.call import Arguments, Call
from subgrad.apply.executors import Executor, Run
from subgrad.apply.plan import Plan
from subgrad.apply.torch_compile import guards
from subgrad.kernels.cuda_bitmask import DTYPES, MOST_SIZES
from subgrad.kernels.max_pool import POOLINGS, Geometry, geometry_for, is_channels_last
from subgrad.kernels.triton_launch import triton_kernels
from subgrad.kinks.overloads import overload
from subgrad.torch_internals.autograd import forward_level
from subgrad.torch_internals.tracing import is_plain_in_graph

# The numbers of a call, as the operators take them: of adaptive pooling the first alone, of other pooling the rest.
_LISTS = ("output_size", "kernel_size", "stride", "padding", "dilation")
_NUMBERS = (*(f"int[] {name}" for name in _LISTS), "bool ceil_mode")
_SCHEMAS = {
    "max_pool": ("Tensor x", "SymInt[] size", "(Tensor, Tensor)"),
    "max_pool_spread": ("Tensor cotangent, Tensor words", "SymInt[] size", "Tensor"),
    "max_pool_gather": ("Tensor vector, Tensor words", "SymInt[] size", "Tensor"),
}
Numbers = tuple[Any, ...]


class CompiledMaxPool(Executor):
    """See `Executor`."""

    def accepts(self, plan: Plan, call: Call) -> Run | None:
        x = call.args[0]
        if not plan.shares or call.op.op not in POOLINGS or not guards.is_compiling() or forward_level() >= 0:
            return None
        # What is exported runs where subgrad may not be.
        if not is_plain_in_graph(x) or not _has_kernels(x) or torch.compiler.is_exporting():
            return None
        numbers = _numbers(call.arguments)
        geometry = _geometry(x.shape, x, numbers)
        return partial(_run, numbers) if geometry is not None and geometry.is_small else None


def _has_kernels(x: Tensor) -> bool:
    return x.is_cuda and x.dtype in DTYPES and triton_kernels() is not None


def _numbers(arguments: Arguments) -> Numbers:
    return *(list(arguments.get(name, ())) for name in _LISTS), bool(arguments.get("ceil_mode", False))


def _geometry(size: Sequence[int], like: Tensor, numbers: Numbers) -> Geometry | None:
    """For an input of a size, laid out as ``like``.

    A size may be a symbol where windows lie evenly apart: their words and memory layout do not depend on it.
    """
    output_size, kernel_size, *rest, ceil_mode = numbers
    if output_size:
        arguments = {"output_size": output_size}
    else:
        arguments = {**dict(zip(_LISTS[1:], (kernel_size, *rest), strict=True)), "ceil_mode": ceil_mode}
    if any(isinstance(each, torch.SymInt) for each in size):
        if output_size:
            return None
        window = max(kernel_size) * max(rest[-1])
        size = [window if isinstance(each, torch.SymInt) else each for each in size]
    return geometry_for(tuple(size), is_channels_last(like), arguments)


def _run(numbers: Numbers, call: Call) -> Any:
    # The graph loses torch's own operator again, unless somebody uses the indices.
    values, indices = below_autograd(overload(call.op.op), *call.op.args(call.arguments))
    return through(_Pooled, call.args[0], values.shape, numbers), indices


class _Pooled(Gate):
    @staticmethod
    def forward(ctx: Any, x: Tensor, out: Sequence[int], numbers: Numbers) -> Tensor:
        values, words = _operators().max_pool(x, out, *numbers)
        ctx.size, ctx.numbers = x.shape, numbers
        ctx.save_for_backward(words)
        return values

    @staticmethod
    def backward(ctx: Any, cotangent: Tensor) -> tuple[Tensor | None, ...]:
        (words,) = ctx.saved_tensors
        return through(_Linear, "max_pool_spread", cotangent, words, ctx.size, ctx.numbers), None, None


class _Linear(Gate):
    """Spreads cotangents of windows over their entries, or gathers those of entries: one is the other's transpose."""

    @staticmethod
    def forward(ctx: Any, name: str, vector: Tensor, words: Tensor, size: Sequence[int], numbers: Numbers) -> Tensor:
        ctx.transpose = "max_pool_gather" if name == "max_pool_spread" else "max_pool_spread"
        ctx.size, ctx.numbers = size, numbers
        ctx.save_for_backward(words)
        return getattr(_operators(), name)(vector, words, size, *numbers)

    @staticmethod
    def backward(ctx: Any, cotangent: Tensor) -> tuple[Tensor | None, ...]:
        (words,) = ctx.saved_tensors
        return None, through(_Linear, ctx.transpose, cotangent, words, ctx.size, ctx.numbers), None, None, None


# The operators. Their tensors have the strides that they had when the graph was traced.


@cache
def _operators() -> Any:
    library = torch.library.Library("subgrad", "FRAGMENT")
    for name, (tensors, size, results) in _SCHEMAS.items():
        schema = f"{name}({', '.join((tensors, size, *_NUMBERS))}) -> {results}"
        library.define(schema, tags=(torch.Tag.pt2_compliant_tag, torch.Tag.needs_exact_strides))
        function, fake = _FUNCTIONS[name]
        library.impl(name, function, "CompositeExplicitAutograd")
        torch.library.register_fake(f"subgrad::{name}", fake, lib=library)
    _kept.append(library)
    return torch.ops.subgrad


_kept: list[torch.library.Library] = []  # one that is dropped takes its operators with it


def _pool(x: Tensor, size: Sequence[int], *numbers: Any) -> tuple[Tensor, Tensor]:
    geometry = _met(x.shape, x, numbers)
    values, words, _ = geometry.pool(x.contiguous(memory_format=geometry.layout), False)
    return values, words


def _spread(cotangent: Tensor, words: Tensor, size: Sequence[int], *numbers: Any) -> Tensor:
    geometry = _met(size, words, numbers)
    return geometry.spread(cotangent, words.contiguous(memory_format=geometry.layout), None)


def _gather(vector: Tensor, words: Tensor, size: Sequence[int], *numbers: Any) -> Tensor:
    geometry = _met(size, words, numbers)
    return geometry.gather_by_torch(vector, words).contiguous(memory_format=geometry.layout)


def _fake_pool(x: Tensor, size: Sequence[int], *numbers: Any) -> tuple[Tensor, Tensor]:
    geometry = _known(x.shape, x, numbers)
    return _empty(geometry, size, x, x.dtype), _empty(geometry, size, x, geometry.word)


def _fake_spread(cotangent: Tensor, words: Tensor, size: Sequence[int], *numbers: Any) -> Tensor:
    return _empty(_known(size, words, numbers), size, cotangent, cotangent.dtype)


def _fake_gather(vector: Tensor, words: Tensor, size: Sequence[int], *numbers: Any) -> Tensor:
    return _empty(_known(size, words, numbers), words.shape, vector, vector.dtype)


_geometries: dict[tuple[Any, ...], Geometry] = {}


def _met(size: Sequence[int], like: Tensor, numbers: Numbers) -> Geometry:
    """As `_known`, looked up: to find out takes longer than to launch a kernel."""
    *lists, ceil_mode = numbers
    key = tuple(size), like.stride(), *map(tuple, lists), ceil_mode
    geometry = _geometries.get(key)
    if geometry is None:
        if len(_geometries) >= MOST_SIZES:
            _geometries.clear()
        geometry = _geometries[key] = _known(size, like, numbers)
    return geometry


def _known(size: Sequence[int], like: Tensor, numbers: Numbers) -> Geometry:
    geometry = _geometry(size, like, numbers)
    assert geometry is not None, f"max-pooling of {tuple(size)} by {numbers}, which is not traced so"
    return geometry


def _empty(geometry: Geometry, size: Sequence[int], like: Tensor, dtype: torch.dtype) -> Tensor:
    return torch.empty(size, dtype=dtype, device=like.device, memory_format=geometry.layout)


_FUNCTIONS = {
    "max_pool": (_pool, _fake_pool),
    "max_pool_spread": (_spread, _fake_spread),
    "max_pool_gather": (_gather, _fake_gather),
}
