"""What devices that are not waited for owe: whether gradients are finite, asked when the next step has ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite, isnan
from typing import Any

import torch
from torch import Tensor

from subgrad.apply.autograd_nodes import values
from subgrad.audit.backward import Backward
from subgrad.audit.call_site import Site
from subgrad.audit.nonfinite.finite import in_one, largest, total
from subgrad.audit.nonfinite.result import INFINITE, NAN, Reached
from subgrad.audit.nonfinite.walks import Walk


@dataclass
class Owed:
    """A backward on a device that is not waited for.

    Attributes:
        leaves: by name, or what was asked for if that is no leaf.
        found: on their way to the host: the largest entries of the gradients, with the places of these; or of small
            ones their sum, in which each that is not finite shows.
        together: a copy of these, to be looked at if it does.
        arrived: an event after which they are there; None where that cannot be asked.
        where: the program called it, as code, line and variables of the module.
    """

    run: Backward
    walk: Walk
    leaves: list[tuple[str, int]]
    found: list[tuple[list[int], Tensor]]
    together: Tensor | None
    arrived: Any
    step: int
    where: tuple[Any, int, dict[str, Any]] | None

    @classmethod
    def of(cls, run: Backward, walk: Walk, gradients: Mapping[str, Tensor], step: int, frame: Any) -> Owed:
        """What is known of the gradients, by name, is sent."""
        given, arrived = [*gradients.values()], None
        together = in_one(given) if len(given) > 1 else None
        with values():
            found = largest(given) if together is None else [([], total(together))]
        if found and all(row.is_cuda for _, row in found):
            found = [(places, _sent(row)) for places, row in found]
            arrived = torch.cuda.Event()
            arrived.record()
        leaves = [(name, each.numel()) for name, each in gradients.items()]
        where = None if frame is None else (frame.f_code, frame.f_lineno, frame.f_globals)
        return cls(run, walk, leaves, found, together, arrived, step, where)

    @property
    def site(self) -> Site:
        return Site.of(None) if self.where is None else Site.at(*self.where)

    def reached(self) -> tuple[Reached, ...]:
        if self.arrived is not None:
            self.arrived.synchronize()
        rows = self.found
        if self.together is not None:
            if isfinite(abs(rows[0][1].item())):
                return ()
            rows = largest(self.together.split([size for _, size in self.leaves]))
        found = {place: each for places, row in rows for place, each in zip(places, row.tolist(), strict=True)}
        if all(map(isfinite, found.values())):
            return ()
        named = ((name, size, found.get(place, 0.0)) for place, (name, size) in enumerate(self.leaves))
        return tuple(
            Reached(name, size, NAN if isnan(each) else INFINITE) for name, size, each in named if not isfinite(each)
        )


def _sent(row: Tensor) -> Tensor:
    """On its way to the host, without waiting for it."""
    return torch.empty_like(row, device="cpu", pin_memory=True).copy_(row, non_blocking=True)
