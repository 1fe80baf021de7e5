"""How regions are coded: against weights worked out by hand, and against the gradients of torch."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from kernels.calls import assert_same_bits, cotangent

import subgrad
from subgrad.apply.operators import operator
from subgrad.apply.plan import plan
from subgrad.kernels.cuda_bitmask import Mask, _weigh_by_torch, _weighed_once_more
from subgrad.kernels.piecewise import BETWEEN_TENSORS, ONE, PRODUCT, STRAIGHT, ZERO, Coding, Weight, as_bits, coding_of
from subgrad.kinks.overloads import overload
from subgrad.kinks.samples import samples


def coding(op: str, convention: str, **numbers: Any) -> Coding:
    x = torch.zeros(3, requires_grad=True)
    arguments = operator(op).bind((x,), numbers)
    found = coding_of(STRAIGHT[op], plan(operator(op), subgrad.Convention(convention), arguments), arguments, ("self",))
    assert found is not None
    return found


def weights(of: Coding) -> list[float]:
    """Below, on the lower kink, between, on the upper kink, above, at nan."""
    return [of.weights[0][code].number for code in of.regions]


@pytest.mark.parametrize(
    ("op", "convention", "numbers", "wanted", "bits"),
    [
        ("relu", "min-norm", {}, [0, 0, 1, 1, 1, 1], 1),
        ("relu", "mean", {}, [0, 0.5, 1, 1, 1, 1], 2),
        ("clamp", "min-norm", {"min": 0, "max": 1}, [0, 0, 1, 0, 0, 0], 1),
        ("clamp", "pass-through", {"min": 0, "max": 1}, [0, 1, 1, 1, 0, 0], 1),
        ("clamp", "left", {"min": 0, "max": 1}, [0, 0, 1, 1, 0, 0], 1),
        ("clamp", "mean", {"min": None, "max": 1}, [1, 0.5, 0, 0, 0, 0], 2),
        ("hardtanh", "min-norm", {"min_val": -1.0, "max_val": 1.0}, [0, 0, 1, 0, 0, 1], 1),
        ("softshrink", "right", {"lambd": 0.5}, [1, 0, 0, 1, 1, 1], 1),
        ("abs", "min-norm", {}, [-1, 0, 1, 1, 1, 0], 2),
        ("abs", "left", {}, [-1, -1, 1, 1, 1, 0], 2),
        ("leaky_relu", "min-norm", {"negative_slope": 0.25}, [0.25, 0.25, 1, 1, 1, 0.25], 1),
        ("leaky_relu", "min-norm", {"negative_slope": -0.25}, [-0.25, 0, 1, 1, 1, -0.25], 2),
    ],
)
def test_by_hand(op: str, convention: str, numbers: dict[str, Any], wanted: list[float], bits: int) -> None:
    found = coding(op, convention, **numbers)
    assert weights(found) == wanted
    assert found.bits == bits


def test_torch_multiplies_with_zero_where_we_choose_zero_exactly() -> None:
    assert coding("abs", "min-norm").weights[0][coding("abs", "min-norm").regions[1]] == Weight(0.0, PRODUCT)
    chosen = coding("leaky_relu", "min-norm", negative_slope=-0.25)
    assert chosen.weights[0][chosen.regions[1]] == Weight(0.0, ZERO)
    assert Weight.exact(1.0) == Weight(1.0, ONE)


def test_zeros_are_told_apart() -> None:
    assert as_bits(0.0) != as_bits(-0.0)
    for slope in (0.0, -0.0, 0.0):
        assert str(coding("leaky_relu", "min-norm", negative_slope=slope).weights[0][0].number) == str(slope)


@pytest.mark.parametrize("op", STRAIGHT)
@pytest.mark.parametrize("convention", ["min-norm", "mean", "right", "torch-2.13", "torch-2.14"])
def test_codes_give_the_gradients_of_the_rule(op: str, convention: str) -> None:
    """On the samples of the table; the codes made here, weighed as for traced cotangents."""
    for sample in samples(op, torch.float64):
        # No nan: there the gradients of `hardtanh` and `softshrink` on the CPU depend on whether a vector is full.
        x = torch.cat([sample["self"].flatten(), torch.tensor([1e9, -1e9], dtype=torch.float64)])
        arguments = {**sample, "self": x.requires_grad_()}
        planned = plan(operator(op), subgrad.Convention(convention), arguments)
        found = coding_of(STRAIGHT[op], planned, arguments, ("self",)) if planned.meetings else None
        if found is None:
            continue
        with subgrad.use(convention):
            out = overload(op)(*operator(op).args(arguments))
        (wanted,) = torch.autograd.grad(out, x, cotangent(out))
        numbers = STRAIGHT[op].numbers(arguments)
        packed = packed_codes(found, x.detach(), *numbers[:2])
        sized = Mask(STRAIGHT[op].value(arguments), numbers, found).sized(x, None)
        assert sized is not None
        assert_same_bits(_weigh_by_torch(sized, found.weights[0], cotangent(out), packed), wanted)


def packed_codes(coding: Coding, x: torch.Tensor, low: float, high: float) -> torch.Tensor:
    """What the kernel writes, entry by entry."""
    codes = []
    for number in x.tolist():
        region = 0 if number < low else 1 if number == low else 2 if number > low else 5
        if coding.corners == 2 and number >= high:
            region = 3 if number == high else 4
        codes.append(coding.regions[region])
    codes += [0] * (-len(codes) % 128)
    planes = [[code >> plane & 1 for code in codes] for plane in range(coding.bits)]
    packed = [
        sum(bit << at % 8 for at, bit in enumerate(plane[i : i + 8]))
        for plane in planes
        for i in range(0, len(plane), 8)
    ]
    flags = [1] if coding.bits == 2 else []  # there is one block
    return torch.tensor(packed + flags, dtype=torch.uint8)


def test_every_operator_with_codes_is_in_the_table() -> None:
    assert set(STRAIGHT) | {op for op, _ in BETWEEN_TENSORS} <= set(subgrad.kinks.entrywise)


def test_masks_that_differ_in_the_sign_of_a_zero_weigh_with_their_own() -> None:
    """They are equal, and the gradients of negative entries are not."""
    cotangent = torch.ones(8)
    plus, minus = (
        Mask("leaky_relu", (0.0, 0.0, slope), coding("leaky_relu", "torch", negative_slope=slope))
        for slope in (0.0, -0.0)
    )
    assert plus == minus
    for mask, is_negative in ((plus, False), (minus, True)):
        codes = torch.zeros(mask.sized(cotangent, None).bytes, dtype=torch.uint8)  # all entries are negative
        found = _weighed_once_more(mask, cotangent, codes, torch.zeros(()), (8,), (1,))
        assert found.tolist() == [0.0] * 8
        assert found.signbit().tolist() == [is_negative] * 8
