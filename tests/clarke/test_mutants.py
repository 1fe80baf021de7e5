"""Wrong rules that are planted are of all kinds, still Python, and seen by the small programs that look for them."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
import torch

import subgrad
from clarke import battery
from clarke.mutants import FIRST, LATER, chosen
from clarke.mutants import RULES as FILES
from subgrad.clarke.rules.pointwise import Pointwise

RULES = Path(subgrad.__file__).parent / "clarke"
KINDS = {
    "branch dropped", "comparison", "constant", "factor", "leak", "mask", "refusal dropped", "side", "sign",
    "term dropped",
}  # fmt: skip


def test_mutants_are_of_all_kinds_and_files() -> None:
    mutants = chosen(RULES, 200)
    assert len({mutant.key for mutant in mutants}) == 200
    assert {mutant.kind for mutant in mutants} == KINDS
    assert len({mutant.file for mutant in mutants}) >= 12


def test_every_file_with_rules_has_mutants() -> None:
    folders = [path for name in ("rules", "functions") for path in (RULES / name).glob("*.py")]
    files = {path.relative_to(RULES).as_posix() for path in folders if path.name != "__init__.py"}
    assert files - {"rules/rule_table.py", "functions/not_differentiated.py"} == {*FILES, *LATER} - {"engine/duals.py"}


def test_the_choice_of_fewer_mutants_is_the_beginning_of_more() -> None:
    assert chosen(RULES, 20) == chosen(RULES, 200)[:20]
    assert {mutant.file for mutant in chosen(RULES, FIRST + 10)[FIRST:]} == set(LATER)


def test_a_mutant_changes_one_place_and_is_python() -> None:
    for mutant in chosen(RULES, 100, seed=1):
        source = (RULES / mutant.file).read_text()
        changed = mutant.applied(source)
        assert source[mutant.start : mutant.end] == mutant.old
        assert changed != source
        assert ast.dump(ast.parse(changed)) != ast.dump(ast.parse(source))


@pytest.fixture
def few_probes(monkeypatch: pytest.MonkeyPatch) -> None:
    few = [probe for probe in battery.probes() if probe.name.startswith(("larger ", "smaller ", "leaky_relu "))]
    monkeypatch.setattr(battery, "probes", lambda: iter(few))


@pytest.mark.usefixtures("few_probes")
def test_small_programs_see_no_change_where_there_is_none() -> None:
    assert not any(battery.changes(battery.record()).values())


@pytest.mark.usefixtures("few_probes")
def test_small_programs_see_a_tie_that_goes_to_the_other_side(monkeypatch: pytest.MonkeyPatch) -> None:
    before = battery.record()
    right = Pointwise.decide

    def wrong(self, call, at):
        met = right(self, call, at)
        for each in met or ():
            for weight in (each.weights or {}).values():
                weight.copy_(~weight if weight.dtype is torch.bool else 1 - weight)
        return met

    monkeypatch.setattr(Pointwise, "decide", wrong)
    found = battery.changes(before)
    assert found["wrong"] or found["refused"]
