"""How codes lie in memory: a bit an entry or two, and no more than a constant besides."""

from __future__ import annotations

import pytest
import torch

from subgrad.kernels.bit_planes import MOST_FLAGS, Codes


@pytest.mark.parametrize("size", [1, 7, 8, 1000, 1 << 20, (1 << 28) + 5, 1 << 32])
@pytest.mark.parametrize("width", [2, 4, 8])
def test_what_is_held(size: int, width: int) -> None:
    assert Codes(1, True, size, width).bytes == -(-size // 8)
    two_planes = -(-size // 128) * 32
    assert Codes(2, False, size, width).bytes == two_planes
    assert two_planes <= Codes(2, True, size, width).bytes <= two_planes + MOST_FLAGS


def test_flags_are_for_two_bits_and_for_a_constant_number_of_blocks() -> None:
    largest = MOST_FLAGS * 1024  # of float32
    assert Codes(2, True, largest, 4).flags == MOST_FLAGS
    assert Codes(2, True, largest + 1, 4).flags == Codes(2, True, largest + 1, 4).unit == 0
    assert Codes(2, False, 4096, 4).flags == Codes(1, True, 4096, 4).flags == 0
    assert Codes(2, True, 4097, 4).flags == 5


def test_a_program_that_reads_lies_within_the_flag_of_one_that_writes() -> None:
    for width in (2, 4, 8):
        lying = Codes(2, True, 1 << 20, width)
        for gradients in (1, 2):
            assert lying.unit % lying.block_for(gradients) == 0


def test_one_bit() -> None:
    held = torch.tensor([0b10110001, 0b00000011], dtype=torch.uint8)
    assert Codes(1, True, 10, 4).unpacked(held).tolist() == [1, 0, 0, 0, 1, 1, 0, 1, 1, 1]


def test_two_planes() -> None:
    held = torch.zeros(32, dtype=torch.uint8)
    held[0], held[16] = 0b1010, 0b1100
    assert Codes(2, False, 5, 4).unpacked(held).tolist() == [0, 1, 2, 3, 0]


def test_what_no_flag_vouches_for_does_not_count() -> None:
    lying = Codes(2, True, 1024 + 8, 4)  # two blocks
    held = torch.zeros(lying.bytes, dtype=torch.uint8)
    held[lying.plane : 2 * lying.plane] = 255
    held[-2:] = torch.tensor([0, 1])
    found = lying.unpacked(held)
    assert not found[:1024].any()
    assert found[1024:].tolist() == [2] * 8
