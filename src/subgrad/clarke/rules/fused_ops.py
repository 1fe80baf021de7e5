"""Calls that are only run in another way: what is fused hides its kinks, or has no forward mode in torch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import reduce
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from subgrad.apply.current_pass import running
from subgrad.apply.pass_kernels import PassCall
from subgrad.clarke.engine.duals import carries_tangents_alone, tangent, valued, values, with_tangent
from subgrad.clarke.engine.passes import Decide, Look, Replay
from subgrad.clarke.engine.rule import Rule, is_differentiated
from subgrad.torch_internals.dispatcher import fused_sdp_choice


class Around(Rule):
    """A rule that only changes how a call is run."""

    is_site = False


class Attention(Around):
    """Fused attention has no forward mode: the tangent pass takes what is written out.

    That draws the random numbers of dropout in another way.
    """

    def around(self, call: PassCall, current: Any) -> Any:
        if call.arguments["dropout_p"] and _is_fused(call.arguments):
            _draws_by_itself(call, current)
        if not isinstance(current, Decide):
            return call.run()
        is_plain = not (call.arguments["dropout_p"] or call.arguments["enable_gqa"])
        if is_plain and call.arguments["attn_mask"] is None and carries_tangents_alone():
            return _attended(call)
        with sdpa_kernel(SDPBackend.MATH):
            return call.run()


def _attended(call: PassCall) -> Tensor:
    """The value of the fused operator, to the bit, with its derivative from the rule of products."""
    query, key, value = (call.arguments[name] for name in ("query", "key", "value"))
    moved_query, moved_key, moved_value = (tangent(each) for each in (query, key, value))
    scale = call.arguments["scale"]
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    with values():
        out = call.native(call.arguments)
        scores = (query * scale) @ key.mT
        if call.arguments["is_causal"]:
            scores += scores.new_full(scores.shape[-2:], -torch.inf).triu(1)
        weights = scores.softmax(-1)
        terms, ahead = [], []
        if moved_query is not None:
            ahead.append((moved_query * scale) @ key.mT)
        if moved_key is not None:
            ahead.append((query * scale) @ moved_key.mT)
        if moved_value is not None:
            terms.append(weights @ moved_value)
        if ahead:
            further = weights * reduce(Tensor.add_, ahead)
            terms.append((further - weights * further.sum(-1, keepdim=True)) @ value)
        found = reduce(Tensor.add_, terms)
    return with_tangent(out, found)


def _draws_by_itself(call: PassCall, current: Any) -> None:
    """The tangent pass, which is written out, will draw other random numbers, or does so."""
    if not isinstance(current, Replay):
        noted = current.fused if isinstance(current, Look) else current.leaks
        noted.note(call.op.op.partition(".")[0])


def _is_fused(arguments: Any) -> bool:
    return fused_sdp_choice(**arguments) != SDPBackend.MATH.value


class Recurrent(Around):
    """Fused recurrent layers have no forward mode, and those with relu hide their kinks."""

    def __init__(self, bends: bool):
        self.bends = bends

    def around(self, call: PassCall, current: Any) -> Any:
        is_cudnn = torch.cudnn_is_acceptable(call.arguments["input" if "input" in call.arguments else "data"])
        if is_cudnn and call.arguments["dropout"] and call.arguments["train"]:
            _draws_by_itself(call, current)
        if not self.bends and not isinstance(current, Decide):
            return call.run()
        with _unfused(), running(current):
            found = call.run()
        if isinstance(current, Decide) or not is_cudnn:
            return found
        with torch.no_grad():  # the value is that of the fused layer, to the bit
            fused = call.run()
        return tuple(map(valued, found, fused))


class Cell(Around):
    """Beside cuDNN recurrent layers have fused cells on CUDA, without forward mode: the value of these, by formula."""

    def __init__(self, formula: Callable[..., tuple[Tensor, ...]]):
        self.formula = formula

    def around(self, call: PassCall, current: Any) -> Any:
        if not isinstance(current, Decide):
            return call.run()
        with values():
            native = call.native(call.arguments)
        found = self.formula(**call.arguments)
        return *map(valued, found, native), native[-1]  # and the workspace of its backward pass


def lstm_cell(
    input_gates: Tensor, hidden_gates: Tensor, cx: Tensor, input_bias: Tensor | None, hidden_bias: Tensor | None
) -> tuple[Tensor, Tensor]:
    gates = reduce(
        torch.add, (each for each in (hidden_gates, input_bias, hidden_bias) if each is not None), input_gates
    )
    into, forgotten, cell, out = gates.chunk(4, 1)
    state = forgotten.sigmoid() * cx + into.sigmoid() * cell.tanh()
    return out.sigmoid() * state.tanh(), state


def gru_cell(
    input_gates: Tensor, hidden_gates: Tensor, hx: Tensor, input_bias: Tensor | None, hidden_bias: Tensor | None
) -> tuple[Tensor]:
    one = (input_gates if input_bias is None else input_gates + input_bias).chunk(3, 1)
    other = (hidden_gates if hidden_bias is None else hidden_gates + hidden_bias).chunk(3, 1)
    reset, kept = (one[gate] + other[gate] for gate in (0, 1))
    new = (one[2] + reset.sigmoid() * other[2]).tanh()
    return (new + kept.sigmoid() * (hx - new),)


class Unflattened(Around):
    """Recurrent layers lay out new weights for their fused operators, which the tangent pass does not use."""

    def around(self, call: PassCall, current: Any) -> Any:
        return call.arguments["weight_arr"][0].new_empty(0) if isinstance(current, Decide) else call.run()


@contextmanager
def _unfused() -> Iterator[None]:
    with torch.backends.cudnn.flags(enabled=False), torch.backends.mkldnn.flags(enabled=False):
        yield


class Embedded(Around):
    """The row for padding is a constant to torch."""

    def around(self, call: PassCall, current: Any) -> Any:
        weight, row = call.arguments["weight"], call.arguments["padding_idx"]
        moved = tangent(weight)
        if moved is None or row < 0:
            return call.run()
        rows = torch.arange(len(weight), device=weight.device).unsqueeze(1) != row
        return call.native({**call.arguments, "weight": torch.where(rows, weight, weight.detach())})


class Quantile(Around):
    """Quantiles choose their entries where no rule can see it: here they are sorted first."""

    def around(self, call: PassCall, current: Any) -> Any:
        x, dim = call.arguments["self"], call.arguments["dim"]
        with running(current):
            ordered = (x.reshape(-1) if dim is None else x.movedim(dim, -1)).sort(-1).values
        if is_differentiated(call.arguments["q"]):
            return _moving(call, current, ordered)
        if isinstance(current, Look):
            return call.run()
        with values():
            value = call.native(call.arguments)
            places = torch.arange(ordered.shape[-1], dtype=x.dtype, device=x.device).expand(ordered.shape)
            places = torch.where(ordered.isnan(), ordered, places).movedim(-1, 0 if dim is None else dim)
            place, low, high = (
                call.native({**call.arguments, "self": places, "interpolation": how}).nan_to_num()
                for how in (call.arguments["interpolation"], "lower", "higher")
            )
        if call.arguments["keepdim"]:
            place, low, high = (
                each.reshape(-1) if dim is None else each.squeeze(_at(each, dim, x)) for each in (place, low, high)
            )
        rows = ordered.expand(*low.shape, ordered.shape[-1])
        one, other = (rows.gather(-1, each.long().unsqueeze(-1)).squeeze(-1) for each in (low, high))
        return valued((one + (other - one) * (place - low)).reshape(value.shape), value)


def _moving(call: PassCall, current: Any, ordered: Tensor) -> Tensor:
    """Quantiles of a level that moves: the place among the entries moves along, and is rounded by rules."""
    level, how = call.arguments["q"], call.arguments["interpolation"]
    with values():
        value = call.native(call.arguments)
        last = (~ordered.isnan()).sum(-1) - 1 if call.op.op == "nanquantile" else ordered.shape[-1] - 1
        last = torch.as_tensor(last, device=level.device).clamp(min=0).expand(ordered.shape[:-1])
    place = level.reshape(-1, *[1] * last.ndim) * last
    with running(current):
        one = other = place.round() if how == "nearest" else place.ceil() if how == "higher" else place.floor()
        other = place.ceil() if how == "midpoint" else other
    if isinstance(current, Look):
        return call.run()
    if how == "linear":
        other = torch.minimum(one + 1, last)
    rows = ordered.expand(*place.shape, ordered.shape[-1])
    low, high = (rows.gather(-1, each.long().unsqueeze(-1)).squeeze(-1) for each in (one, other))
    between = low + (high - low) * (place - one if how == "linear" else 0.5)
    return torch.where(value.isnan(), value, between.reshape(value.shape))


def _at(result: Tensor, dim: int, x: Tensor) -> int:
    """Where the dimension that was kept is, behind that of several quantiles."""
    return dim % x.ndim + (result.ndim - x.ndim)


AROUND: dict[str, Any] = {
    **{name + form: Quantile() for name in ("quantile", "nanquantile") for form in ("", ".scalar")},
    "scaled_dot_product_attention": Attention(),
    "_cudnn_rnn_flatten_weight": Unflattened(),
    "_thnn_fused_lstm_cell": Cell(lstm_cell),
    "_thnn_fused_gru_cell": Cell(gru_cell),
    "embedding": Embedded(),
    **{f"{name}.{form}": Recurrent(bends=False) for name in ("lstm", "gru", "rnn_tanh") for form in ("input", "data")},
    **{f"rnn_relu.{form}": Recurrent(bends=True) for form in ("input", "data")},
}
