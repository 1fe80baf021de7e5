"""Every example prints what it says it does; those that need environments of their own are run by hand."""

from __future__ import annotations

import ast
import runpy
import sys
import textwrap
from pathlib import Path

import pytest

import subgrad

EXAMPLES = Path(__file__).parents[1] / "examples"
BY_HAND = {"torchao_versions": "makes environments with two versions of torch"}
NEEDS = {"lightning_audit": "lightning"}


def stated(path: Path) -> str:
    """What stands under the line "prints" of an example's docstring."""
    said = ast.get_docstring(ast.parse(path.read_text()))
    assert said is not None
    _, found, printed = said.partition("\nprints\n")
    assert found, f"{path.name} does not say what it prints"
    return textwrap.dedent(printed).strip()


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_an_example_prints_what_it_says(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if path.with_suffix(".txt").exists():
        pytest.skip("takes long: what it prints is in a file beside it")
    expected = stated(path)
    if path.stem in BY_HAND:
        pytest.skip(BY_HAND[path.stem])
    if path.stem in NEEDS:
        pytest.importorskip(NEEDS[path.stem])
    monkeypatch.setattr(sys, "argv", [path.name])
    monkeypatch.chdir(tmp_path)
    try:
        runpy.run_path(str(path), run_name="__main__")
    finally:
        subgrad.set_default("torch")
    assert [line.rstrip() for line in capsys.readouterr().out.strip().splitlines()] == expected.splitlines()
