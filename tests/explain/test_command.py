"""`subgrad explain` as users meet it: what it prints, where, and with which exit code."""

from __future__ import annotations

from pathlib import Path

import pytest

from subgrad.cli import main

Captured = pytest.CaptureFixture[str]


def test_an_operator(capsys: Captured) -> None:
    assert main(["explain", "clamp"]) == 0
    printed = capsys.readouterr()
    assert printed.out.startswith("clamp: min(max(x, min), max). ")
    assert printed.err == ""


def test_an_expression_with_its_picture(capsys: Captured) -> None:
    assert main(["explain", "F.relu(x) - F.relu(-x)", "--at", "x=0"]) == 0
    printed = capsys.readouterr()
    assert "the expression's own" in printed.out
    assert "value, x from -1 to 1" in printed.out
    assert printed.err == ""


def test_why_two_expressions_differ_in_one_command(capsys: Captured) -> None:
    texts = ["((F.relu(x @ w1) @ w2 - 1)**2).sum()", "((torch.clamp(x @ w1, min=0) @ w2 - 1)**2).sum()"]
    at = ["x=[[3,2,1],[1,0,2],[4,1,2],[0,0,1]]", "w1=[[1,2],[0,1],[4,0]]", "w2=[[-1,1],[-2,3]]"]
    assert main(["explain", *texts, "--at", *at, "--wrt", "w1", "w2", "--dtype", "float32"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "w1[2,1] 1260 1298 -38" in told
    assert "entry [3,1] of torch.clamp(x @ w1, min=0)" in told


@pytest.mark.parametrize("form", ["png", "svg"])
@pytest.mark.parametrize("texts", [("x.abs()",), ("F.relu(x)", "torch.clamp(x, min=0)")])
def test_a_picture_is_written(texts: tuple[str, ...], form: str, tmp_path: Path, capsys: Captured) -> None:
    file = tmp_path / f"drawn.{form}"
    assert main(["explain", *texts, "--at", "x=0", "--radius", "0.5", "--picture", str(file)]) == 0
    content = file.read_bytes()
    assert content.startswith(b"\x89PNG") if form == "png" else b"<svg" in content
    assert capsys.readouterr().err == f"written: {file}\n"


def test_a_picture_of_infinite_slopes_is_written(tmp_path: Path) -> None:
    file = tmp_path / "drawn.svg"
    assert main(["explain", "x.sqrt() + x.log()", "--at", "x=0", "--picture", str(file)]) == 0
    assert b"<svg" in file.read_bytes()


REFUSED = {
    "an unknown operator": (["clampp"], "unknown operator 'clampp'. Did you mean 'clamp'?"),
    "an expression without a point": (["F.relu(x)"], "'x' is not known here"),
    "an unknown input": (["F.relu(z)", "--at", "x=0"], "'z' is not known here"),
    "a second expression": (["x", "x.data", "--at", "x=0"], ".data cannot be used here"),
    "a point": (["x", "--at", "x=a"], "A point holds numbers"),
}
WRONG = {
    "three subjects": (["x", "x", "x", "--at", "x=0"], "give one operator, or one or two expressions"),
    "an unknown wrt": (["x", "--at", "x=0", "--wrt", "y"], "'y' is not among what --at names: x"),
    "no picture": (["x", "--at", "x=0", "--picture", "a.txt"], "'a.txt' is no picture"),
    "a picture of an operator": (["clamp", "--picture", "a.png"], "of an expression, with --at"),
    "no radius": (["x", "--at", "x=0", "--radius", "-1"], "'-1' is no positive number"),
    "no dtype": (["x", "--at", "x=0", "--dtype", "int8"], "invalid choice: 'int8'"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refusals_are_one_message_and_exit_code_2(case: str, capsys: Captured) -> None:
    arguments, message = REFUSED[case]
    assert main(["explain", *arguments]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("subgrad explain: ")
    assert message in printed.err
    assert printed.err.count("subgrad explain:") == 1


@pytest.mark.parametrize("case", WRONG)
def test_wrong_options_are_refused_by_name(case: str, capsys: Captured, tmp_path: Path) -> None:
    arguments, message = WRONG[case]
    with pytest.raises(SystemExit) as ended:
        main(["explain", *arguments])
    assert ended.value.code == 2
    assert message in capsys.readouterr().err


def test_torch_does_not_warn_between_the_lines(capsys: Captured, recwarn: pytest.WarningsRecorder) -> None:
    assert main(["explain", "x.T.sum()", "--at", "x=[1, 2]"]) == 0
    assert not recwarn.list
    assert capsys.readouterr().err == ""
