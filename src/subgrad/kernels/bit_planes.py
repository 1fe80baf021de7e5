"""How the codes of a tensor's entries lie in memory, as the kernels in `triton_bitmask` write and read them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

MOST_FLAGS = 1 << 18  # so that they are a constant beside the bits


@dataclass(frozen=True)
class Codes:
    """Codes of one bit, or of two bits in two planes.

    The second plane is sparse: a flag for each block says whether it was written there.

    Attributes:
        bits: of a code.
        has_flags: whether blocks have such a flag, unless there are too many blocks.
        size: how many entries there are.
        width: of an entry of the tensor, in bytes.
    """

    bits: int
    has_flags: bool
    size: int
    width: int

    @property
    def block(self) -> int:
        """Entries that a program of 128 threads writes, the fastest measured: 32 bytes a thread."""
        return 4096 // self.width

    def block_for(self, gradients: int) -> int:
        """Entries that a program reads again, to write one gradient or two."""
        return self.block // gradients

    @property
    def blocks(self) -> int:
        return -(-self.size // self.block)

    @property
    def plane(self) -> int:
        """The bytes of one of two planes: a multiple of 16, of which many can be read at once."""
        return -(-self.size // 128) * 16

    @property
    def flags(self) -> int:
        """How many flags there are: none with more blocks than `MOST_FLAGS`, which then all write both planes."""
        return self.blocks if self.bits == 2 and self.has_flags and self.blocks <= MOST_FLAGS else 0

    @property
    def bytes(self) -> int:
        return -(-self.size // 8) if self.bits == 1 else 2 * self.plane + self.flags

    @property
    def unit(self) -> int:
        """How many entries have a flag together; 0 without flags."""
        return self.block if self.flags else 0

    def unpacked(self, held: Tensor) -> Tensor:
        """The code of each entry."""
        if self.bits == 1:
            return self._entries(held)
        first, second, flags = held.split([self.plane, self.plane, self.flags])
        code = 2 * self._entries(second)
        if self.flags:
            code = code * flags.repeat_interleave(self.block)[: self.size]
        return code + self._entries(first)

    def _entries(self, plane: Tensor) -> Tensor:
        return ((plane.unsqueeze(-1) >> torch.arange(8, device=plane.device)) & 1).reshape(-1)[: self.size]
