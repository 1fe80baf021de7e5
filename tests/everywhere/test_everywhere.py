"""The matrix of `docs/everywhere.md`: each of its cells is run, and comes out as the page says."""

from __future__ import annotations

import pytest
import torch

import subgrad
from everywhere import capabilities
from everywhere.capabilities import CAPABILITIES
from everywhere.families import FAMILIES
from everywhere.matrix import CONVENTIONS, LEFT_TO_TORCH, PASS, disagrees_with_itself, expected, outcome
from everywhere.page import is_the_torch_of_the_page, read_outcomes

OUTCOMES = read_outcomes()
# Seconds a cell: the page is made with all of them.
SLOW = {name for name in CAPABILITIES if "compile" in name or "inside" in name or "graph breaks" in name}
COMPILED = "mean"  # no family keeps torch's own element under it


@pytest.fixture(autouse=True)
def traced_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Conventions enter graphs when they are traced; what Inductor makes of those is in `test_compiled.py`."""
    monkeypatch.setattr(capabilities, "BACKEND", "aot_eager")


@pytest.mark.parametrize("convention", CONVENTIONS)
@pytest.mark.parametrize("capability", [name for name in CAPABILITIES if name not in SLOW])
def test_the_convention_holds(capability: str, convention: str) -> None:
    if convention in LEFT_TO_TORCH and disagrees_with_itself(capability):
        pytest.skip("torch itself: its forward mode disagrees with its reverse mode at ties")
    found = {family: outcome(capability, convention, family) for family in FAMILIES}
    if "nested" not in capability or is_the_torch_of_the_page():  # what torch itself can do there differs
        assert found == OUTCOMES[capability, convention]


@pytest.mark.compiled
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("capability", sorted(SLOW))
def test_the_convention_holds_when_compiled(capability: str, family: str) -> None:
    assert outcome(capability, COMPILED, family) == OUTCOMES[capability, COMPILED][family]


@pytest.mark.parametrize("family", FAMILIES)
def test_the_families_tell_conventions_apart(family: str) -> None:
    """Otherwise the matrix would show nothing: at least three different gradients, "selections" and norms two."""
    gradients = {str([g.tolist() for g in expected(family, convention)]) for convention in CONVENTIONS.values()}
    assert len(gradients) >= (2 if family in ("selections", "norms at 0") else 3)


# By hand: the sum of the slopes of all functions of a family. Times the cotangent, it is what the matrix compares with.
SLOPES = {
    ("corners", "min-norm"): [[-1, 1, 3, 2, 2, -1]],
    ("corners", "mean"): [[-0.5, 2, 3.5, 2.5, 2, -1]],
    ("corners", "left"): [[-1, 0, 4, 3, 2, -1]],
    ("corners", "right"): [[0, 4, 3, 2, 2, -1]],
    ("corners", "straight-through"): [[0, 2, 3, 3, 3, 0]],
    ("ties", "min-norm"): [[2.5, 4, 2.5, 3.5], [2.5, 1, 2.5, 1.5]],
    ("ties", "mean"): [[2.5, 4, 2.5, 3.5], [2.5, 1, 2.5, 1.5]],
    ("norms at 0", "min-norm"): [[0, 0.6, 0], [0, 0.8, 1]],
    ("norms at 0", "mean"): [[0, 0.6, 0], [0, 0.8, 1]],
}


@pytest.mark.parametrize(("family", "convention"), SLOPES)
def test_the_matrix_compares_with_the_right_gradients(family: str, convention: str) -> None:
    for found, slopes in zip(expected(family, CONVENTIONS[convention]), SLOPES[family, convention], strict=True):
        cotangent = (torch.arange(len(slopes)) - 2.5) / 4
        torch.testing.assert_close(found, torch.tensor(slopes) * cotangent)


def test_the_page_has_every_cell() -> None:
    assert set(OUTCOMES) == {(capability, convention) for capability in CAPABILITIES for convention in CONVENTIONS}
    refused = {capability for (capability, _), found in OUTCOMES.items() if set(found.values()) != {PASS}}
    assert refused == {"torch.nested (jagged)"}


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_without_gradients_values_are_torchs_own(mode: object) -> None:
    for program in FAMILIES.values():
        with mode():
            plain = program.function(*program.values)
            with subgrad.use("mean"):
                chosen = program.function(*program.values)
        assert all(torch.equal(one, other) for one, other in zip(plain, chosen, strict=True))
        assert not any(each.requires_grad for each in chosen)
