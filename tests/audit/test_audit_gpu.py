"""On CUDA: counts as on the CPU, nobody waits for the device inside a step, and the run is untouched."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

import subgrad
from audit.families import FAMILIES
from audit.test_effects import PAIRS, PROGRAMS, operands
from audit.test_untouched import Net

pytestmark = pytest.mark.gpu


def integers(seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(-3, 7, (8, 8), generator=generator).float()


NOT_TRIED = ("embedding_bag", "segment_reduce")  # in 16 bits on CUDA
CASES = [
    (name, dtype)
    for name, family in FAMILIES.items()
    for dtype in (torch.float32, torch.bfloat16)[: 1 if family.wide or name in NOT_TRIED else 2]
    if name not in ("prelu", "grid_sample")  # the one's weight is made on the CPU, the other is cuDNN's own operator
]


@pytest.mark.parametrize(("family", "dtype"), CASES, ids=str)
def test_counts_are_those_that_numpy_makes(family: str, dtype: torch.dtype) -> None:
    x, y = integers(0), integers(1)
    with subgrad.audit(ulps=1) as audit:
        FAMILIES[family].call(*(each.to("cuda", dtype).requires_grad_() for each in (x, y)))
    found = {row.kink: (row.total.entries, row.total.hits) for row in audit.rows}
    assert found == FAMILIES[family].counts(x.numpy(), y.numpy()), audit.notes


@pytest.mark.parametrize("pair", PAIRS, ids=" and ".join)
@pytest.mark.parametrize("program", PROGRAMS)
def test_differences_are_those_on_the_cpu(program: str, pair: tuple[str, str]) -> None:
    found = []
    for device in ("cpu", "cuda"):
        w, v = (each.detach().to(device).requires_grad_() for each in operands())
        with torch.device(device):
            effect: Any = subgrad.compare(lambda w=w, v=v: PROGRAMS[program](w, v), {"w": w, "v": v}, pair)
        found.append([(change.parameter, change.differ, change.flips) for change in effect.changes])
        assert effect.repeats
    assert found[0] == found[1]


def test_nobody_waits_for_the_device_inside_a_recorded_step() -> None:
    model = Net().cuda()
    x = torch.randn(8, 1, 8, 8, device="cuda").round()

    def step() -> None:
        model(x).sum().backward()

    with subgrad.audit(model, every=1) as audit:
        step()  # fills caches
        audit.step()
        torch.cuda.set_sync_debug_mode("error")
        try:
            step()
        finally:
            torch.cuda.set_sync_debug_mode("default")
    assert audit.recorded == (0, 1)
    assert not audit.notes


def trained(dtype: torch.dtype, audited: bool) -> tuple[list[Tensor], Any]:
    torch.manual_seed(0)
    model = Net().cuda()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    losses: list[Tensor] = []
    compare = ("torch-2.13", "torch-2.14")
    with subgrad.audit(model, compare=compare, every=5, compare_every=25) if audited else nullcontext() as audit:
        for _ in range(100):
            x = torch.randn(8, 1, 8, 8, device="cuda").round().relu()
            with torch.autocast("cuda", dtype, enabled=dtype is not torch.float32):
                out = model(x)
            loss = F.cross_entropy(out.float(), torch.randint(0, 3, (8,), device="cuda"))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
    return [*losses, *(each.detach() for each in model.state_dict().values())], audit


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_losses_and_weights_are_the_same_to_the_bit_after_100_steps(dtype: torch.dtype) -> None:
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        (plain, _), (again, _), (audited, audit) = (trained(dtype, each) for each in (False, False, True))
    finally:
        torch.use_deterministic_algorithms(False)
    assert all(torch.equal(a, b) for a, b in zip(plain, again, strict=True)), "plain training does not repeat here"
    assert all(torch.equal(a, b) for a, b in zip(plain, audited, strict=True))
    assert audit.effects[0].differing > 0


@pytest.mark.parametrize("reentrant", [False, True])
def test_what_a_checkpoint_recomputes_on_threads_of_autograd_is_counted_once(reentrant: bool) -> None:
    x = torch.zeros(3, requires_grad=True, device="cuda")
    with subgrad.audit() as audit:
        y = checkpoint(lambda x: torch.relu(x * 2), x, use_reentrant=reentrant)
        (y * torch.tensor([1.0, 2.0, 3.0], device="cuda")).sum().backward()
    assert [(row.operator, row.total.calls, row.total.hits) for row in audit.rows] == [("relu", 1, 3)]
