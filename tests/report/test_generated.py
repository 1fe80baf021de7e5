"""The pages of the documentation that a script writes are what it would write now."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from documented import COMMAND, TORCH, filled
from recorded_atlas import recorded_atlas

from subgrad.report import atlas_page
from subgrad.report.conventions_table import conventions_table
from subgrad.report.kinks_page import kinks_page
from subgrad.survey import survey

DOCS = Path(__file__).parents[2] / "docs"
KINKS, EXPLAIN, ATLAS = DOCS / "kinks.md", DOCS / "explain.md", DOCS / "atlas.html"
CURVE = re.compile(r"""<svg class="curve".*?</svg>""")


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


def test_the_table_of_conventions_is_what_make_docs_would_write() -> None:
    page = (DOCS / "conventions.md").read_text()
    (named,) = re.findall(r"is torch (\d+\.\d+)", page)
    if not torch.__version__.startswith(f"{named}."):
        pytest.skip(f"measured with torch {named}")
    assert f"\n{conventions_table()}\n" in page, "run `make docs`"


def test_the_atlas_is_what_make_docs_would_write() -> None:
    page = ATLAS.read_text()
    (named,) = re.findall(r"torch (\d+\.\d+\.\d+), jax", page)
    if torch.__version__.partition("+")[0] != named:
        pytest.skip(f"measured with torch {named}")
    # Tenths of a pixel of curves are where machines may round differently; test_atlas holds them against values.
    written, now = (CURVE.sub("", each).split("<article") for each in (page, atlas_page.page(recorded_atlas())))
    assert len(CURVE.findall(page)) > 200
    assert now == written, "run `make docs`"
