"""The page about checks: what it says of classic bugs is what is said now, and its random functions, in small."""

from __future__ import annotations

import re
from pathlib import Path
from random import Random

import pytest
import torch

import subgrad
from subgrad.testing import GradcheckError, gradcheck
from testing.planted import function_with, kinked, wrong
from testing.side_by_side import side_by_side
from testing.smooth import smooth
from testing.table_kinds import spots

PAGE = (Path(__file__).parents[2] / "docs" / "testing.md").read_text()
FIGURES = PAGE.partition("<!-- random: begin -->")[2].partition("<!-- random: end -->")[0]
FEW = 12


@pytest.mark.skipif(torch.__version__ < "2.15", reason="the page says what the newest torch says")
def test_the_page_says_of_classic_bugs_what_both_say() -> None:
    assert side_by_side() in PAGE


@pytest.mark.skipif(not FIGURES.strip(), reason="scripts/testing_evidence.py has not been run to its end")
def test_the_page_has_the_figures_of_a_whole_run_in_which_nothing_was_misjudged() -> None:
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in re.findall(r"^\| .*\d.*$", FIGURES, re.M)]
    random = [row for row in rows if row[0].startswith(("random", "the same"))]
    assert [row[1] for row in random] == ["1,000"] * 3
    assert all(row[2] == "0" for row in rows)


@pytest.mark.parametrize("number", range(1000, 1000 + FEW))
def test_random_smooth_functions_pass(number: int) -> None:
    made = smooth(Random(number))
    assert gradcheck(made, made.inputs, seed=number)


@pytest.mark.parametrize("number", range(1000, 1000 + FEW))
def test_random_elements_at_kinks_pass(number: int) -> None:
    generator = Random(number)
    made = kinked(generator)
    assert gradcheck(function_with(made.program, made.element(generator)), made.program.tensor(), seed=number)


@pytest.mark.parametrize("number", range(1000, 1000 + FEW))
def test_random_wrong_elements_are_refused(number: int) -> None:
    made, _, element = wrong(Random(number))
    with pytest.raises(GradcheckError):
        gradcheck(function_with(made.program, element), made.program.tensor(), seed=number)


def test_rows_of_the_table_are_judged_rightly() -> None:
    underived = ("aminmax",) if torch.__version__ < "2.13" else ()  # what the installed torch has no derivative of
    for spot in [each for each in spots() if not each.name.startswith(underived)][::12]:
        with subgrad.use("min-norm"):
            assert gradcheck(spot.function, spot.given), spot.name
        for how, element in spot.wrong(torch.Generator().manual_seed(0)):
            assert not gradcheck(spot.planted(element), spot.given, raise_exception=False), f"{spot.name}: {how}"
