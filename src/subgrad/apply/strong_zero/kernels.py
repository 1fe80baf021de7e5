"""The kernels of operators whose slopes may not be finite, and the hook that takes out what dead entries contribute.

Torch's own operator runs as it is, and so does its own derivative. A hook on the node that it leaves in the graph sees
cotangents and gradients, and replaces what is nan there by 0 where every cotangent that reaches an entry is exactly 0.
Where that can be known without waiting for a device, it looks for nan first. In forward mode a gate does the same with
tangents.

The node is marked. Whatever its derivative calls is then treated alike when it is itself differentiated, whichever
convention is in force by then: that is how derivatives of higher order have strong zeros.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from torch import Tensor

from subgrad.apply.autograd_nodes import Gate, alias, laid_out, outer_levels, overwritten, through
from subgrad.apply.operators import Operator
from subgrad.apply.strong_zero.spare import MARK, Called
from subgrad.apply.strong_zero.table import has_finite_slope
from subgrad.apply.torch_compile import guards
from subgrad.conventions import Convention, convention
from subgrad.torch_internals.autograd import current_node, forward_level, top_saved_tensors_hooks, unpack_dual
from subgrad.torch_internals.tensors import is_view


def in_force(chosen: Convention) -> Convention:
    """The convention of a call: with strong zeros, too, if the derivative of an operator that has them makes it."""
    if chosen.strong_zero:
        return chosen
    node = current_node()
    return convention(chosen, strong_zero=True) if node is not None and MARK in node.metadata else chosen


def kernel(op: Operator, form: str, original: Callable[..., Any]) -> Callable[..., Any]:
    """The kernel of an operator without kinks: torch's own, unless strong zeros are in force."""
    writes = form != op.op

    def kernel(keyset: Any, *args: Any, **kwargs: Any) -> Any:
        if not guards.is_differentiated(args) or not in_force(guards.convention_of_call(args)).strong_zero:
            return original(keyset, *args, **kwargs)
        return run(op, writes, original, keyset, args, kwargs)

    return kernel


def run(
    op: Operator, writes: bool, original: Callable[..., Any], keyset: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Torch's own kernel, of an operator or of what writes its result into the first operand, with strong zeros."""
    if has_finite_slope(op.op, args):
        return original(keyset, *args, **kwargs)
    if not writes or not _needs_copy(args[0]):
        return _spared(op, original(keyset, *args, **kwargs), args, kwargs)
    copy = laid_out(args[0].clone(), args[0])
    return overwritten(args[0], _spared(op, original(keyset, copy, *args[1:], **kwargs), args, kwargs))


def _needs_copy(written: Tensor) -> bool:
    """Whether the result of an in-place form is made beside what it overwrites.

    Its tangent and what a checkpoint keeps are handed on by gates; and what is written into a view leaves its node
    inside of another one, where no hook sees it.
    """
    return forward_level() >= 0 or is_view(written) or _is_checkpointed()


def _is_checkpointed() -> bool:
    """Whether a checkpoint keeps what operators save: it hands that out once, to the operator itself."""
    hooks = top_saved_tensors_hooks(False)
    return hooks is not None and getattr(hooks[0], "__module__", None) == "torch.utils.checkpoint"


def _spared(op: Operator, out: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The result of an operator, without what its dead entries would contribute."""
    results = out if isinstance(out, tuple) else (out,)
    called = Called.of(op, results[0], args, kwargs)
    for each in results:
        if each is not None and each.requires_grad:
            node = each.grad_fn
            node.register_hook(called.hook)
            node.metadata[MARK] = called
            break
    if forward_level() >= 0 or _is_checkpointed():
        results = _through_gates(called, results, dict(_differentiable(op, args)))
    return results if isinstance(out, tuple) else results[0]


def _through_gates(called: Called, results: tuple[Tensor, ...], operands: dict[str, Tensor]) -> tuple[Tensor, ...]:
    needed = {name: operands[name] for name in called.needed if name in operands} if _is_checkpointed() else {}
    if needed and results[0].requires_grad:
        results = (through(_Keep, results[0], called, tuple(needed), *needed.values()), *results[1:])
    if forward_level() >= 0:
        gate = partial(through, _Tangent)
        results = tuple(
            gate(each, called, tuple(operands), *operands.values()) if _has_tangent(each) else each for each in results
        )
    return results


def _has_tangent(result: Tensor | None) -> bool:
    return result is not None and unpack_dual(result, level=forward_level()).tangent is not None


def _differentiable(op: Operator, args: Sequence[Any]) -> Iterator[tuple[str, Tensor]]:
    """The operands that have a derivative, by name."""
    for name, each in zip(op.argument_names, args, strict=False):
        if isinstance(each, Tensor) and (each.is_floating_point() or each.is_complex()):
            yield name, each


class _Keep(Gate):
    """The result of an operator, with its operands kept beside it."""

    @staticmethod
    def forward(ctx: Any, result: Tensor, called: Called, names: Sequence[str], *operands: Tensor) -> Tensor:
        ctx.called, ctx.names = called, names
        ctx.save_for_backward(*operands)
        with outer_levels():
            return alias(result)

    @staticmethod
    def backward(ctx: Any, cotangent: Tensor) -> tuple[Tensor | None, ...]:
        ctx.called.kept = dict(zip(ctx.names, ctx.saved_tensors, strict=True))
        return cotangent, None, None, *(None for _ in ctx.names)

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, *_: Any) -> Tensor:
        return tangent.clone()


class _Tangent(Gate):
    """The result of an operator, with its tangent without what dead entries contribute."""

    @staticmethod
    def forward(ctx: Any, result: Tensor, called: Called, names: Sequence[str], *operands: Tensor) -> Tensor:
        ctx.called, ctx.names = called, names
        ctx.save_for_forward(*operands)
        with outer_levels():
            return laid_out(result.clone(), result)

    @staticmethod
    def backward(ctx: Any, cotangent: Tensor) -> tuple[Tensor | None, ...]:
        return cotangent, None, None, *(None for _ in ctx.names)

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, _called: Any, _names: Any, *tangents: Tensor) -> Tensor:
        moved = {name: each for name, each in zip(ctx.names, tangents, strict=True) if each is not None}
        kept = zip(ctx.names, ctx.saved_tensors, strict=True)
        operands = {name: unpack_dual(each, level=forward_level()).primal for name, each in kept}
        return ctx.called.tangent(tangent, moved, operands).clone()
