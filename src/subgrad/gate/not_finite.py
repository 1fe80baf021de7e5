"""Gradients that are not finite when an optimizer is about to take a step with them: why they are says the audit."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch.optim.optimizer import Optimizer, register_optimizer_step_pre_hook

from subgrad.audit import Audit, Session
from subgrad.audit.effects import plural
from subgrad.audit.nonfinite.result import Taken
from subgrad.gate.findings import NOT_FINITE, Finding


@contextmanager
def looked_at(session: Session) -> Iterator[None]:
    """Tell an audit what optimizers are given; what a gradient scaler keeps from them is not."""

    def look(optimizer: Optimizer, args: object, kwargs: object) -> None:
        if not _is_skipped(optimizer):
            session.look_at(optimizer)

    hook = register_optimizer_step_pre_hook(look)
    try:
        yield
    finally:
        hook.remove()


def _is_skipped(optimizer: Optimizer) -> bool:
    """Whether a gradient scaler has found that the gradients are not finite, and told a fused optimizer so."""
    found = getattr(optimizer, "found_inf", None)
    return found is not None and bool(found)


def findings(audit: Audit) -> tuple[Finding, ...]:
    """One for each line that calls an optimizer."""
    steps = sorted((each.taken for each in audit.nonfinite if each.taken is not None), key=lambda each: each.step)
    first = {each.site: each for each in reversed(steps)}
    return tuple(_finding(each) for each in reversed(first.values()))


def _finding(taken: Taken) -> Finding:
    message = (
        f"`{taken.optimizer}` is given gradients that are not finite, in step {taken.step:,} first: "
        f"of {taken.broken:,} of {plural(taken.parameters, 'parameter')}, of shape {taken.shapes}."
    )
    return Finding(NOT_FINITE, taken.site, taken.optimizer, taken.site, message)
