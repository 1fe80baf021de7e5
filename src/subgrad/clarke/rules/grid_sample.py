"""Sampled images: where the grid meets a border of cells it is a little further on, inside the cell it moves into."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.torch_version import TorchVersion

from subgrad.apply.pass_kernels import PassCall
from subgrad.clarke.engine.duals import carries_tangents_alone, tangent, valued, values, with_tangent
from subgrad.clarke.engine.errors import Refused, here
from subgrad.clarke.engine.passes import Decide
from subgrad.clarke.engine.rule import Rule


class Cells(Rule):
    """The rule of bilinear sampling: at a border the grid is a little further on, inside the cell it moves into.

    A branch is by how much, which is as little as the coordinates of pixels can still tell.
    """

    wholly = TorchVersion(torch.__version__) < "2.15"  # no forward mode

    def hits(self, call: PassCall, tol: float) -> Tensor | bool:
        return call.arguments["grid"].numel() > 0 and self._on_borders(call).any()

    def _on_borders(self, call: PassCall) -> Tensor:
        """Where the table has it; how near counts as on it is a matter of pixels, not of ``tol``."""
        found = [kink.hits(call.arguments) for kink in call.op.kinks if kink.applies(call.arguments)]
        if not found:
            return torch.zeros((), dtype=torch.bool, device=call.arguments["grid"].device)
        return found[0]

    def decide(self, call: PassCall, at: Decide) -> Tensor | None:
        moved = tangent(call.arguments["grid"])
        with values():
            grid = call.arguments["grid"]
            if moved is None:
                return torch.zeros_like(grid)
            hit = self._on_borders(call)
            if call.arguments["interpolation_mode"] != 0 and bool(hit.any()):
                raise Refused(f"grid_sample at {here()} jumps, or has no rule, where the grid meets a border of cells.")
            step = 64 * torch.finfo(grid.dtype).eps * grid.abs().clamp(min=1)
            return torch.where(hit, torch.sign(moved) * step, 0)

    def along(self, call: PassCall, branch: Tensor) -> Any:
        with values():
            value = call.native(call.arguments)
        if self.wholly and carries_tangents_alone():
            return with_tangent(value, _sampled_slope(call, branch))
        return valued(call.native({**call.arguments, "grid": call.arguments["grid"] + branch}), value)


def _sampled_slope(call: PassCall, shift: Tensor) -> Tensor:
    """The derivative of a sampled image: linear in the image, and in the grid from the gradient of each channel."""
    image, grid = (tangent(call.arguments[name]) for name in ("input", "grid"))
    with torch.enable_grad():
        plain = call.arguments["input"].detach()
        place = (call.arguments["grid"].detach() + shift).requires_grad_()
        out = call.native({**call.arguments, "input": plain, "grid": place})
        found = torch.zeros_like(out.detach())
        if grid is not None:
            for channel in range(out.shape[1]):
                (slopes,) = torch.autograd.grad(out[:, channel].sum(), place, retain_graph=True)
                found[:, channel] = (slopes * grid).sum(-1)
    if image is not None:
        with values():
            found += call.native({**call.arguments, "input": image, "grid": place.detach()})
    return found


CELLS: dict[str, Any] = {"grid_sampler_2d": Cells(), "grid_sampler_3d": Cells()}
