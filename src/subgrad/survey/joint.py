"""Calls on kinks of many entries at once, as scalar functions of the tensors that the kink speaks of."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from subgrad.kinks import KINKS, Kink
from subgrad.kinks.joint_samples import affected as affected_output
from subgrad.kinks.overloads import overload
from subgrad.kinks.samples import samples
from subgrad.survey.sampled_gradients import gradients_nearby, least

# An element: the entries of each argument, flattened.
Entries = Mapping[str, tuple[float, ...]]


@dataclass(frozen=True)
class JointCall:
    """One kink met by one sample."""

    kink: Kink
    call: Mapping[str, Any]

    def __str__(self) -> str:
        given = [f"{name}={value}" for name, value in self.call.items() if isinstance(value, int | float | str)]
        return f"{self.kink.op}({','.join(given)})@{self.kink.at[:40]}"

    @property
    def names(self) -> tuple[str, ...]:
        """The floating tensors that the kink speaks of; all of them for a jump."""
        return tuple(
            name
            for name, value in self.call.items()
            if isinstance(value, Tensor) and value.is_floating_point() and name in (self.kink.set.candidates or (name,))
        )

    @property
    def inputs(self) -> list[Tensor]:
        return [self.call[name] for name in self.names]

    @property
    def function(self) -> Callable[..., Tensor]:
        """The affected entry of the result, as a function of the inputs."""

        def affected(*inputs: Tensor) -> Tensor:
            output, entry = affected_output(self.kink)
            result = overload(self.kink.op)(**{**self.call, **dict(zip(self.names, inputs, strict=True))})
            return (result if isinstance(result, Tensor) else result[output]).flatten()[entry]

        return affected

    def reverse(self, cotangent: float) -> Entries | None:
        """The gradients under the convention in force, over the cotangent; None where torch has none."""
        leaves = [each.clone().requires_grad_() for each in self.inputs]
        try:
            out = self.function(*leaves)
            # Given as an argument, the cotangent would have torch import its symbolic shapes, which takes a second.
            real = (out * cotangent).real if out.is_complex() else out * cotangent
            found = torch.autograd.grad(real, leaves, materialize_grads=True)
        except RuntimeError:
            return None
        return self._entries([each.flatten() / cotangent for each in found])

    def forward(self, tangent: float) -> Entries | None:
        """The same by forward mode, one entry after the other; None where torch has none."""
        found = []
        try:
            for position, primal in enumerate(self.inputs):
                columns = []
                for entry in range(primal.numel()):
                    with forward_ad.dual_level():
                        tangents = [torch.zeros_like(each) for each in self.inputs]
                        tangents[position].view(-1)[entry] = tangent
                        duals = [forward_ad.make_dual(*pair) for pair in zip(self.inputs, tangents, strict=True)]
                        out = forward_ad.unpack_dual(self.function(*duals)).tangent
                        columns.append(0.0 if out is None else float(out) / tangent)
                found.append(torch.tensor(columns, dtype=torch.float64))
        except (RuntimeError, NotImplementedError):
            return None
        return self._entries(found)

    def least(self) -> Entries:
        """The least element of the set, from gradients nearby."""
        sizes = [each.numel() for each in self.inputs]
        return self._entries(list(least(gradients_nearby(self.function, self.inputs)).split(sizes)))

    def _entries(self, tensors: list[Tensor]) -> Entries:
        # Zeros without memory (sgn) become plain ones, and so does -0.0.
        return {
            name: tuple((torch.zeros_like(each) + each).tolist())
            for name, each in zip(self.names, tensors, strict=True)
        }


def joint_calls(dtype: torch.dtype = torch.float64, overloads: Container[str] | None = None) -> Iterator[JointCall]:
    """Every kink and jump that is not entry by entry, at every sample that meets it; or those of some overloads."""
    entrywise = KINKS.entrywise
    for kink in KINKS:
        if kink.op not in entrywise and (overloads is None or kink.op in overloads):
            for call in samples(kink.op, dtype):
                if kink.applies(call) and bool(kink.hits(call).any()):
                    yield JointCall(kink, call)
