"""The pages of the documentation that a script writes are what it would write now."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from documented import COMMAND, TORCH, filled

from subgrad.report.kinks_page import kinks_page
from subgrad.survey import survey

DOCS = Path(__file__).parents[2] / "docs"
KINKS, EXPLAIN = DOCS / "kinks.md", DOCS / "explain.md"


def test_the_page_of_kinks_is_what_make_docs_would_write() -> None:
    page = KINKS.read_text()
    (named,) = re.findall(r"measured with torch (\d+\.\d+\.\d+)", page)
    if torch.__version__.partition("+")[0] != named:
        pytest.skip(f"measured with torch {named}")
    assert kinks_page(list(survey())).splitlines() == page.splitlines(), "run `make docs`"


def test_the_samples_of_commands_are_what_they_print() -> None:
    page = EXPLAIN.read_text()
    (named,) = set(TORCH.findall(page))
    if torch.__version__.partition("+")[0] != named:
        pytest.skip(f"printed with torch {named}")
    assert len(COMMAND.findall(page)) >= 6
    assert filled(page).splitlines() == page.splitlines(), "run `make docs`"
