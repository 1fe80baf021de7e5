"""The Triton kernel of strong zeros on a CPU, by Triton's interpreter. Run by `test_triton.py`, in its own process."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

import subgrad
from subgrad.apply.strong_zero.spare import MARK
from subgrad.kernels import cuda_strong_zero, triton_launch
from subgrad.kernels import triton_strong_zero as kernels


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The kernels that were launched, by what they do."""
    found: list[str] = []

    def launch(name: str, programs: int, tensors: Any, numbers: Any, constants: Any, warps: int) -> None:
        found.append(
            "".join(
                word for word, is_so in zip(("sums", "spreads", "divides", "lines"), constants, strict=False) if is_so
            )
        )
        getattr(kernels, name)[programs,](*tensors, *numbers, *constants)

    monkeypatch.setattr(triton_launch, "launch", launch)
    return found


# Operands as `einsum` spells them, with the sizes of what is added before them.
PRODUCTS: dict[str, tuple[str, tuple[tuple[int, ...], ...]]] = {
    "mm": ("ik,kj->ij", ((7, 5), (5, 9))),
    "bmm": ("bik,bkj->bij", ((2, 7, 5), (2, 5, 9))),
    "addmm": ("ik,kj->ij", ((7, 9), (7, 5), (5, 9))),
    "baddbmm": ("bik,bkj->bij", ((2, 7, 9), (2, 7, 5), (2, 5, 9))),
    "addbmm": ("bik,bkj->ij", ((7, 9), (2, 7, 5), (2, 5, 9))),
    "mv": ("ik,k->i", ((7, 5), (5,))),
    "addmv": ("ik,k->i", ((7,), (7, 5), (5,))),
    "addr": ("i,j->ij", ((7, 9), (7,), (9,))),
    "dot": ("k,k->", ((40,), (40,))),
}
GATES: dict[str, tuple[str, tuple[int, ...], tuple[int, ...]]] = {
    "of channels": ("nchw,nc->nchw", (3, 8, 4, 5), (3, 8, 1, 1)),
    "of all pictures": ("nchw,c->nchw", (3, 8, 4, 5), (8, 1, 1)),
    "of places": ("nchw,hw->nchw", (3, 8, 4, 5), (4, 5)),
    "a column": ("ij,i->ij", (9, 130), (9, 1)),
    "a row": ("ij,j->ij", (9, 130), (130,)),
    "a number": ("ij,->ij", (9, 70), ()),
    "of the same size": ("ij,ij->ij", (9, 70), (1, 9, 70)),
}


def drawn(shape: tuple[int, ...], seed: int, dtype: torch.dtype, odd: float | None = None) -> Tensor:
    """Numbers of which some are infinite or nan, or ``odd``."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)
    if odd is not None and shape:
        chosen = torch.rand(shape, generator=generator)
        x[chosen < 0.2], x[chosen < 0.05] = odd, math.nan
    return x


def expected(gradient: Tensor, cotangent: Tensor, factor: Tensor, letters: tuple[str, str, str]) -> Tensor:
    """A gradient with its dead terms taken for 0, where it is nan by one of these; of all terms, one beside another."""
    every = "".join(dict.fromkeys("".join(letters)))

    def beside(x: Tensor, own: str) -> Tensor:
        x = x.reshape([size for size in x.shape if size != 1])
        return x.permute([own.index(each) for each in every if each in own])[
            tuple(slice(None) if each in own else None for each in every)
        ]

    terms = beside(cotangent, letters[0]) * beside(factor, letters[1])
    is_dead = (beside(cotangent, letters[0]) == 0).expand(terms.shape) & terms.isnan()
    dims = [number for number, each in enumerate(every) if each not in letters[2]]
    total, has_dead = torch.where(is_dead, 0, terms), is_dead
    for dim in reversed(dims):
        total, has_dead = total.sum(dim), has_dead.any(dim)
    order = [each for each in every if each in letters[2]]
    total, has_dead = (
        x.permute([order.index(each) for each in letters[2]]).reshape(gradient.shape) for x in (total, has_dead)
    )
    return torch.where(gradient.isnan() & has_dead, total, gradient)


def mended(out: Tensor, leaves: list[Tensor], cotangent: Tensor) -> tuple[list[Tensor], list[Tensor]]:
    """Torch's own gradients, and what the kernel makes of them."""
    node: Any = out.grad_fn
    with torch.no_grad():
        found = node(cotangent)
        pairs = zip(found if isinstance(found, tuple) else (found,), leaves, strict=True)
        made = [None if each is None else each.sum_to_size(leaf.shape) for each, leaf in pairs]
        plain = [each.clone() for each in made if each is not None]
        assert cuda_strong_zero.spare(node.metadata[MARK], node, made, (cotangent,))
    return plain, [each for each in made if each is not None]


def cotangent_of(out: Tensor, steep: bool) -> Tensor:
    found = drawn(tuple(out.shape), 5, out.dtype)
    if steep:
        found[torch.rand(out.shape, generator=torch.Generator().manual_seed(7)) < 0.8] = 0.0
    return found


