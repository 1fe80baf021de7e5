"""Numbers as a tensor's dtype holds them: torch's kernels round their bounds to it first."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from math import copysign, inf, isfinite
from typing import Any

import torch


def rounded(number: float, dtype: torch.dtype | None) -> float:
    """A number in a dtype, by way of float32 for 16 bits, as torch does it. In Python: it is asked while compiling."""
    if dtype not in (torch.float32, torch.float16, torch.bfloat16) or not isfinite(number):
        return number
    try:
        number = struct.unpack("f", struct.pack("f", number))[0]
        if dtype == torch.float16:
            return struct.unpack("e", struct.pack("e", number))[0]
    except OverflowError:
        return copysign(inf, number)
    return _bfloat16(number) if dtype == torch.bfloat16 else number


def _bfloat16(number: float) -> float:
    """The first half of the bits, rounded to even."""
    (bits,) = struct.unpack("I", struct.pack("f", number))
    bits += 0x7FFF + ((bits >> 16) & 1)
    return struct.unpack("f", struct.pack("I", bits & 0xFFFF0000))[0]


def in_dtype(arguments: Mapping[str, Any], dtype: torch.dtype | None) -> Mapping[str, Any]:
    """The arguments of a call, its numbers rounded; by default to the dtype of ``self``."""
    if dtype is None:
        self = arguments.get("self")
        dtype = self.dtype if isinstance(self, torch.Tensor) else None
    if dtype is None or dtype == torch.float64:
        return arguments
    return {name: rounded(value, dtype) if type(value) in (int, float) else value for name, value in arguments.items()}
