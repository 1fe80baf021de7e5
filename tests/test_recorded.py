"""`torch-2.13` and `torch-2.14` against what the real versions returned, recorded by scripts/record.py."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import recording

import subgrad
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


@pytest.mark.parametrize("convention", VERSIONS)
def test_the_record_was_made_by_the_real_version(convention: str) -> None:
    record = json.loads((RECORDED / f"{convention}.json").read_text())
    assert record["torch"].startswith(convention.removeprefix("torch-"))


def test_the_versions_differ_where_they_are_known_to() -> None:
    before, since = (recorded(version) for version in VERSIONS)
    clamps = {op for op in recording.OVERLOADS if op.startswith("clamp")}
    assert {op for op in recording.OVERLOADS if before[op] != since[op]} == {*clamps, "fmax", "fmin"}