@pytest.mark.parametrize("steep", [False, True], ids=["finite", "steep"])
@pytest.mark.parametrize("name", PRODUCTS)
def test_products(name: str, steep: bool, launches: list[str]) -> None:
    dtype = torch.float64 if "b" in name else torch.float32
    letters, shapes = PRODUCTS[name]
    (a, b), result = letters.partition("->")[0].split(","), letters.partition("->")[2]
    leaves = [drawn(shape, number, dtype, math.inf if steep else None) for number, shape in enumerate(shapes)]
    with subgrad.use("torch", strong_zero=True):
        out = getattr(torch, name)(*[each.requires_grad_() for each in leaves])
    cotangent = cotangent_of(out, steep)
    plain, found = mended(out, leaves, cotangent)
    first, second = (each.detach() for each in leaves[-2:])
    wanted = [
        *plain[:-2],
        expected(plain[-2], cotangent, second, (result, b, a)),
        expected(plain[-1], cotangent, first, (result, a, b)),
    ]
    compare(plain, found, wanted, steep)
    assert launches


def compare(plain: list[Tensor], found: list[Tensor], wanted: list[Tensor], steep: bool) -> None:
    for own, one, other in zip(plain, found, wanted, strict=True):
        torch.testing.assert_close(one, other, equal_nan=True)
        assert torch.equal(one[~own.isnan()], own[~own.isnan()])
    spared = sum(int((own.isnan() & ~one.isnan()).sum()) for own, one in zip(plain, found, strict=True))
    assert bool(spared) == steep


@pytest.mark.parametrize("needs", ["both", "the image", "the gate"])
@pytest.mark.parametrize("divides", [False, True], ids=["times", "by"])
@pytest.mark.parametrize("name", GATES)
def test_gates(name: str, divides: bool, needs: str, launches: list[str]) -> None:
    for steep in (False, True):
        for is_last in (False, True) if len(GATES[name][1]) == 4 else (False,):
            check_gate(name, steep, divides, needs, is_last, launches)


def check_gate(name: str, steep: bool, divides: bool, needs: str, is_last: bool, launches: list[str]) -> None:
    del launches[:]
    letters, wide, narrow = GATES[name]
    (a, b), result = letters.partition("->")[0].split(","), letters.partition("->")[2]
    odd = None if not steep else 0.0 if divides else math.inf
    image, gate = (
        drawn(wide, 1, torch.float32, odd if not divides and steep else None),
        drawn(narrow, 2, torch.float32, odd),
    )
    if odd is not None:
        gate.view(-1)[0] = odd
    if is_last:
        image = image.contiguous(memory_format=torch.channels_last)
    image.requires_grad_(needs != "the gate")
    gate.requires_grad_(needs != "the image")
    with subgrad.use("torch", strong_zero=True):
        out = image / gate if divides else image * gate
    cotangent = cotangent_of(out, steep)
    if steep:  # of some sums no live term is nan
        is_odd = ~((1 / gate if divides else gate) * image).isfinite()
        cotangent[is_odd.detach() & (torch.arange(gate.numel()).view(narrow) % 2 == 0)] = 0.0
    if is_last:
        cotangent = cotangent.contiguous(memory_format=torch.channels_last)
    plain, found = mended(out, [image, gate], cotangent)
    x, c = image.detach(), gate.detach()
    slopes = (1 / c, -(x / c / c)) if divides else (c, x)
    rules = [(slopes[0], b, a), (slopes[1], a, b)]
    kept = [rule for rule, is_kept in zip(rules, (image.requires_grad, gate.requires_grad), strict=True) if is_kept]
    wanted = [
        expected(own, cotangent, factor, (result, of, to)) for own, (factor, of, to) in zip(plain, kept, strict=True)
    ]
    compare(plain, found, wanted, steep)
    assert len(launches) == 1 or name == "of the same size" or (name == "of places" and is_last)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16], ids=str)
def test_operators_of_entries(dtype: torch.dtype, launches: list[str]) -> None:
    x = drawn((2500,), 1, dtype, 0.0).requires_grad_()
    with subgrad.use("torch", strong_zero=True):
        out = x.log()
    cotangent = cotangent_of(out, steep=True)
    (own,), (found,) = mended(out, [x], cotangent)
    assert launches == ["spreads"]
    compare([own], [found], [torch.where(own.isnan() & (cotangent == 0), 0, own)], steep=True)


@pytest.mark.parametrize("mean", [0.0, 0.5])
def test_the_mean_of_a_loss(mean: float, launches: list[str]) -> None:
    x = drawn((50,), 1, torch.float32, math.inf).requires_grad_()
    with subgrad.use("torch", strong_zero=True):
        out = torch.nn.functional.mse_loss(x, torch.full((50,), math.inf))
    (own,), (found,) = mended(out, [x, x], torch.tensor(mean))
    assert launches == ["spreads"]
    compare([own], [found], [own if mean else own.nan_to_num()], steep=not mean)


@pytest.mark.parametrize("dim", [0, 1, 2, -1])
@pytest.mark.parametrize("function", [torch.softmax, torch.log_softmax])
def test_lines(function: Any, dim: int, launches: list[str]) -> None:
    x = drawn((4, 5, 6), 1, torch.float32, math.inf).transpose(0, 1).requires_grad_()
    with subgrad.use("torch", strong_zero=True):
        out = function(x, dim)
    cotangent = cotangent_of(out, steep=True)
    (own,), (found,) = mended(out, [x], cotangent)
    assert launches == ["lines"]
    is_dead = (cotangent == 0).all(dim, keepdim=True)
    compare([own], [found], [torch.where(own.isnan() & is_dead, 0, own)], steep=True)
