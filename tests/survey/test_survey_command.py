"""`subgrad survey` of some operators, of what is broken, of two conventions, and of real versions of torch."""

from __future__ import annotations

import builtins
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import subgrad
from subgrad.cli import main
from subgrad.kinks import KINKS
from subgrad.report.versions_text import versions
from subgrad.survey import Finding, places
from subgrad.survey.environments import NotMade, cache_folder, python
from subgrad.survey.versions import Measurement, measure

Captured = pytest.CaptureFixture[str]


def printed(capsys: Captured, *arguments: str, code: int = 0) -> str:
    assert main(["survey", *arguments]) == code
    return capsys.readouterr().out


def found(capsys: Captured, *arguments: str) -> list[dict[str, Any]]:
    return json.loads(printed(capsys, *arguments, "--json"))


class TestOperators:
    def test_are_surveyed_alone(self, capsys: Captured) -> None:
        assert {each["operator"] for each in found(capsys, "relu", "clip")} == {"relu", "clamp"}

    def test_may_be_overloads(self, capsys: Captured) -> None:
        assert {each["overload"] for each in found(capsys, "clamp.Tensor")} == {"aten::clamp.Tensor"}

    def test_are_shown_place_by_place_in_80_columns(self, capsys: Captured) -> None:
        lines = printed(capsys, "clamp", "max", "renorm").splitlines()
        assert max(map(len, lines)) <= 80
        assert "  self == min for min=0, max=6 in self" in lines
        assert "    [0, 1]: torch 0, as its rule asks" in lines or torch.__version__ < "2.14"

    def test_that_are_unknown_name_the_nearest(self, capsys: Captured) -> None:
        with pytest.raises(SystemExit) as ended:
            main(["survey", "reluu"])
        assert ended.value.code == 2
        assert "Did you mean 'relu'?" in capsys.readouterr().err


class TestBroken:
    def test_is_what_the_findings_say(self, capsys: Captured) -> None:
        operators = ("elu", "relu", "hypot", "maximum")
        broken = [each for each in found(capsys, *operators) if each["keeps_rule"] is False]
        assert broken
        assert found(capsys, *operators, "--broken") == broken

    def test_is_shown_with_what_the_rule_asks(self, capsys: Captured) -> None:
        shown = printed(capsys, "elu", "relu", "--broken")
        assert "torch 2, its rule asks 1, as min-norm takes" in shown
        assert "relu\n" not in shown.replace("elu\n", "", 1)

    def test_of_what_keeps_it_is_a_sentence(self, capsys: Captured) -> None:
        assert printed(capsys, "relu", "--broken").startswith("1 place: torch")


class TestDiff:
    def test_is_where_two_conventions_take_different_elements(self, capsys: Captured) -> None:
        measured = {}
        for convention in ("left", "mean"):
            each = found(capsys, "relu", "abs", "maximum", "--convention", convention)
            measured[convention] = [finding["chosen"] for finding in each]
        wanted = [pair for pair in zip(*measured.values(), strict=True) if pair[0] != pair[1]]
        changes = found(capsys, "relu", "abs", "maximum", "--diff", "left", "mean")
        assert [(change["before"], change["after"]) for change in changes] == wanted

    def test_of_versions_is_what_torch_changed(self, capsys: Captured) -> None:
        changes = found(capsys, "--diff", "torch-2.13", "torch-2.14")
        changed = {kink.op for kink in KINKS if isinstance(kink.torch, dict)}
        assert {change["overload"].removeprefix("aten::") for change in changes} == changed

    def test_is_shown_in_80_columns(self, capsys: Captured) -> None:
        lines = printed(capsys, "clamp", "fmax", "--diff", "torch-2.13", "torch-2.14").splitlines()
        assert max(map(len, lines)) <= 80
        assert "    [0, 1]: torch-2.13 1 -> torch-2.14 0" in lines
        assert "    simplex over self, other: torch-2.13 1, 0 -> torch-2.14 1/2, 1/2" in lines

    def test_of_equals_says_so(self, capsys: Captured) -> None:
        shown = printed(capsys, "relu", "--diff", "torch-2.13", "torch-2.14")
        assert shown == "torch-2.13 and torch-2.14 take the same elements at all of 1 place.\n"

    def test_takes_conventions_of_ones_own(self, capsys: Captured) -> None:
        (change,) = found(capsys, "relu", "--diff", "min-norm", "min-norm,relu=0.25")
        assert (change["before"], change["after"]) == ({"self": 0.0}, {"self": 0.25})

    def test_refuses_what_is_no_convention(self, capsys: Captured) -> None:
        with pytest.raises(SystemExit):
            main(["survey", "--diff", "torch-2.13", "torch-2.41"])
        assert "unknown convention 'torch-2.41'" in capsys.readouterr().err


