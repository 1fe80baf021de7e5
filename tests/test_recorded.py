"""`torch-2.13` and `torch-2.14` against what the real versions returned, recorded by scripts/record.py."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import recording
import torch

import subgrad
from subgrad.conventions import SAME_VERSIONS
from subgrad.kinks import KINKS

RECORDED = Path(__file__).parent / "recorded"
VERSIONS = ("torch-2.13", "torch-2.14")


@cache
def recorded(convention: str) -> dict[str, Any]:
    return json.loads((RECORDED / f"{convention}.json").read_text())["rows"]


@cache
def measured(convention: str) -> dict[str, Any]:
    with subgrad.use(convention):
        return recording.record()["rows"]


@pytest.mark.parametrize("op", recording.OVERLOADS)
@pytest.mark.parametrize("convention", VERSIONS)
def test_every_sample_has_the_gradient_of_the_real_version_to_the_bit(convention: str, op: str) -> None:
    found = measured(convention)[op]
    if op in KINKS.joint and all(recording.REFUSED in each.values() for each in found):
        pytest.skip("the installed torch cannot differentiate it: aminmax up to 2.12")
    assert found == recorded(convention)[op]


@cache
def measured_alone() -> dict[str, Any]:
    return recording.record()["rows"]


@pytest.mark.parametrize("op", recording.OVERLOADS)
def test_the_installed_version_returns_what_the_convention_of_its_name_does(op: str) -> None:
    """`torch-2.11`, `torch-2.12` and `torch-2.15` are other names: each is proven where it is installed."""
    name = f"torch-{'.'.join(torch.__version__.split('.')[:2])}"
    found = measured_alone()[op]
    if op in KINKS.joint and all(recording.REFUSED in each.values() for each in found):
        pytest.skip("the installed torch cannot differentiate it: aminmax up to 2.12")
    assert found == recorded(subgrad.Convention(name).base)[op]


def test_other_names_are_the_same_convention() -> None:
    assert {name: subgrad.Convention(name) for name in SAME_VERSIONS} == {
        "torch-2.11": subgrad.Convention("torch-2.13"),
        "torch-2.12": subgrad.Convention("torch-2.13"),
        "torch-2.15": subgrad.Convention("torch-2.14"),
    }
    with subgrad.use("torch-2.12"):
        assert str(subgrad.active()) == "torch-2.13"
    assert subgrad.Convention("min-norm", clamp="torch-2.15") == subgrad.Convention("min-norm", clamp="torch-2.14")


@pytest.mark.parametrize("convention", VERSIONS)
def test_the_record_was_made_by_the_real_version(convention: str) -> None:
    record = json.loads((RECORDED / f"{convention}.json").read_text())
    assert record["torch"].startswith(convention.removeprefix("torch-"))


def test_the_versions_differ_where_they_are_known_to() -> None:
    before, since = (recorded(version) for version in VERSIONS)
    clamps = {op for op in recording.OVERLOADS if op.startswith("clamp")}
    assert {op for op in recording.OVERLOADS if before[op] != since[op]} == {*clamps, "fmax", "fmin"}
