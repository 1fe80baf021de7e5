"""The command line as users meet it: every command here is a process of its own, if not always a new interpreter."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import pytest
import torch
from fresh import run_fresh, run_module

import subgrad
import subgrad.survey
from subgrad.cli import main
from subgrad.conventions import NAMES
from subgrad.survey import Finding

Done = subprocess.CompletedProcess[str]


def python(*arguments: str, cwd: Path | None = None) -> Done:
    environment = {**os.environ, "PYTHONPATH": str(Path(subgrad.__file__).parents[1])}
    return subprocess.run(
        [sys.executable, *arguments], cwd=cwd, env=environment, capture_output=True, text=True, timeout=300
    )


def command(*arguments: str, cwd: Path | None = None) -> Done:
    return run_module("subgrad", *arguments, cwd=cwd or Path.cwd())


def refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


@pytest.fixture(scope="module")
def findings() -> list[dict[str, Any]]:
    done = command("survey", "--json")
    assert done.returncode == 0
    return json.loads(done.stdout, parse_constant=refuse)


@pytest.fixture(scope="module")
def survey_text() -> str:
    done = command("survey")
    assert done.returncode == 0
    return done.stdout


class TestSurvey:
    def test_as_json_gives_every_finding_all_its_keys(self, findings: list[dict[str, Any]]) -> None:
        assert {tuple(finding) for finding in findings} == {tuple(field.name for field in fields(Finding))}

    def test_as_json_finds_something_at_every_operator(self, findings: list[dict[str, Any]]) -> None:
        assert {finding["operator"] for finding in findings} == set(subgrad.kinks.names)

    def test_as_json_spells_out_what_json_cannot_hold(self, findings: list[dict[str, Any]]) -> None:
        (hypot,) = (finding for finding in findings if finding["operator"] == "hypot")
        assert (hypot["reverse"], hypot["chosen"]) == ({"self": "nan", "other": "nan"}, {"self": 0.0, "other": 0.0})

    def test_as_text_names_every_operator(self, survey_text: str) -> None:
        assert set(subgrad.kinks.names) <= set(re.findall(r"\w+", survey_text))

    def test_as_text_fits_80_columns(self, survey_text: str) -> None:
        assert max(map(len, survey_text.splitlines())) <= 80

    def test_as_text_begins_with_what_breaks_the_rule(self, survey_text: str, findings: list[dict[str, Any]]) -> None:
        broken = [finding for finding in findings if finding["keeps_rule"] is False]
        operators = {finding["operator"] for finding in broken}
        title = f"Breaks its documented rule ({len(broken)} places, {len(operators)} operators)"
        assert survey_text.startswith(title)
        section = survey_text.partition("\n\n")[0].splitlines()
        assert [line for line in section[1:] if not line.startswith(" ")] == list(
            dict.fromkeys(finding["operator"] for finding in broken)
        )

    def test_as_text_counts_what_the_json_holds(self, survey_text: str, findings: list[dict[str, Any]]) -> None:
        said = " ".join(survey_text.rpartition("\n\n")[2].split())
        kept = Counter(finding["keeps_rule"] for finding in findings)
        modes = (("chosen", "reverse"), ("chosen_forward", "forward"))
        changed = sum(any(finding[ours] != finding[torchs] for ours, torchs in modes) for finding in findings)
        version = torch.__version__.partition("+")[0]
        assert said == (
            f"{len(findings)} places: torch {version} keeps its documented rule at {kept[True]} "
            f"and breaks it at {kept[False]}; {kept[None]} are jumps or infinite slopes, where there is no rule. "
            f"min-norm changes what torch returns at {changed}."
        )


SHORT = """
import os
import sys
import subgrad.survey

os.dup2(os.open(sys.argv[1], os.O_WRONLY | os.O_NOCTTY), 2)

first = next(subgrad.survey.places())
subgrad.survey.places = lambda: [first]

from subgrad.cli import main

sys.exit(main(["survey"]))
"""


def on_a_terminal() -> tuple[str, str]:
    """What a survey of one place writes to a pipe, and to the terminal where its errors go."""
    ours, its = pty.openpty()
    output = run_fresh(SHORT, os.ttyname(its), TERM="xterm").stdout
    os.close(its)
    shown = b""
    with contextlib.suppress(OSError):  # the end of what a terminal has to say
        while part := os.read(ours, 4096):
            shown += part
    os.close(ours)
    return output, shown.decode()


class TestProgress:
    def test_is_shown_on_a_terminal(self) -> None:
        output, shown = on_a_terminal()
        assert ("measuring" in output, "measuring" in shown) == (False, True)

    @pytest.fixture(autouse=True)
    def one_place(self, monkeypatch: pytest.MonkeyPatch) -> None:
        first = next(subgrad.survey.places())
        monkeypatch.setattr(subgrad.survey, "places", lambda: [first])

    def test_is_not_shown_with_json(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
        assert main(["survey", "--json"]) == 0
        output, shown = capsys.readouterr()
        assert (len(json.loads(output)), shown) == (1, "")

    def test_is_not_shown_in_a_pipe(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["survey"]) == 0
        output, shown = capsys.readouterr()
        assert ("relu" in output, shown) == (True, "")


WATCHED = """
import json, pickle, sys, threading

import torch


class Point:
    def __init__(self, x):
        self.x = x


def slope(function):
    x, cotangent = torch.zeros(2, requires_grad=True), torch.tensor([3.0, -0.5])
    (gradient,) = torch.autograd.grad(function(x), x, cotangent)
    (slope,) = set((gradient / cotangent).tolist())
    return slope


