"""Strong zeros on some entries of PyTorch's operator database; `scripts/strong_zero.py` tries all of them."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from entries import CHECKED, cases
from strong_zeros import STRONG, Kind, findings, judged, planted, results, with_zeros
from torch import Tensor

import subgrad

# One for each way in which entries depend on each other.
ENTRIES = (
    *("sqrt", "div_no_rounding_mode", "mul", "pow", "rsqrt", "softmax", "logsumexp", "prod", "cumprod"),
    *("linalg_vector_norm", "cdist", "matmul", "addmm", "linalg_solve", "nn_functional_conv1d"),
    *("nn_functional_layer_norm", "nn_functional_batch_norm", "nn_functional_group_norm", "nn_functional_glu"),
)
BAD = (Kind.CHANGED, Kind.WRONG, Kind.FAILED)


@pytest.mark.parametrize("name", ENTRIES)
def test_only_what_is_nan_is_replaced_and_by_the_slope(name: str) -> None:
    every = cases(name)
    found = [each for case in (*every[:2], *every[-2:]) for each in findings(case)]
    assert [each for each in found if each.kind in BAD] == []
    assert any(each.kind is Kind.RIGHT for each in found)


@pytest.mark.parametrize("name", ["sqrt", "atan2", "softmax", "matmul", "linalg_vector_norm", "nn_functional_conv1d"])
def test_compiled_gradients_are_those_of_eager(name: str) -> None:
    for case in cases(name)[:2]:
        for variant in ("zeros", "poles"):
            leaves = [each.requires_grad_() for each in planted(case, variant)]

            def gradients(compiled: bool, case=case, leaves=leaves) -> Sequence[Tensor | None]:
                function = case.function
                if compiled:
                    torch.compiler.reset()
                    function = torch.compile(function, backend="aot_eager")
                with subgrad.use(STRONG):
                    out = [each for each in results(case, leaves, function) if each.requires_grad]
                    return torch.autograd.grad(out, leaves, with_zeros(out, 1), allow_unused=True)

            for one, other in zip(gradients(False), gradients(True), strict=True):
                torch.testing.assert_close(one, other, equal_nan=True)


@pytest.mark.parametrize(
    ("got", "kind"), [(6.0, Kind.RIGHT), (5.0, Kind.WRONG), (0.0, Kind.SURROGATE), (float("nan"), None)]
)
def test_a_slope_is_told_from_another_number(got: float, kind: Kind | None) -> None:
    x = [torch.tensor([3.0], dtype=CHECKED)]
    assert judged(lambda at, step: (at[0] + step) ** 2, x, torch.tensor(got)) is kind


@pytest.mark.parametrize(("got", "kind"), [(0.0, Kind.RIGHT), (1.0, Kind.WRONG), (float("nan"), Kind.MISSED)])
def test_what_nothing_depends_on_is_dead(got: float, kind: Kind) -> None:
    x = [torch.tensor([3.0], dtype=CHECKED)]
    assert judged(lambda at, step: at[0] * 0 + 7, x, torch.tensor(got)) is kind
