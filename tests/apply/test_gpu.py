"""The same elements on a CUDA device, for every row, in reverse and forward mode."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad

import subgrad
from subgrad.apply.tie_sharing import REPAIRS
from subgrad.kinks import KINKS
from subgrad.kinks.overloads import overload
from subgrad.kinks.samples import samples
from subgrad.survey.joint import JointCall, joint_calls

pytestmark = pytest.mark.gpu

CHOSEN = ("min-norm", "documented", "left", "right", "mean")
# These leave places to torch, whose CPU and CUDA kernels disagree at bounds that 16 bits cannot hold.
TORCH = ("torch-2.13", "torch-2.14", "pass-through")
DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)


def measured(op: str, call: dict[str, Any], device: str) -> list[Tensor]:
    """Value, gradients and tangents of a call on a device."""
    call = {name: value.to(device) if isinstance(value, Tensor) else value for name, value in call.items()}
    names = [name for name, value in call.items() if isinstance(value, Tensor) and name not in ("noise", "weight")]
    leaves = {name: call[name].clone().requires_grad_() for name in names}
    out = overload(op)(**{**call, **leaves})
    cotangent = torch.linspace(-1.5, 2.75, out.numel(), dtype=torch.float64).to(out)
    found = [out.detach(), *torch.autograd.grad(out, list(leaves.values()), cotangent)]
    with forward_ad.dual_level():
        duals = {name: forward_ad.make_dual(call[name], cotangent) for name in names}
        found.append(forward_ad.unpack_dual(overload(op)(**{**call, **duals})).tangent.clone())
    return [each.cpu() for each in found]


@pytest.mark.parametrize("convention", [*CHOSEN, *TORCH])
@pytest.mark.parametrize("op", KINKS.entrywise)
def test_a_gpu_gives_the_gradients_of_the_cpu(op: str, convention: str) -> None:
    # In 16 bits torch computes special_i0e differently on its devices.
    dtypes = DTYPES if convention in CHOSEN and op != "special_i0e" else DTYPES[:2]
    calls = [call for dtype in dtypes for call in samples(op, dtype) if not call.get("training")]
    with subgrad.use(convention):
        for call in calls:
            torch.testing.assert_close(measured(op, call, "cuda"), measured(op, call, "cpu"), equal_nan=True)


@pytest.mark.parametrize("convention", ["torch", "min-norm", "mean"])
@pytest.mark.parametrize("call", [call for call in joint_calls() if call.kink.op in REPAIRS], ids=str)
def test_a_gpu_shares_ties_as_the_cpu_does(call: JointCall, convention: str) -> None:
    moved = {name: value.cuda() if isinstance(value, Tensor) else value for name, value in call.call.items()}
    if call.kink.torch is None and convention == "torch":
        pytest.skip("torch's own is no element, and differs between devices")
    with subgrad.use(convention):
        here, there = call.reverse(-2.5), replace(call, call=moved).reverse(-2.5)
    assert here is not None
    assert there is not None
    if convention == "torch":  # which of the tied entries is selected may differ
        assert {name: sorted(entries) for name, entries in there.items()} == {
            name: pytest.approx(sorted(entries)) for name, entries in here.items()
        }
    else:
        assert there == {name: pytest.approx(entries, nan_ok=True) for name, entries in here.items()}


def test_a_compiled_function_gives_each_convention_its_own_gradient_on_a_gpu() -> None:
    def function(x: Tensor) -> Tensor:
        return torch.clamp(x, 0.0, 6.0) * 2

    compiled = torch.compile(function, fullgraph=True)
    for convention in ("mean", "right", "mean", "torch", "left"):
        x = torch.tensor([-1.0, 0.0, 3.0, 6.0, 7.0], device="cuda", requires_grad=True)
        cotangent = torch.tensor([1.0, -2.0, -0.5, 5.0, 6.0], device="cuda")
        with subgrad.use(convention):
            eager, graph = function(x), compiled(x)
        assert torch.equal(*(torch.autograd.grad(each, x, cotangent)[0] for each in (eager, graph)))


@pytest.mark.parametrize(("convention", "wanted"), [("min-norm", [0.0, 3.0, 0.0]), ("right", [2.0, 3.0, 0.0])])
@pytest.mark.parametrize("function", [torch.maximum, torch.max, torch.fmax])
def test_a_number_on_the_cpu_meets_a_tensor_on_the_gpu(function: Any, convention: str, wanted: list[float]) -> None:
    x = torch.tensor([0.0, 1.0, -1.0], device="cuda", requires_grad=True)
    with subgrad.use(convention):
        y = function(x, torch.tensor(0.0))
    assert torch.autograd.grad(y, x, torch.tensor([2.0, 3.0, 4.0], device="cuda"))[0].tolist() == wanted


def test_a_differentiated_number_on_the_cpu_meets_a_tensor_on_the_gpu() -> None:
    x, bound = torch.tensor([0.0, 1.0, -1.0], device="cuda", requires_grad=True), torch.tensor(0.0, requires_grad=True)
    with subgrad.use("right"):
        y = torch.maximum(bound, x)
    found = torch.autograd.grad(y, (x, bound), torch.tensor([2.0, 3.0, 4.0], device="cuda"))
    assert [each.tolist() for each in found] == [[0.0, 3.0, 0.0], 6.0]
