"""Counts are exact: against NumPy for every family, against the samples for every row."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from fresh import run_fresh
from torch import Tensor, nn

import subgrad
from audit.families import FAMILIES
from subgrad.audit.counting import operators, steps_between
from subgrad.kinks import KINKS
from subgrad.kinks.overloads import overload
from subgrad.kinks.samples import samples

DTYPES = (torch.float32, torch.bfloat16)


def integers(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(-3, 7, shape).astype(np.float32)


CASES = [(name, dtype) for name, family in FAMILIES.items() for dtype in DTYPES[: 1 if family.wide else 2]]


@pytest.mark.parametrize(("family", "dtype"), CASES, ids=str)
def test_hits_are_those_that_numpy_counts(family: str, dtype: torch.dtype) -> None:
    arrays = integers(0, 8, 8), integers(1, 8, 8)
    for each in arrays:
        each[2, :4] = 0
    x, y = (torch.from_numpy(each).to(dtype).requires_grad_() for each in arrays)
    with subgrad.audit() as audit:
        FAMILIES[family].call(x, y)
    found = {row.kink: (row.total.entries, row.total.hits) for row in audit.rows}
    wanted = FAMILIES[family].counts(*arrays)
    assert found == wanted
    assert not audit.notes
    assert sum(hits for _, hits in wanted.values()) > 0


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_network_of_known_construction(dtype: torch.dtype) -> None:
    """Integer weights and inputs: every activation is known, in both dtypes."""
    weights = [integers(seed, 6, 6) for seed in (2, 3)]
    model = nn.Sequential(nn.Linear(6, 6, bias=False), nn.ReLU(), nn.Linear(6, 6, bias=False), nn.Hardtanh(0, 6))
    with torch.no_grad():
        for layer, weight in zip((model[0], model[2]), weights, strict=True):
            layer.weight.copy_(torch.from_numpy(weight))
    x = integers(4, 16, 6) % 2
    first = x @ weights[0].T
    second = np.maximum(first, 0) @ weights[1].T
    assert np.abs(second).max() < 256  # bfloat16 holds these integers
    with subgrad.audit(model) as audit:
        model.to(dtype)(torch.from_numpy(x).to(dtype))
    found = {(row.module, row.operator, row.kink): row.total.hits for row in audit.rows}
    assert found == {
        ("1", "relu", "self == 0"): (first == 0).sum(),
        ("3", "hardtanh", "self == min_val"): (second == 0).sum(),
        ("3", "hardtanh", "self == max_val"): (second == 6).sum(),
    }


# Where the value is infinite as well, it shows the place by itself.
FINITE = [kink for kink in KINKS if not kink.is_infinite and kink.op != "where.self"]
REACHED = list(dict.fromkeys(kink.op for kink in FINITE))


@pytest.mark.parametrize("op", REACHED)
def test_every_row_is_counted_where_its_sample_lies_on_it(op: str) -> None:
    for call in samples(op, torch.float32):
        tensors = {name: each for name, each in call.items() if isinstance(each, Tensor)}
        given = {**call, **{name: each.clone() for name, each in tensors.items()}}
        names = [name for name, each in tensors.items() if each.is_floating_point() and name not in CONSTANTS]
        # Bends and jumps in tensors that are not differentiated are no kinks of the program.
        rows = [kink for kink in FINITE if kink.op == op and kink.applies(call)]
        rows = [kink for kink in rows if not kink.set.candidates or set(kink.set.candidates) & set(names)]
        wanted = {kink.words: int(kink.hits(call).sum()) for kink in rows}
        for name in names:
            given[name].requires_grad_()
        with subgrad.audit() as audit:
            overload(op)(**given)
        assert {row.kink: row.total.hits for row in audit.rows} == wanted, audit.notes


CONSTANTS = ("noise", "random_samples", "running_min", "running_max", "values", "scale", "zero_point")


def test_every_operator_of_the_table_and_every_comparison_is_looked_at() -> None:
    assert set(operators()) - set(REACHED) == {
        f"{name}.{form}" for name in ("gt", "ge", "lt", "le", "eq", "ne") for form in ("Tensor", "Scalar")
    }


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("place", [0.0, 1.0, -2.0])
def test_near_hits_are_counted_in_units_of_the_last_place(dtype: torch.dtype, place: float) -> None:
    at = torch.tensor(place, dtype=dtype)
    beside = [at]
    for _ in range(4):
        beside.append(torch.nextafter(beside[-1], torch.tensor(9.0, dtype=dtype)))
    x = torch.stack([*beside, torch.nextafter(at, torch.tensor(-9.0, dtype=dtype)), torch.full_like(at, torch.nan)])
    assert steps_between(x[:6], place).tolist() == [0, 1, 2, 3, 4, 1]
    with subgrad.audit(ulps=3) as audit:
        x.requires_grad_().clamp(min=place)
        x > place  # noqa: B015
    assert [(row.total.hits, row.total.near) for row in audit.rows] == [(1, 4), (1, 4)]


def test_the_distances_of_a_sample_are_sorted_into_decades() -> None:
    x = torch.tensor([0.0, 1e-13, 5e-4, 5e-4, 0.5, 20.0, 5e3], requires_grad=True)
    with subgrad.audit() as audit:
        torch.relu(x)
    (row,) = audit.rows
    # 0 to 1e-12, then a bin for each decade from 1e-12 on, the last one open.
    assert {place: count for place, count in enumerate(row.distances) if count} == {0: 1, 9: 2, 12: 1, 14: 1, 16: 1}


@pytest.mark.parametrize("layout", ["channels_last", "transposed", "strided", "expanded"])
def test_memory_layouts_do_not_matter(layout: str) -> None:
    x = torch.from_numpy(integers(5, 2, 3, 4, 4))
    laid = {
        "channels_last": x.contiguous(memory_format=torch.channels_last),
        "transposed": x.transpose(1, 3),
        "strided": x.repeat_interleave(2, -1)[..., ::2],
        "expanded": x[:1].expand(2, 3, 4, 4),
    }[layout]
    with subgrad.audit(ulps=1) as audit:
        torch.relu(laid.requires_grad_())
        torch.maximum(laid, laid.detach().roll(1, 0))
    wanted = [int((laid == 0).sum()), int((laid == laid.roll(1, 0)).sum())]
    assert {row.operator: row.total.hits for row in audit.rows} == dict(zip(("relu", "maximum"), wanted, strict=True))


def test_what_is_not_differentiated_is_not_counted() -> None:
    x = torch.zeros(3)
    with subgrad.audit() as audit:
        torch.relu(x)
        with torch.no_grad():
            torch.relu(x.clone().requires_grad_())
        F.relu(x.clone().requires_grad_().detach())
    assert audit.rows == ()


def test_large_tensors_are_looked_at_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("subgrad.audit.counting.PIECE", 16)
    image, rows = torch.from_numpy(integers(6, 4, 2, 6, 6)), torch.from_numpy(integers(7, 30, 2) % 3)
    image[1, 0, 2, 3] = image[3, 1, 0, 0] = torch.finfo(image.dtype).smallest_normal * torch.finfo(image.dtype).eps
    with subgrad.audit(ulps=1) as audit:
        torch.relu(image.requires_grad_())
        F.max_pool2d(image, 2)
        torch.cdist(rows.requires_grad_(), rows.detach())
    counts = {row.operator: row.total for row in audit.rows}
    tied = times_tied(image.detach().numpy())
    same = (rows.detach()[:, None] == rows.detach()[None]).all(-1)
    assert (counts["relu"].hits, counts["relu"].near) == (int((image == 0).sum()), 2)
    assert (counts["max_pool2d"].entries, counts["max_pool2d"].hits) == (tied.size, int(tied.sum()))
    assert (counts["cdist"].entries, counts["cdist"].hits) == (900, int(same.sum()))


def times_tied(x: np.ndarray) -> np.ndarray:
    n, c, h, w = x.shape
    cells = x.reshape(n, c, h // 2, 2, w // 2, 2).swapaxes(3, 4).reshape(n, c, h // 2, w // 2, 4)
    return (cells == cells.max(-1, keepdims=True)).sum(-1) > 1


def test_the_first_use_of_a_process_adds_no_calls_of_its_own() -> None:
    program = (
        "import torch, subgrad\n"
        "with subgrad.audit(every=1) as audit, subgrad.use('torch-2.13'):\n"
        "    torch.zeros((), requires_grad=True).clamp(min=0).backward()\n"
        "assert [(row.operator, row.total.hits) for row in audit.rows] == [('clamp', 1)], audit.rows\n"
    )
    done = run_fresh(program)
    assert done.returncode == 0, done.stderr
