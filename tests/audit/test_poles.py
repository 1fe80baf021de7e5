"""The nodes that are asked before a backward are those of the table's poles: each is seen coming, and all is known."""

from __future__ import annotations

import pytest
from torch import Tensor

import subgrad
from subgrad.kinks.sets import Pole
from subgrad.survey.joint import JointCall, joint_calls


def is_differentiated(row: JointCall) -> bool:
    """Whether the installed torch has a derivative: of Bessel functions of the second kind only in newer ones."""
    return row.function(*differentiable(row)).requires_grad


def differentiable(row: JointCall) -> list[Tensor]:
    """The operands; of incomplete gamma functions torch differentiates the second alone."""
    is_gamma = row.kink.op.startswith("igamma")
    return [each.clone().requires_grad_(not is_gamma or place == 1) for place, each in enumerate(row.inputs)]


ROWS = [row for row in joint_calls() if isinstance(row.kink.set, Pole) and is_differentiated(row)]


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_a_pole_of_the_table_is_recorded_as_it_happens(row: JointCall) -> None:
    leaves = differentiable(row)
    with subgrad.audit(nonfinite=True) as audit:
        result = row.function(*leaves)
        result.backward(result.new_tensor(1.5))
    broken = [each for each in leaves if each.grad is not None and not each.grad.isfinite().all()]
    assert bool(audit.nonfinite) == bool(broken)
    for found in audit.nonfinite:
        assert found.is_whole
        assert found.guilty is not None
        assert found.guilty.site.file == __file__
        assert found.kind in ("slope", "value")


def test_torch_is_finite_at_some_of_them_only() -> None:
    finite = 0
    for row in ROWS:
        leaves = differentiable(row)
        result = row.function(*leaves)
        result.backward(result.new_tensor(1.5))
        finite += all(each.grad is None or bool(each.grad.isfinite().all()) for each in leaves)
    assert 0 < finite < len(ROWS) / 2, (finite, len(ROWS))
