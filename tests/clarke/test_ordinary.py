"""Programs as people write them, at their kinks: none comes out wrong, nearly none is refused, none dies.

They are held against their own values nearby: quotients along the direction that decided, and across it, in float64.
"""

from __future__ import annotations

import pytest

from clarke.ordinary import ENTRIES, Entry
from clarke.ordinary.judge import Outcome, is_smooth_by_values, judge

MOST_REFUSED = 2
KINDS = {"losses", "geometry", "sorting", "physics", "distributions", "networks", "idioms"}
_outcomes: dict[str, Outcome] = {}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_an_ordinary_program_is_right_or_says_why_not(entry: Entry) -> None:
    outcome, said = judge(entry)
    _outcomes[entry.name] = outcome
    assert outcome in (Outcome.RIGHT, Outcome.REFUSED), said


def test_at_most_two_ordinary_programs_are_refused() -> None:
    missing = [entry for entry in ENTRIES if entry.name not in _outcomes]
    refused = [name for name, outcome in _outcomes.items() if outcome is Outcome.REFUSED]
    refused += [entry.name for entry in missing if judge(entry)[0] is Outcome.REFUSED]
    assert len(refused) <= MOST_REFUSED, refused


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_an_entry_says_truly_whether_its_program_is_differentiable(entry: Entry) -> None:
    assert is_smooth_by_values(entry) == entry.smooth


def test_there_are_sixty_of_all_kinds() -> None:
    names = [entry.name for entry in ENTRIES]
    assert len(set(names)) == len(names) >= 60
    assert {entry.kind for entry in ENTRIES} == KINDS
