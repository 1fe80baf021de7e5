"""The gate as a pipeline meets it: exit codes, one line that says why, a baseline that survives edits, SARIF."""

from __future__ import annotations

import json
import linecache
import math
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

import jsonschema
import pydantic
import pytest
from fresh import run_module
from pydantic_sarif.model import StaticAnalysisResultsFormatSarifVersion210JsonSchema as Sarif

from subgrad.cli import main

MODEL = """
import torch

COTANGENT = torch.tensor([1.0, -2.0, 4.0])


def bounded(weight):
    return weight.clamp(min=0)


def loss(weight):
    return ((3 * bounded(weight) - weight) * COTANGENT).sum()
"""
TRAIN = """
import sys

import torch
from model import *

weight = torch.zeros(3, requires_grad=True)
optimizer = torch.optim.SGD([weight], lr=0.0)
for step in range(3):
    optimizer.zero_grad()
    loss(weight).backward()
    optimizer.step()
if sys.argv[1:]:
    sys.exit(int(sys.argv[1]) if sys.argv[1].isdecimal() else sys.argv[1])
"""
BACKWARD = 1 + TRAIN.splitlines().index("    loss(weight).backward()")
CLAMP = 1 + MODEL.splitlines().index("    return weight.clamp(min=0)")
# At 0 the clamp passes the gradient in torch 2.13 and not in 2.14: 2 and -1, times the cotangent.
SIZE = 3 / 2
QUIET = ["--html", os.devnull]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with a script, in which commands are run in this process: what they set is set back."""
    (tmp_path / "model.py").write_text(MODEL)
    (tmp_path / "train.py").write_text(TRAIN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", sys.argv)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    monkeypatch.setitem(sys.modules, "model", None)  # set back to what it is: not there
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # edits within one second would not be seen
    monkeypatch.delenv("GITHUB_WORKSPACE", raising=False)
    return tmp_path


def audit(*options: str) -> Any:
    """The exit code of ``subgrad audit``, of the script as it is now."""
    sys.modules.pop("model", None)
    linecache.clearcache()
    try:
        return main(["audit", "--html", "audit.html", *options])
    except SystemExit as stopped:
        return stopped.code


def last_line(capsys: pytest.CaptureFixture[str]) -> str:
    return capsys.readouterr().err.strip().splitlines()[-1]


@pytest.mark.usefixtures("folder")
def test_a_change_fails_with_one_line_that_says_where_and_how_much(capsys: pytest.CaptureFixture[str]) -> None:
    assert audit("--fail-on-change", "train.py") == 3
    assert last_line(capsys) == (
        f"subgrad: exit code 3: model.py:{CLAMP}: `clamp`: going from torch-2.13 to torch-2.14 changes 1 of 1 "
        "gradient, by 150.0% of its norm, 3 entries change sign."
    )


def test_one_entry_that_changes_its_sign_is_counted_as_one(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = (folder / "train.py").read_text()
    (folder / "train.py").write_text(script.replace("torch.zeros(3, ", "torch.tensor([0.0, 1.0, -1.0], "))
    assert audit("--fail-on-change", "train.py") == 3
    assert last_line(capsys).endswith("of its norm, 1 entry changes sign.")


def test_the_process_ends_with_that_exit_code(folder: Path) -> None:
    done = run_module("subgrad", "audit", "--fail-on-change", "train.py", "7", cwd=folder)
    assert (done.returncode, "subgrad: exit code 3: " in done.stderr) == (3, True)


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(("given", "code"), [((), 0), (("0",), 0), (("7",), 7), (("mine",), "mine")])
def test_where_nothing_fails_the_scripts_own_exit_code_stays(given: tuple[str, ...], code: Any) -> None:
    assert audit("--fail-on-change", "--compare", "torch-2.13", "pass-through", "train.py", *given) == code


@pytest.mark.usefixtures("folder")
def test_what_the_script_would_have_said_is_said_before_it_fails(capsys: pytest.CaptureFixture[str]) -> None:
    assert audit("--fail-on-change", "train.py", "mine") == 3
    assert "\nmine\n" in capsys.readouterr().err


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(("tolerance", "code"), [(0, 3), (math.nextafter(SIZE, 0), 3), (SIZE, 0), (2, 0)])
def test_a_change_up_to_the_tolerance_passes(tolerance: float, code: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert audit("--fail-on-change", "--tolerance", repr(tolerance), "train.py") == code
    said = "subgrad: passed: gradients depend on no new line (1 within the tolerance), in 3 compared of 3 steps."
    assert (last_line(capsys) == said) == (code == 0)


def test_a_change_from_zero_is_within_no_tolerance(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "model.py").write_text(MODEL.replace("3 * bounded(weight) - weight", "bounded(weight)"))
    assert audit("--fail-on-change", "--compare", "torch-2.14", "torch-2.13", "--tolerance", "1e9", "train.py") == 3
    assert "by 100.0% of their norm" not in (line := last_line(capsys))
    assert "from 0 or not finite" in line


IN_A_THREAD = """    thread = Thread(target=lambda: loss(weight).backward())
    thread.start()
    thread.join()"""
ELSEWHERE = f"from threading import Thread\n{TRAIN.replace('    loss(weight).backward()', IN_A_THREAD)}"


@pytest.mark.parametrize("script", ["print(1)", ELSEWHERE], ids=["none", "elsewhere"])
def test_a_gate_that_has_compared_nothing_does_not_pass(
    folder: Path, script: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "train.py").write_text(script)
    assert audit("--fail-on-change", "train.py") == 3
    assert "subgrad: exit code 3: No gradients were compared under torch-2.13 and torch-2.14" in last_line(capsys)
    assert audit("--write-baseline", "kinks.json", "train.py") == 3
    assert not (folder / "kinks.json").exists()


def test_a_script_that_crashes_before_ends_as_it_does(folder: Path) -> None:
    (folder / "train.py").write_text("1 / 0")
    assert audit("--fail-on-change", "train.py") == 1
    (folder / "train.py").write_text(f"{TRAIN}\n1 / 0")
    assert audit("--fail-on-change", "train.py") == 3


def test_gradients_from_torch_autograd_grad_count(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    called = TRAIN.replace("loss(weight).backward()", "weight.grad = torch.autograd.grad(loss(weight), weight)[0]")
    (folder / "train.py").write_text(called)
    assert audit("--fail-on-change", "train.py") == 3
    assert f"model.py:{CLAMP}: `clamp`" in last_line(capsys)


# The baseline.


@pytest.fixture
def baseline(folder: Path) -> Path:
    assert audit("--write-baseline", "kinks.json", "train.py") == 0
    return folder / "kinks.json"


def test_a_baseline_is_told_by_text_and_read_by_people(baseline: Path) -> None:
    assert json.loads(baseline.read_text()) == {
        "format": "subgrad.baseline/1",
        "known": [
            {
                "file": "model.py",
                "function": "bounded",
                "operator": "clamp",
                "source": "return weight.clamp(min=0)",
                "before": "torch-2.13",
                "after": "torch-2.14",
                "lines": 1,
            }
        ],
    }
    before = baseline.read_text()
    assert audit("--write-baseline", "kinks.json", "train.py") == 0
    assert baseline.read_text() == before


def test_known_lines_pass_also_where_edits_have_moved_them(
    folder: Path, baseline: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert audit("--baseline", "kinks.json", "train.py") == 0
    assert last_line(capsys) == "subgrad: passed: gradients depend on no new line (1 known), in 3 compared of 3 steps."
    moved = MODEL.replace("\ndef bounded", "\n\nOTHERS = 1\n\n\ndef another():\n    return OTHERS\n\n\ndef bounded")
    indented = moved.replace("    return weight", "    if True:\n        return  weight")
    (folder / "model.py").write_text(indented)
    (folder / "elsewhere").mkdir()
    os.chdir(folder / "elsewhere")  # files are named from where the baseline lies
    assert audit("--baseline", "../kinks.json", "../train.py") == 0


RETURNS = "    return weight.clamp(min=0)"
NEW_LINES = {
    "another text": (RETURNS, "    return weight.clamp(min=0.0)", 8),
    "another function": (
        "def bounded(weight)",
        "bounded = lambda weight: clipped(weight)\n\n\ndef clipped(weight)",
        11,
    ),
    "another operator": ("(weight) - weight)", "(weight) - weight.clamp_min(0))", 12),
    "the same text once more": (RETURNS, f"    if next(CALLS) % 2:\n    {RETURNS}\n{RETURNS}", 10),
}


@pytest.mark.parametrize("name", NEW_LINES)
def test_a_new_line_fails_and_it_alone_is_named(
    folder: Path, baseline: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before, after, line = NEW_LINES[name]
    (folder / "model.py").write_text(
        f"{MODEL.replace(before, after)}\n\nfrom itertools import count\nCALLS = count()\n"
    )
    assert audit("--baseline", "kinks.json", "--github", "train.py") == 3
    said = capsys.readouterr()
    assert said.err.strip().splitlines()[-1].startswith(f"subgrad: exit code 3: model.py:{line}: `clamp")
    assert len(re.findall("^::warning", said.out, re.MULTILINE)) == 1


def test_a_new_line_within_the_tolerance_passes_beside_a_known_one(folder: Path, baseline: Path) -> None:
    """The known line changes gradients by 3/2, the new one by a thousandth of 1/2."""
    (folder / "model.py").write_text(MODEL.replace("* COTANGENT).sum()", "* COTANGENT).sum() + small(weight)") + SMALL)
    assert audit("--baseline", "kinks.json", "train.py") == 3
    assert audit("--baseline", "kinks.json", "--tolerance", "0.01", "train.py") == 0
    assert audit("--baseline", "kinks.json", "--tolerance", "0.0001", "train.py") == 3


SMALL = "\n\ndef small(weight):\n    return 0.001 * (weight.clamp_min(0) * COTANGENT).sum()\n"


def test_another_pair_of_conventions_is_another_dependence(baseline: Path) -> None:
    assert audit("--baseline", "kinks.json", "--compare", "torch-2.13", "min-norm", "train.py") == 3


# Gradients that are not finite.

# The gradient of the root is infinite at 0, and so is what the optimizer is given in the first step.
ROOT = TRAIN.replace("loss(weight)", "(loss(weight + 1) + weight.sqrt().sum() * 1e-3)").replace("lr=0.0", "lr=0.1")
STEP = 1 + ROOT.splitlines().index("    optimizer.step()")


@pytest.mark.parametrize("others", [[], ["--fail-on-change"]])
def test_a_gradient_that_is_not_finite_fails(
    folder: Path, others: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "train.py").write_text(ROOT)
    assert audit("--fail-on-nonfinite", *others, "--github", "--sarif", "subgrad.sarif", "train.py") == 3
    said = capsys.readouterr()
    assert said.err.strip().splitlines()[-1] == (
        f"subgrad: exit code 3: train.py:{STEP}: `SGD` is given gradients that are not finite, in step 1 first: "
        "of 1 of 1 parameter, of shape [3]."
    )
    assert f"::warning file=train.py,line={STEP},title=subgrad::`SGD` is given" in said.out
    Sarif.model_validate(written(folder))
    assert [each["ruleId"] for each in written(folder)["runs"][0]["results"]] == ["gradient-not-finite"]


@pytest.mark.usefixtures("folder")
def test_where_gradients_are_finite_both_checks_say_what_they_looked_at(capsys: pytest.CaptureFixture[str]) -> None:
    assert audit("--fail-on-nonfinite", "train.py") == 0
    assert last_line(capsys) == "subgrad: passed: gradients are finite in 3 steps."
    assert audit("--fail-on-nonfinite", "--fail-on-change", "--compare", "left", "left", "train.py") == 0
    both = "gradients are finite in 3 steps; gradients depend on no line, in 3 compared of 3 steps"
    assert last_line(capsys) == f"subgrad: passed: {both}."


SCALED = """
import torch

