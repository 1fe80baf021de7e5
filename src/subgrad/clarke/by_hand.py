"""Operators without forward mode in torch whose derivative is written here: bags of embeddings, aligned sequences."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from subgrad.apply.branches import Call
from subgrad.clarke.linear import valued, values
from subgrad.clarke.passes import Decide, Rule
from subgrad.clarke.ranks import Ranked


class Bags(Rule):
    """The rule of `embedding_bag`: that of a selection for maxima; sums and means are linear, without forward mode."""

    wholly = True

    def __init__(self) -> None:
        self.largest = Ranked("weight")

    def look(self, call: Call, tol: float) -> tuple[Any, Tensor | bool]:
        return self.largest.look(call, tol) if call.arguments["mode"] == 2 else (call.run(), False)

    def hits(self, call: Call, tol: float) -> Tensor | bool:
        return call.arguments["mode"] == 2 and self.largest.hits(call, tol)

    def decide(self, call: Call, at: Decide) -> Any:
        return self.largest.decide(call, at) if call.arguments["mode"] == 2 else "linear"

    def along(self, call: Call, branch: Any) -> Any:
        if call.arguments["mode"] == 2:
            return self.largest.along(call, branch)
        with values():
            outputs = call.native(call.arguments)
        return valued(_summed(call.arguments, len(outputs[0])), outputs[0]), *outputs[1:]


def _summed(arguments: Any, bags: int) -> Tensor:
    """Sums or means of the rows in each bag."""
    weight, indices, offsets = arguments["weight"], arguments["indices"], arguments["offsets"]
    places = torch.arange(len(indices), device=indices.device, dtype=offsets.dtype)
    bag = torch.searchsorted(offsets[:bags].contiguous(), places, right=True) - 1
    counted = (indices != arguments["padding_idx"]).to(weight.dtype)
    factors = counted if arguments["per_sample_weights"] is None else counted * arguments["per_sample_weights"]
    sums = weight.new_zeros(bags, weight.shape[1]).index_add(0, bag, weight[indices] * factors.unsqueeze(1))
    if arguments["mode"] == 0:
        return sums
    return sums / counted.new_zeros(bags).index_add(0, bag, counted).clamp(min=1).unsqueeze(1)


class Aligned(Rule):
    """The rule of `ctc_loss`, smooth and without forward mode: the derivative of each loss, from its gradient."""

    wholly = True

    def hits(self, call: Call, tol: float) -> bool:
        return False

    def decide(self, call: Call, at: Decide) -> str:
        return "smooth"

    def along(self, call: Call, branch: Any) -> Any:
        with torch.enable_grad():
            scores = call.arguments["log_probs"].detach().requires_grad_()
            losses, alpha = call.native({**call.arguments, "log_probs": scores})
            (slopes,) = torch.autograd.grad(losses.sum(), scores)
        moved = (slopes * call.arguments["log_probs"]).sum((0, -1)).reshape(losses.shape)
        return valued(moved, losses.detach()), alpha.detach()


BY_HAND: dict[str, Any] = {"_embedding_bag": Bags(), "_ctc_loss": Aligned(), "_ctc_loss.Tensor": Aligned()}
