"""Smooth operators without forward mode in torch whose derivative is written here."""

from __future__ import annotations

from typing import Any

import torch

from subgrad.apply.pass_kernels import PassCall
from subgrad.clarke.engine.duals import valued
from subgrad.clarke.engine.passes import Decide
from subgrad.clarke.engine.rule import Rule
from subgrad.clarke.rules.grouped_reductions import GROUPED


class Aligned(Rule):
    """The rule of `ctc_loss`, smooth and without forward mode: the derivative of each loss, from its gradient."""

    wholly = True

    def hits(self, call: PassCall, tol: float) -> bool:
        return False

    def decide(self, call: PassCall, at: Decide) -> str:
        return "smooth"

    def along(self, call: PassCall, branch: Any) -> Any:
        with torch.enable_grad():
            scores = call.arguments["log_probs"].detach().requires_grad_()
            losses, alpha = call.native({**call.arguments, "log_probs": scores})
            (slopes,) = torch.autograd.grad(losses.sum(), scores)
        moved = (slopes * call.arguments["log_probs"]).sum((0, -1)).reshape(losses.shape)
        return valued(moved, losses.detach()), alpha.detach()


BY_HAND: dict[str, Any] = {**GROUPED, "_ctc_loss": Aligned(), "_ctc_loss.Tensor": Aligned()}
