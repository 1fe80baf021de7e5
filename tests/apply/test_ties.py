"""Ties inside tensors: every mode gives the least element, values and untied gradients are torch's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.func import grad, jacfwd, jacrev, jvp, vmap

import subgrad
from subgrad.apply.tie_sharing import REPAIRS
from subgrad.kinks.sets import Joint
from subgrad.survey.joint import JointCall, joint_calls

CALLS = [call for call in joint_calls() if call.kink.op in REPAIRS and isinstance(call.kink.set, Joint)]
SELECTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "max": lambda x: x.max(-1).values,
    "min": lambda x: x.min(-1).values,
    "median": lambda x: x.median(-1).values,
    "nanmedian": lambda x: x.nanmedian(-1).values,
    "kthvalue": lambda x: x.kthvalue(3, -1).values,
    "sort": lambda x: x.sort(-1).values,
    "sort descending": lambda x: x.sort(dim=-1, descending=True, stable=True).values,
    "topk": lambda x: x.topk(3, -1).values,
    "cummax": lambda x: x.cummax(-1).values,
    "cummin": lambda x: x.cummin(-1).values,
    "max_pool1d": lambda x: F.max_pool1d(x, 2),
    "max_pool2d": lambda x: F.max_pool2d(x, 2),
    "max_pool2d overlapping": lambda x: F.max_pool2d(x, 3, 2, 1),
    "max_pool2d ceil": lambda x: F.max_pool2d(x, 3, 2, 1, ceil_mode=True),
    "max_pool2d dilated": lambda x: F.max_pool2d(x, 2, 1, 0, 2),
    "max_pool3d": lambda x: F.max_pool3d(x.unsqueeze(1), (1, 2, 2)),
    "adaptive_max_pool1d": lambda x: F.adaptive_max_pool1d(x, 3),
    "adaptive_max_pool2d": lambda x: F.adaptive_max_pool2d(x, (3, 2)),
    "adaptive_max_pool3d": lambda x: F.adaptive_max_pool3d(x.unsqueeze(1), (1, 3, 2)),
    "cdist": lambda x: torch.cdist(x, 2 * x.roll(1, -1) + 1, p=float("inf")),
    "svdvals": torch.linalg.svdvals,
}


def cotangent_like(tensor: Tensor) -> Tensor:
    return torch.linspace(-1.5, 2.75, tensor.numel(), dtype=tensor.dtype).reshape(tensor.shape)


def tied(dtype: torch.dtype = torch.float64) -> Tensor:
    """Small whole numbers: most lines and windows hold ties, some do not."""
    generator = torch.Generator().manual_seed(3)
    return torch.randint(0, 5, (2, 5, 6), generator=generator).to(dtype)


def untied(dtype: torch.dtype = torch.float64) -> Tensor:
    generator = torch.Generator().manual_seed(4)
    return (torch.randperm(60, generator=generator).reshape(2, 5, 6) + 0.37).sqrt().to(dtype) * 3 - 9


def gradient(function: Callable[[Tensor], Tensor], x: Tensor) -> tuple[Tensor, Tensor]:
    leaf = x.clone().requires_grad_()
    out = function(leaf)
    return out, torch.autograd.grad(out, leaf, cotangent_like(out))[0]


def by_hand(name: str, x: Tensor) -> Tensor:
    """The gradient with ties shared evenly: the mean of torch's own over all orders, which small noise draws."""
    total, draws = torch.zeros_like(x), 4000
    torch.manual_seed(0)
    for _ in range(draws):
        total += gradient(SELECTIONS[name], x + 1e-6 * torch.rand_like(x))[1]
    return total / draws


@pytest.mark.parametrize("name", ["max", "median", "kthvalue", "sort", "topk", "cummax", "max_pool2d overlapping"])
def test_ties_are_shared_evenly(name: str) -> None:
    x = tied()[:, :3, :4].contiguous()
    with subgrad.use("min-norm"):
        found = gradient(SELECTIONS[name], x)[1]
    torch.testing.assert_close(found, by_hand(name, x), atol=0.1, rtol=0)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("place", [tied, untied])
@pytest.mark.parametrize("name", SELECTIONS)
def test_values_are_torchs_own_and_so_are_gradients_without_ties(name: str, place: Any, dtype: torch.dtype) -> None:
    if name in ("cdist", "svdvals") and dtype is torch.bfloat16:
        pytest.skip("torch has none in bfloat16")
    x = place(dtype)
    plain, native = gradient(SELECTIONS[name], x)
    with subgrad.use("min-norm"):
        chosen, found = gradient(SELECTIONS[name], x)
    assert torch.equal(plain, chosen)
    assert plain.stride() == chosen.stride()
    if place is untied:
        assert torch.equal(native, found)
        # Windows are looked at in the backward, or by the loops of the C++ part, which look at all of them anyway.
        assert "max_pool" in name or chosen.grad_fn.name() == plain.grad_fn.name()
    elif name != "svdvals":  # whose values do not tie here
        assert not torch.equal(native, found)