in_thread = []
thread = threading.Thread(target=lambda: in_thread.append(slope(torch.relu)))
thread.start()
thread.join()
unpickled = pickle.loads(pickle.dumps(Point(3)))
print(json.dumps({
    "argv": sys.argv,
    "name": __name__,
    "file": __file__,
    "first path": sys.path[0],
    "unpickled": [type(unpickled) is Point, unpickled.x],
    "relu": slope(torch.relu),
    "relu in a thread": in_thread[0],
    "clamp": slope(lambda x: torch.clamp(x, min=0)),
    "maximum": slope(lambda x: torch.maximum(x, torch.zeros(2))),
}))
"""
ITS_ARGUMENTS = ("first", "--convention", "left", "-h", "--", "last")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where users stand, with the script in a folder of its own."""
    folder = tmp_path_factory.mktemp("cli")
    (folder / "inner").mkdir()
    (folder / "inner" / "watched.py").write_text(WATCHED)
    return folder


def seen(done: Done) -> dict[str, Any]:
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def plain(folder: Path) -> dict[str, Any]:
    return seen(python("inner/watched.py", *ITS_ARGUMENTS, cwd=folder))


@pytest.fixture(scope="module")
def right(folder: Path) -> dict[str, Any]:
    return seen(command("run", "--convention", "right", "inner/watched.py", *ITS_ARGUMENTS, cwd=folder))


@pytest.fixture(scope="module")
def mixed(folder: Path) -> dict[str, Any]:
    mixture = "min-norm,relu=1.0,clamp=pass-through"
    return seen(command("run", "--convention", mixture, "inner/watched.py", cwd=folder))


class TestRun:
    def test_gives_the_script_all_that_follows_it(self, right: dict[str, Any]) -> None:
        assert right["argv"] == ["inner/watched.py", *ITS_ARGUMENTS]

    def test_runs_the_script_as_main(self, right: dict[str, Any]) -> None:
        assert right["name"] == "__main__"

    def test_lets_the_script_import_its_neighbours(self, right: dict[str, Any], folder: Path) -> None:
        assert right["first path"] == str(folder / "inner")

    def test_lets_the_script_pickle_its_own_classes(self, right: dict[str, Any]) -> None:
        assert right["unpickled"] == [True, 3]

    @pytest.mark.parametrize("fact", ["argv", "name", "file", "first path", "unpickled"])
    def test_shows_the_script_what_python_shows_it(
        self, right: dict[str, Any], plain: dict[str, Any], fact: str
    ) -> None:
        assert right[fact] == plain[fact]

    def test_changes_the_gradient_of_the_unchanged_script(self, right: dict[str, Any], plain: dict[str, Any]) -> None:
        assert (plain["relu"], right["relu"]) == (0.0, 1.0)

    def test_reaches_the_threads_of_the_script(self, right: dict[str, Any], plain: dict[str, Any]) -> None:
        assert (plain["relu in a thread"], right["relu in a thread"]) == (0.0, 1.0)

    def test_takes_a_base_and_overrides_by_number_and_name(self, mixed: dict[str, Any]) -> None:
        assert [mixed["relu"], mixed["clamp"], mixed["maximum"]] == [1.0, 1.0, 0.0]


@dataclass(frozen=True)
class Ending:
    """How a script ended, under python and under ``subgrad run``."""

    expected: int
    plain: Done
    run: Done


ENDINGS = {
    "exit code": ("import sys\nsys.exit(3)\n", 3),
    "exit text": ("import sys\nsys.exit('the end')\n", 1),
    "exception": ("def fail(x):\n    return 1 / x\n\n\nfail(0)\n", 1),
    "syntax error": ("x = (1,\n", 1),
}


@pytest.fixture(scope="module", params=ENDINGS)
def ending(request: pytest.FixtureRequest, folder: Path) -> Ending:
    source, expected = ENDINGS[request.param]
    (folder / "ending.py").write_text(source)
    return Ending(expected, python("ending.py", cwd=folder), command("run", "ending.py", cwd=folder))


class TestRunEnds:
    def test_with_the_exit_code_of_the_script(self, ending: Ending) -> None:
        assert ending.run.returncode == ending.plain.returncode == ending.expected

    def test_with_the_words_that_python_says(self, ending: Ending) -> None:
        assert (ending.run.stdout, ending.run.stderr) == (ending.plain.stdout, ending.plain.stderr)

    def test_in_a_new_interpreter_as_well(self, folder: Path) -> None:
        source, expected = ENDINGS["exception"]
        (folder / "ending.py").write_text(source)
        plain, run = python("ending.py", cwd=folder), python("-m", "subgrad", "run", "ending.py", cwd=folder)
        assert (run.returncode, run.stdout, run.stderr) == (expected, plain.stdout, plain.stderr)


REFUSED = {
    "unknown convention": (
        ("--convention", "rihgt", "inner/watched.py"),
        "subgrad run: error: argument --convention: unknown convention 'rihgt'. Did you mean 'right'? "
        f"Known: {', '.join(NAMES)}.",
    ),
    "malformed override": (
        ("--convention", "min-norm,relu", "inner/watched.py"),
        "subgrad run: error: argument --convention: "
        "'relu': write OPERATOR=CHOICE, as in clamp=pass-through or relu=1.0",
    ),
    "missing script": (
        ("nowhere.py",),
        "subgrad run: can't open 'nowhere.py': No such file or directory",
    ),
}


@pytest.mark.parametrize(("arguments", "message"), REFUSED.values(), ids=REFUSED)
def test_run_refuses_with_one_clear_message(arguments: tuple[str, ...], message: str, folder: Path) -> None:
    done = command("run", *arguments, cwd=folder)
    said = [line for line in done.stderr.splitlines() if not re.match(r"usage: | ", line)]
    assert (done.returncode, done.stdout, said) == (2, "", [message])
