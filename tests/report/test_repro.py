"""Issue reports, and the programs in them: run here, and in a process that knows only torch."""

from __future__ import annotations

import json
import re
from functools import cache

import pytest
import torch
from fresh import run_fresh

import subgrad
from subgrad.cli import main
from subgrad.report.repro import RULES, SPELLINGS, report, reproducer
from subgrad.survey import Finding, Place, places

EVERYWHERE = list(places())
CODE = re.compile(r"```python\n(.*?)```\n\nprints\n\n```text\n(.*?)```\n\ninstead of\n\n```text\n(.*?)```", re.DOTALL)


def broken(op: str) -> list[tuple[Place, Finding]]:
    """The places of an overload where the installed torch breaks its rule."""
    measured = [(place, place.finding("torch")) for place in EVERYWHERE if place.kink.op == op]
    return [each for each in measured if each[1].keeps_rule is False]


@cache
def reported(op: str) -> str:
    return report(broken(op))


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["survey", "--repro", *arguments]) == 0
    return capsys.readouterr().out


# Reverse mode, no user's function, forward mode, a negative cotangent, a differentiable point.
OVERLOADS = ("max.dim", "smooth_l1_loss", "_prelu_kernel", "segment_reduce", "softshrink")


RUN = """
import contextlib, io, json, sys

printed = {}
for code in json.loads(sys.argv[1]):
    with contextlib.redirect_stdout(io.StringIO()) as output:
        exec(code, {})
    printed[code] = output.getvalue()
assert "subgrad" not in sys.modules
print(json.dumps(printed))
"""


@pytest.fixture(scope="module")
def alone() -> dict[str, str]:
    """What the programs of all reports print in a process that has never heard of us."""
    programs = [code for op in OVERLOADS for code, _, _ in CODE.findall(reported(op))]
    done = run_fresh(RUN, json.dumps(programs))
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("op", OVERLOADS)
class TestReport:
    def test_has_a_title_and_says_what_was_expected_and_with_which_versions(self, op: str) -> None:
        headings = re.findall(r"^#+ .*", reported(op), re.MULTILINE)
        assert headings[0].endswith(f"the gradient is not the documented one (`aten::{op}`)")
        assert headings[1:] == ["## Expected", "## Code", "## Versions"]
        assert f"torch {torch.__version__}, Python " in reported(op)

    def test_quotes_the_rules_that_it_names(self, op: str) -> None:
        quoted = set(re.findall(r"^> (\d)\. ", reported(op), re.MULTILINE))
        named = set(re.findall(r": rule (\d)", reported(op)))
        assert quoted == named
        assert all(RULES[int(rule)] in reported(op) for rule in named)

    def test_shows_programs_that_print_what_it_says_without_us(self, op: str, alone: dict[str, str]) -> None:
        programs = CODE.findall(reported(op))
        assert len(programs) == len(broken(op))
        for code, printed, wanted in programs:
            assert alone[code] == printed != wanted


def test_a_report_says_where_the_rule_leaves_the_choice_open() -> None:
    assert "read to the letter, rule 4 leaves the choice open" in reported("elu")
    assert "neither convex nor concave nearby" in reported("renorm")
    assert "is not the one of minimum norm" in reported("renorm").splitlines()[0]


@pytest.mark.parametrize("place", [place for place in EVERYWHERE if place.kink.op in SPELLINGS], ids=str)
def test_a_program_in_the_users_spelling_finds_what_the_survey_measured(place: Place) -> None:
    finding = place.finding("torch")
    if finding.documented is None:
        pytest.skip("a jump, where there is no rule")
    assert reproducer(place, finding).is_as_expected() == finding.keeps_rule


def test_a_program_is_plain_torch_whatever_is_in_force() -> None:
    (found,) = broken("max.dim")
    with subgrad.use("min-norm"):
        assert CODE.findall(report([found])) == CODE.findall(reported("max.dim"))


class TestCommand:
    def test_prints_a_report_for_each_overload_that_breaks_the_rule(self, capsys: pytest.CaptureFixture[str]) -> None:
        printed = said(capsys, "sort")
        assert re.findall(r"^# .*\(`aten::(.*)`\)$", printed, re.MULTILINE) == ["sort", "sort.stable"]

    @pytest.mark.parametrize("name", ["max.dim", "aten::max.dim"])
    def test_takes_an_overload(self, name: str, capsys: pytest.CaptureFixture[str]) -> None:
        assert said(capsys, name) == reported("max.dim") + "\n"

    def test_says_that_the_rule_is_kept(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert said(capsys, "relu") == f"relu: torch {torch.__version__} keeps its documented rule at every kink.\n"

    def test_says_that_a_jump_has_no_rule(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert said(capsys, "floor").startswith("floor: no rule to break.")

    def test_reports_ties_once_whichever_arguments_are_constant(self, capsys: pytest.CaptureFixture[str]) -> None:
        printed = said(capsys, "clamp.Tensor")
        assert printed.count("```python") == len({finding.place for _, finding in broken("clamp.Tensor")})

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["--repro", "rleu"], "argument --repro: unknown operator 'rleu'. Did you mean 'relu'? Known: relu, abs,"),
            (["--repro", "relu", "--json"], "argument --json: not allowed with argument --repro"),
        ],
        ids=["unknown operator", "two forms"],
    )
    def test_refuses_with_one_clear_message(
        self, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        with pytest.raises(SystemExit) as refused:
            main(["survey", *arguments])
        printed = capsys.readouterr()
        assert (refused.value.code, printed.out) == (2, "")
        assert f"subgrad survey: error: {message}" in printed.err
