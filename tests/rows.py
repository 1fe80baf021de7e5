"""The rows of the table as test cases: each kink at its first hit in each sample, by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from subgrad.kinks import KINKS, Kink
from subgrad.kinks.overloads import overload, tensor_names
from subgrad.kinks.samples import samples
from subgrad.kinks.sets import Jump


@dataclass(frozen=True)
class Spot:
    """One kink of one call, with every tensor reduced to a number."""

    kink: Kink
    numbers: Mapping[str, Any]

    def __str__(self) -> str:
        given = ",".join(f"{name}={value}" for name, value in self.numbers.items() if name not in ("self", "noise"))
        return f"{self.kink.op}({given})@{self.kink.place}"

    @property
    def operands(self) -> tuple[str, ...]:
        """The tensors that the operator selects among or bends at, whatever the kink's own candidates are."""
        every = [name for kink in KINKS.of_overload(self.kink.op) for name in kink.set.candidates]
        return tuple(name for name in dict.fromkeys(every) if self.numbers.get(name) is not None)

    def forward(self, /, **numbers: float) -> float:
        """The forward function of numbers, in float64."""
        tensors = tensor_names(self.kink.op)
        call = {
            name: torch.tensor(value, dtype=torch.float64) if name in tensors and value is not None else value
            for name, value in {**self.numbers, **numbers}.items()
        }
        return overload(self.kink.op)(**call).item()

    def point(self) -> dict[str, float]:
        return {name: self.numbers[name] for name in self.operands}


def spots(*, random: bool = False) -> list[Spot]:
    """Every kink of every sample. `random` includes `rrelu` while training, which is no function of its input alone."""
    found = []
    for op in KINKS.entrywise:
        for call in samples(op, steep=True):
            if call.get("training") and not random:
                continue
            for kink in KINKS.of_overload(op):
                if kink.applies(call) and kink.hits(call).any():
                    first = int(kink.hits(call).nonzero()[0])
                    numbers = {
                        name: value[first].item() if isinstance(value, torch.Tensor) else value
                        for name, value in call.items()
                    }
                    found.append(Spot(kink, numbers))
    return found


def corners_and_ties() -> list[Spot]:
    return [spot for spot in spots() if not isinstance(spot.kink.set, Jump)]