weight = torch.zeros(3, requires_grad=True)
optimizer = torch.optim.SGD([weight], lr=0.1, fused=FUSED)
scaler = torch.amp.GradScaler("cpu")
for step in range(3):
    optimizer.zero_grad()
    root = (weight if step == 0 else weight + 1).sqrt()
    scaler.scale(root.sum()).backward()
    scaler.step(optimizer)
    scaler.update()
"""


@pytest.mark.parametrize("fused", [False, True])
def test_a_step_that_a_gradient_scaler_skips_is_none(
    folder: Path, fused: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "train.py").write_text(f"FUSED = {fused}\n{SCALED}")
    assert audit("--fail-on-nonfinite", "train.py") == 0
    assert last_line(capsys) == "subgrad: passed: gradients are finite in 2 steps."


def test_a_gate_that_no_optimizer_reaches_does_not_pass(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "train.py").write_text(TRAIN.replace("    optimizer.step()", "    pass"))
    assert audit("--fail-on-nonfinite", "train.py") == 3
    assert last_line(capsys).endswith("no optimizer has taken a step, so no gradient was looked at.")


# What others read.


@pytest.fixture(scope="session")
def schema() -> Any:
    """The schema of SARIF 2.1.0, which a package on npm brings along."""
    folder = Path(__file__).parents[2] / "build" / "sarif"
    found = folder / "package/lib/schemas/sarif-2.1.0-rtm.5.json"
    if not found.exists():
        folder.mkdir(parents=True, exist_ok=True)
        fetch = "npm pack --silent @microsoft/jest-sarif@1.0.0-beta.0 && tar xzf *.tgz"
        if subprocess.run(["sh", "-c", fetch], cwd=folder, capture_output=True).returncode:
            pytest.skip("needs npm, for the schema of SARIF")
    return json.loads(found.read_text())


def written(folder: Path) -> Any:
    return json.loads((folder / "subgrad.sarif").read_text())


def test_sarif_names_the_line_and_keeps_to_the_model_of_others(folder: Path) -> None:
    assert audit("--fail-on-change", "--sarif", "subgrad.sarif", "train.py") == 3
    log = Sarif.model_validate(written(folder))
    (run,) = log.runs
    (result,) = run.results or []
    assert run.tool.driver.name == "subgrad"
    assert (result.ruleId, result.baselineState) == ("gradient-depends-on-convention", None)
    place = written(folder)["runs"][0]["results"][0]["locations"][0]["physicalLocation"]
    assert place == {
        "artifactLocation": {"uri": "model.py", "uriBaseId": "%SRCROOT%"},
        "region": {"startLine": CLAMP, "snippet": {"text": "return weight.clamp(min=0)"}},
    }
    root = written(folder)["runs"][0]["originalUriBaseIds"]["%SRCROOT%"]["uri"]
    assert Path(unquote(urlparse(root).path)) == folder
    assert "150.0%" in (result.message.text or "")


@pytest.mark.parametrize(
    "options", [["--fail-on-change"], ["--baseline", "kinks.json"], ["--compare", "left", "right"]]
)
def test_sarif_is_valid(baseline: Path, schema: Any, options: list[str]) -> None:
    (baseline.parent / "model.py").write_text(MODEL + SMALL)  # nothing that is called
    audit(*options, "--sarif", "subgrad.sarif", "train.py")
    log = written(baseline.parent)
    jsonschema.validate(log, schema)
    assert log["runs"][0]["results"]
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**log, "runs": [{**log["runs"][0], "tool": {}}]}, schema)
    with pytest.raises(pydantic.ValidationError):
        Sarif.model_validate({**log, "runs": [{**log["runs"][0], "tool": {}}]})


def test_sarif_tells_new_lines_from_known_ones_by_what_moving_them_does_not_change(
    folder: Path, baseline: Path
) -> None:
    (folder / "model.py").write_text(MODEL.replace("* COTANGENT).sum()", "* COTANGENT).sum() + small(weight)") + SMALL)
    seen = {}
    for edit in ("", "\n\n# moved\n"):
        (folder / "model.py").write_text(edit + (folder / "model.py").read_text())
        audit("--baseline", "kinks.json", "--sarif", "subgrad.sarif", "train.py")
        results = written(folder)["runs"][0]["results"]
        seen[edit] = {
            each["partialFingerprints"]["subgrad/v1"]: (each["baselineState"], each["level"]) for each in results
        }
    assert seen[""] == seen["\n\n# moved\n"]
    assert sorted(seen[""].values()) == [("new", "warning"), ("unchanged", "note")]


# What GitHub's runner takes for a command.
COMMAND = re.compile(r"::(?P<kind>warning|notice) (?P<properties>[^\n]*?)::(?P<message>[^\n]*)")


def test_an_annotation_is_at_the_line_of_the_repository(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    odd = folder / "odd, 50%:names"
    odd.mkdir()
    for name in ("model.py", "train.py"):
        (folder / name).rename(odd / name)
    audit("--fail-on-change", "--github", f"{odd.name}/train.py")
    (found,) = map(COMMAND.fullmatch, capsys.readouterr().out.splitlines())
    assert found is not None
    properties = dict(each.split("=") for each in found["properties"].split(","))
    assert properties == {"file": "odd%2C 50%25%3Anames/model.py", "line": str(CLAMP), "title": "subgrad"}
    assert found["message"].startswith("`clamp`: going from torch-2.13 to torch-2.14 changes")
    assert "150.0%25 of its norm" in found["message"]


@pytest.mark.parametrize("where", ["site-packages", "outside"])
def test_a_line_that_is_not_of_the_repository_is_shown_where_backward_is_called(
    folder: Path, where: str, tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    outside = tmp_path_factory.mktemp("outside")
    elsewhere = folder / ".venv/lib/site-packages" if where == "site-packages" else outside
    elsewhere.mkdir(parents=True, exist_ok=True)
    (folder / "model.py").rename(elsewhere / "model.py")
    (folder / "train.py").write_text(TRAIN.replace("import sys", f"import sys; sys.path.append({str(elsewhere)!r})", 1))
    audit("--fail-on-change", "--github", "--sarif", "subgrad.sarif", "--write-baseline", "kinks.json", "train.py")
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("::")]
    assert line.startswith(
        f"::warning file=train.py,line={BACKWARD},title=subgrad::{elsewhere}/model.py:{CLAMP}: `clamp`"
    )
    (result,) = written(folder)["runs"][0]["results"]
    assert result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "train.py"
    other = result["relatedLocations"][0]["physicalLocation"]
    assert (urlparse(other["artifactLocation"]["uri"]).path, other["region"]["startLine"]) == (
        str(elsewhere / "model.py"),
        CLAMP,
    )
    (known,) = json.loads((folder / "kinks.json").read_text())["known"]
    assert known["file"] == (
        "model.py" if where == "site-packages" else os.path.relpath(elsewhere / "model.py", folder)
    )


def test_files_are_named_from_the_workspace(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GITHUB_WORKSPACE", str(folder.parent))
    audit("--fail-on-change", "--github", "train.py")
    assert f"file={folder.name}/model.py,line={CLAMP}," in capsys.readouterr().out


# Ranks, and what cannot be.


def test_ranks_are_judged_together(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    for rank in "01":
        monkeypatch.setenv("RANK", rank)
        compared = ["--compare", "torch-2.13", "torch-2.14" if rank == "1" else "pass-through"]
        assert audit(*compared, "--every", "1", "--compare-every", "1", "--json", "audit.json", "train.py") == 0
    monkeypatch.delenv("WORLD_SIZE")
    records = ["audit.rank0.json", "audit.rank1.json"]
    assert main(["report", "--fail-on-change", "--write-baseline", "kinks.json", *records]) == 3
    assert f"exit code 3: model.py:{CLAMP}: `clamp`" in last_line(capsys)
    assert main(["report", "--baseline", "kinks.json", *records]) == 0
    assert main(["report", "--fail-on-change", records[0]]) == 0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("--baseline none.json", "can't open 'none.json': No such file or directory. Write it first, with "),
        ("--baseline train.py", "'train.py' is no baseline that subgrad wrote"),
        ("--fail-on-change --tolerance -1", "'-1' is no number from 0 on, as 0.01 for one percent"),
        ("--fail-on-change --tolerance nan", "'nan' is no number from 0 on"),
        ("--tolerance 0.1", "--tolerance is how much gradients may change: add --fail-on-change or --baseline FILE"),
        ("--no-compare --sarif out.sarif", "--sarif shows lines on which gradients depend: add --fail-on-change"),
        ("--no-compare --github", "--github shows lines on which gradients depend: add --fail-on-change"),
        ("--fail-on-change --sarif none/such.sarif", "cannot be written"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_said_before_anything_runs(
    folder: Path, options: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert audit(*shlex.split(options), "train.py") == 2
    assert said in last_line(capsys)
    assert not (folder / "audit.html").exists()