@pytest.mark.parametrize("name", SELECTIONS)
def test_other_conventions_leave_them_to_torch(name: str) -> None:
    _, native = gradient(SELECTIONS[name], tied())
    for convention in ("left", "right", "torch-2.13", "torch-2.14", "pass-through"):
        with subgrad.use(convention):
            assert torch.equal(gradient(SELECTIONS[name], tied())[1], native)


@pytest.mark.parametrize("name", [name for name in SELECTIONS if name != "cdist"])  # has no forward mode in torch
def test_every_mode_agrees_with_reverse_mode(name: str) -> None:
    function, x = SELECTIONS[name], tied()

    def weighted(x: Tensor) -> Tensor:
        out = function(x)
        return (out * cotangent_like(out)).sum()

    with subgrad.use("min-norm"):
        out, expected = gradient(function, x)
        close = {"rtol": 1e-12, "atol": 1e-12}
        torch.testing.assert_close(grad(weighted)(x), expected, **close)
        torch.testing.assert_close(jacrev(weighted)(x), expected, **close)
        torch.testing.assert_close(jacfwd(weighted)(x), expected, **close)
        direction = cotangent_like(x)
        torch.testing.assert_close(jvp(weighted, (x,), (direction,))[1], (expected * direction).sum(), **close)
        if "pool" not in name or "3d" not in name:
            batch = torch.stack([x, untied()])
            torch.testing.assert_close(vmap(grad(weighted))(batch)[0], expected, **close)
    assert out.shape == function(x).shape


@pytest.mark.parametrize("name", [name for name in SELECTIONS if name not in ("cdist", "svdvals")])
def test_second_derivatives_of_what_is_linear_between_ties(name: str) -> None:
    function, x = SELECTIONS[name], tied()
    with subgrad.use("min-norm"):
        first = jacrev(function)(x)
        leaf = x.clone().requires_grad_()
        (slope,) = torch.autograd.grad((function(leaf) ** 2).sum() / 2, leaf, create_graph=True)
        (second,) = torch.autograd.grad(slope, leaf, cotangent_like(x))
    matrix = first.reshape(-1, x.numel())
    expected = (matrix.T @ (matrix @ cotangent_like(x).flatten())).view_as(x)
    torch.testing.assert_close(second, expected)


@pytest.mark.parametrize("call", CALLS, ids=str)
def test_samples_agree_in_forward_mode(call: JointCall) -> None:
    with subgrad.use("min-norm"):
        reverse, forward = call.reverse(-2.5), call.forward(3.0)
    if forward is None:
        pytest.skip("torch itself has no forward mode")
    for name in call.names:
        assert forward[name] == pytest.approx(reverse[name], abs=1e-12)


@pytest.mark.compiled
@pytest.mark.long
def test_compiled_code_agrees_with_eager() -> None:
    names = ("max", "sort", "topk", "cummax", "max_pool2d overlapping", "adaptive_max_pool2d")

    def together(x: Tensor) -> Tensor:
        """All of them in one graph, as compiling takes long."""
        return torch.cat([SELECTIONS[name](x).flatten() for name in names])

    # Under "torch" the graph is torch's own, and what Inductor makes of it is not our doing.
    for convention, backend in (("min-norm", "aot_eager"), ("min-norm", "inductor"), ("torch", "aot_eager")):
        compiled = torch.compile(together, fullgraph=True, backend=backend)
        with subgrad.use(convention):
            out, expected = gradient(together, tied())
            compiled_out, found = gradient(compiled, tied())
        torch.testing.assert_close(compiled_out, out)
        torch.testing.assert_close(found, expected)


def test_equal_infinities_and_nan_keep_torchs_values() -> None:
    inf, nan = float("inf"), float("nan")
    x = torch.tensor([[inf, inf, 1.0], [nan, 2.0, nan], [-inf, -inf, -inf], [0.0, -0.0, -1.0]])
    for function in (SELECTIONS["max"], SELECTIONS["sort"], SELECTIONS["cummax"], lambda x: F.max_pool1d(x, 3)):
        plain, native = gradient(function, x)
        with subgrad.use("min-norm"):
            chosen, found = gradient(function, x)
        assert torch.equal(plain.nan_to_num(7), chosen.nan_to_num(7))
        assert torch.equal(found[1], native[1])  # nan ties with nothing
        assert torch.equal(found.sum(-1), native.sum(-1))


@pytest.mark.parametrize("convention", ["min-norm", "left", "right", "mean", "torch-2.13"])
def test_complex_tensors_keep_torchs_own_element_which_is_the_least(convention: str) -> None:
    z = torch.tensor([0j, 3 + 4j], dtype=torch.complex128, requires_grad=True)
    with subgrad.use(convention):
        (found,) = torch.autograd.grad(z.abs(), z, torch.tensor([2.0, -5.0], dtype=torch.float64))
    torch.testing.assert_close(found, torch.tensor([0j, -3 - 4j], dtype=torch.complex128))
