"""Gradients that are not finite when an optimizer is about to take a step with them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor
from torch.optim.optimizer import Optimizer, register_optimizer_step_pre_hook

from subgrad.apply.source_line import user_frame
from subgrad.audit.call_site import Site
from subgrad.audit.effects import plural
from subgrad.gate.findings import NOT_FINITE, Finding


@dataclass
class Steps:
    """The steps that were looked at, and what was found in them: a finding for each line that calls an optimizer."""

    taken: int = 0
    found: dict[Site, Finding] = field(default_factory=dict)

    @property
    def findings(self) -> tuple[Finding, ...]:
        return tuple(self.found.values())


@contextmanager
def looked_at() -> Iterator[Steps]:
    """Look at the gradients that optimizers are given; those that a gradient scaler keeps from them are none."""
    steps = Steps()

    def look(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        if _is_skipped(optimizer):
            return
        steps.taken += 1
        parameters = [each for group in optimizer.param_groups for each in group["params"]]
        broken = [each for each in parameters if each.grad is not None and not _is_finite(each.grad)]
        if broken:
            site = Site.of(user_frame())
            steps.found.setdefault(site, _finding(site, optimizer, broken, len(parameters), steps.taken))

    hook = register_optimizer_step_pre_hook(look)
    try:
        yield steps
    finally:
        hook.remove()


def _is_skipped(optimizer: Optimizer) -> bool:
    """Whether a gradient scaler has found that the gradients are not finite, and told a fused optimizer so."""
    found = getattr(optimizer, "found_inf", None)
    return found is not None and bool(found)


def _is_finite(gradient: Tensor) -> bool:
    entries = gradient.coalesce().values() if gradient.is_sparse else gradient
    return bool(entries.isfinite().all())


def _finding(site: Site, optimizer: Optimizer, broken: list[Tensor], count: int, step: int) -> Finding:
    name = type(optimizer).__name__
    shapes = ", ".join(dict.fromkeys(str(list(each.shape)) for each in broken))
    message = (
        f"`{name}` is given gradients that are not finite, in step {step:,} first: "
        f"of {len(broken):,} of {plural(count, 'parameter')}, of shape {shapes}."
    )
    return Finding(NOT_FINITE, site, name, site, message)
