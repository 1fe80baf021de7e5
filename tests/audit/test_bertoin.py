"""docs/bertoin.md says what its script finds: minibatches differ in 16 bits, and not in 64."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest
import torch

ROOT = Path(__file__).parents[2]
Script = dict[str, Any]


@pytest.fixture(scope="module")
def script() -> Script:
    """Not while tests are collected: what it imports takes two seconds."""
    pytest.importorskip("sklearn")
    return runpy.run_path(str(ROOT / "scripts" / "bertoin.py"))


def test_gradients_of_minibatches_differ_in_16_bits_and_not_in_64(script: Script) -> None:
    narrow, hits, count = script["measure"](1, script["Layer"], torch.float16, 1)
    assert narrow > 0.25
    assert 0 < hits < 1e-3
    assert count == 15
    assert script["measure"](1, script["Layer"], torch.float64, 1)[:2] == (0.0, 0.0)


def test_the_page_is_what_the_script_would_write_around_its_table(script: Script) -> None:
    page = (ROOT / "docs" / "bertoin.md").read_text()
    lines = [line for line in script["TEXT"].splitlines() if "{" not in line and line]
    assert all(line in page for line in lines)
    assert [line.split("|")[1].strip() for line in page.splitlines() if line.startswith("| 1")] == ["16", "16, fused"]