def test_needs_no_rich(capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a terminal too: the same words, without colours."""
    imported = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name.partition(".")[0] == "rich":
            raise ModuleNotFoundError(name)
        return imported(name, *rest)

    plain = printed(capsys, "relu", "elu")
    monkeypatch.setattr(builtins, "__import__", without)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert printed(capsys, "relu", "elu") == plain


def test_forms_exclude_each_other(capsys: Captured) -> None:
    with pytest.raises(SystemExit):
        main(["survey", "--broken", "--diff", "left", "right"])
    with pytest.raises(SystemExit):
        main(["survey", "relu", "--repro", "relu"])
    assert "not allowed with" in capsys.readouterr().err


def test_findings_survive_json() -> None:
    for place in places():
        if place.kink.name in ("hypot", "relu", "sqrt", "max", "segment_reduce"):
            finding = place.finding()
            again = Finding.from_dict(json.loads(json.dumps(finding.to_dict())))
            assert again.to_dict() == finding.to_dict()
            assert repr(again.reverse) == repr(finding.reverse)


INSTALLED = torch.__version__.partition("+")[0]


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache with an environment that is there already: this one, by its interpreter."""
    monkeypatch.setenv("SUBGRAD_CACHE_DIR", str(tmp_path))
    folder = tmp_path / f"torch-{INSTALLED}-python{sys.version_info[0]}.{sys.version_info[1]}" / "bin"
    folder.mkdir(parents=True)
    python = folder / "python"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    return tmp_path


@pytest.mark.skipif(sys.platform == "win32", reason="a script of the shell stands for an interpreter")
class TestRealVersions:
    def test_are_measured_in_a_process_of_their_own(self, environment: Path, capsys: Captured) -> None:
        assert main(["survey", "--torch", INSTALLED, "clamp", "hypot", "--json"]) == 0
        shown = capsys.readouterr()
        (measured,) = json.loads(shown.out)
        assert (measured["version"], measured["failed"]) == (INSTALLED, None)
        assert shown.err == f"torch {INSTALLED}: measuring\n"
        here = [place.finding("torch").to_dict() for place in places() if place.kink.name in ("clamp", "hypot")]
        assert measured["findings"] == here

    def test_see_this_package_and_nothing_else_from_here(
        self, environment: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Whatever lies on the path here would hide the torch that is installed there."""
        (tmp_path / "here").mkdir()
        (tmp_path / "here" / "torch.py").write_text("raise ImportError('the torch of here')\n")
        monkeypatch.setenv("PYTHONPATH", str(tmp_path / "here"))
        found = measure(INSTALLED, ["relu"])
        assert found.failed is None
        assert [finding.operator for finding in found.findings] == ["relu"]

    def test_that_fail_are_said_and_the_others_shown(self, environment: Path, capsys: Captured) -> None:
        broken = environment / f"torch-2.11.9-python{sys.version_info[0]}.{sys.version_info[1]}" / "bin"
        broken.mkdir(parents=True)
        (broken / "python").write_text("#!/bin/sh\necho no such thing >&2\nexit 3\n")
        (broken / "python").chmod(0o755)
        assert main(["survey", "--torch", f"2.11.9,{INSTALLED}", "relu"]) == 1
        shown = capsys.readouterr()
        assert "subgrad survey: torch 2.11.9 was not measured: no such thing" in shown.err
        assert f"torch {INSTALLED}: 1 place, its documented rule is kept at 1" in shown.out

    def test_are_made_by_what_is_there_and_leave_nothing_by_half(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """An installer that fails, run for real."""
        monkeypatch.setenv("SUBGRAD_CACHE_DIR", str(tmp_path / "cache"))
        uv = tmp_path / "bin" / "uv"
        uv.parent.mkdir()
        uv.write_text('#!/bin/sh\necho "$@" >> "$0.log"\n[ "$1" = venv ] && exit 0\necho no such version >&2\nexit 1\n')
        uv.chmod(0o755)
        monkeypatch.setenv("PATH", f"{uv.parent}{os.pathsep}{os.environ['PATH']}")
        told: list[str] = []
        with pytest.raises(NotMade, match="no such version"):
            python("9.9.9", told.append)
        assert told == ["installing torch==9.9.9 with uv, once; it may be some gigabytes"]
        calls = (tmp_path / "bin" / "uv.log").read_text().splitlines()
        assert calls[0].startswith("venv --quiet --python ")
        assert calls[1].endswith("torch==9.9.9")
        assert list((tmp_path / "cache").iterdir()) == []


@pytest.mark.parametrize("version", ["foo", "2", "2.13; rm", "2.13,", "../2.13", "2.13+../x", "2.13.0 numpy"])
def test_what_is_no_version_is_refused(version: str, capsys: Captured) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["survey", "--torch", version])
    assert ended.value.code == 2
    assert "is no version of torch" in capsys.readouterr().err


def test_the_cache_is_the_users(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("SUBGRAD_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "subgrad" or sys.platform == "win32"


def test_versions_are_shown_beside_each_other() -> None:
    found = [place for place in places() if place.kink.op in ("clamp", "relu")]
    measured = []
    for version, convention in (("2.13.0", "torch-2.13"), ("2.14.1", "torch-2.14"), ("2.15.0", "torch-2.14")):
        with subgrad.use(convention):
            findings = tuple(place.finding(convention) for place in found)
        chosen = (
            Finding(**{**vars(each), "reverse": each.chosen, "forward": each.chosen_forward}) for each in findings
        )
        measured.append(Measurement(version, tuple(chosen)))
    lines = [line.text for line in versions([*measured, Measurement("9.9.9", failed="no such version")])]
    start = lines.index("  self == min for min=0, max=6 in self")
    assert lines[start + 1 : start + 3] == ["    2.13.0  1", "    2.14.1, 2.15.0  0"]
    assert "relu" not in lines
    assert any(line.startswith("The same under 2.13.0, 2.14.1, 2.15.0 at 1 of 8 places") for line in lines)
