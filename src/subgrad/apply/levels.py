"""The levels of a quantised type, and the slope that a convention takes at the first and the last of them."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, reduce
from typing import Any

import torch
from torch import Tensor

from subgrad.apply.plan import VERSIONS
from subgrad.conventions import Convention, Spot
from subgrad.kinks import KINKS
from subgrad.torch_internals.autograd import forward_level
from subgrad.torch_internals.fake_quantisation import learned_by_channel, learned_by_tensor, tensors_with_mask

CLAMP = KINKS.of_overload("clamp")
ALL = ("first", "between", "last")


@dataclass(frozen=True)
class Slopes:
    """What the cotangent of an entry is weighed with, by its level.

    Attributes:
        first, last: of entries on the first and on the last level. Those between have 1.
        beyond: of entries that are cut off: 0, or 1 for all entries.
        is_one: there is one level alone.
    """

    first: float
    last: float
    beyond: float = 0.0
    is_one: bool = False

    @classmethod
    @lru_cache(maxsize=4096)
    def of(cls, convention: Convention, quant_min: int, quant_max: int) -> Slopes | None:
        """None where torch's own gradient is wanted: that of every version passes on both levels, and not beyond."""
        bounds = {"min": quant_min, "max": quant_max}
        kinks = [kink for kink in CLAMP if kink.applies(bounds)]
        if not kinks or convention.choice(kinks[0]) in ("torch", *VERSIONS):  # torch says what is wrong with the bounds
            return None
        if convention.is_straight_through(kinks):
            return cls(1.0, 1.0, 1.0)
        elements = [convention.element(Spot.of(kink, bounds, ("self",))) or {"self": 1.0} for kink in kinks]
        weights = [float(element["self"]) for element in elements]
        return cls(weights[0], weights[-1], is_one=quant_min == quant_max)

    @cached_property
    def regions(self) -> dict[float, tuple[str, ...]]:
        """Where the cotangent is weighed with what is not 0."""
        weights = {"first": self.first} if self.is_one else {"first": self.first, "between": 1.0, "last": self.last}
        kept = dict.fromkeys(weight for weight in weights.values() if weight != 0)
        return {each: tuple(name for name, weight in weights.items() if weight == each) for each in kept}

    @cached_property
    def weights(self) -> tuple[float, ...]:
        return tuple(self.regions)

    @cached_property
    def are_torchs(self) -> bool:
        """Whether torch's kernels make the mask: of all entries that are not cut off."""
        return self.regions == {1.0: ALL}


@dataclass(slots=True)  # one is made in every call: if frozen it would take several times as long
class Grid:
    """The levels, and how they lie.

    Attributes:
        scale, zero_point: numbers, or tensors: of one for each channel, if there is an axis.
        grad_factor: what the gradients of scale and zero point are multiplied with.
        is_learned: scale and zero point are as torch's learnable operators have them.
    """

    scale: Any
    zero_point: Any
    quant_min: int
    quant_max: int
    axis: int | None
    grad_factor: float
    is_learned: bool

    @classmethod
    def of(cls, scale: Any, zero_point: Any, quant_min: int, quant_max: int, axis: int | None, factor: float) -> Grid:
        """Learned where scale or zero point are differentiated, or the zero point is no integer, which is rounded."""
        is_learned = any(map(is_differentiated, (scale, zero_point))) or _is_floating(zero_point)
        return cls(scale, zero_point, quant_min, quant_max, axis, factor, is_learned)

    @property
    def _levels(self) -> tuple[int, ...]:
        """As torch's functions take them."""
        return (*(() if self.axis is None else (self.axis,)), self.quant_min, self.quant_max)

    def torchs_own(self, x: Tensor) -> Tensor:
        """With torch's own derivative."""
        if self.is_learned:
            called = learned_by_tensor if self.axis is None else learned_by_channel
            given = (_vector(each, x, torch.float32) for each in (self.scale, self.zero_point))
            return called(x, *given, *self._levels, self.grad_factor)
        aten = torch.ops.aten
        if self.axis is not None:
            return aten.fake_quantize_per_channel_affine(x, *self._vectors(x), *self._levels)
        if self._are_tensors:
            return aten.fake_quantize_per_tensor_affine(x, *self._vectors(x), *self._levels)
        return aten.fake_quantize_per_tensor_affine(x, self.scale, self.zero_point, *self._levels)

    def with_mask(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """What is not learned without a derivative, and which entries are not cut off."""
        aten = torch.ops.aten
        if self.axis is not None:
            return aten.fake_quantize_per_channel_affine_cachemask(x, *self._vectors(x), *self._levels)
        if self._are_tensors:
            is_on = torch.ones(1, dtype=torch.int64, device=x.device)
            return tensors_with_mask(x, *self._vectors(x), is_on, *self._levels)
        return aten.fake_quantize_per_tensor_affine_cachemask(x, self.scale, self.zero_point, *self._levels)

    @property
    def _are_tensors(self) -> bool:
        return isinstance(self.scale, Tensor) or isinstance(self.zero_point, Tensor)

    def _vectors(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return _vector(self.scale, x, torch.float32), _vector(self.zero_point, x, torch.int32)

    def beside(self, each: Any, x: Tensor) -> Any:
        """Scale or zero point, as they stand beside the entries."""
        if not isinstance(each, Tensor):
            return each
        if self.axis is None:
            return each.reshape(())
        shape = [1] * x.ndim
        shape[self.axis] = -1
        return each.reshape(shape)

    def level_of_zero(self, x: Tensor) -> Any:
        if not _is_floating(self.zero_point):
            return self.beside(self.zero_point, x)
        return self.beside(self.zero_point.detach().round().clamp(self.quant_min, self.quant_max), x)

    def level(self, x: Tensor) -> Tensor:
        """The level of each entry before it is cut off, rounded as torch's kernels do it."""
        if isinstance(self.scale, Tensor):
            inverse: Any = 1.0 / self.beside(self.scale.detach().float(), x)
        else:
            inverse = _in_single(1.0 / _in_single(self.scale))
        wide = x.detach() if x.dtype is torch.float64 else x.detach().float()
        return (wide * inverse).round() + self.level_of_zero(x)

    def masks(self, level: Tensor, slopes: Slopes) -> tuple[Tensor, ...]:
        """One for each weight of the slopes: which entries have it."""
        return tuple(self._mask(level, regions) for regions in slopes.regions.values())

    def _mask(self, level: Tensor, regions: Sequence[str]) -> Tensor:
        if regions == ALL:
            return (level >= self.quant_min) & (level <= self.quant_max)
        found = {
            "first": lambda: level == self.quant_min,
            "between": lambda: (level > self.quant_min) & (level < self.quant_max),
            "last": lambda: level == self.quant_max,
        }
        return reduce(torch.logical_or, (found[region]() for region in regions))


def is_differentiated(each: Any) -> bool:
    """What in forward mode may carry a tangent counts."""
    return isinstance(each, Tensor) and ((each.requires_grad and torch.is_grad_enabled()) or forward_level() >= 0)


def _is_floating(number: Any) -> bool:
    return isinstance(number, Tensor) and number.is_floating_point()


def _vector(number: Any, like: Tensor, dtype: torch.dtype) -> Tensor:
    """As torch's functions take numbers that may be tensors."""
    if not isinstance(number, Tensor):
        return torch.full((1,), number, dtype=dtype, device=like.device)
    return number.to(dtype).reshape(-1)


def _in_single(number: float) -> float:
    """The nearest number of 32 bits, as which torch holds scales."""
    return struct.unpack("f", struct.pack("f", number))[0]
