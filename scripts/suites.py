"""Suites of others under the pytest plugin, and torchao's training at the gate: the tables of docs/ci.md.

Takes folders with their tests, checked out beforehand at the versions below:

    .venv/bin/python scripts/suites.py kornia=FOLDER torchvision=FOLDER torchao=FOLDER
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from shutil import copytree

from environments import ROOT, UV

PACKAGES = ("torch==2.15.0", "kornia==0.8.3", "torchvision==0.29.2", "torchao==0.18.0")
# What their tests need.
OTHERS = ("pytest", "pytest-timeout", "numpy", "scipy", "requests", "pillow", "onnx", "onnxruntime", "parameterized")
OTHERS += ("diffusers", "transformers<5.6", "setuptools", "expecttest", "tabulate", "rich")
COMPARED = "torch-2.13,torch-2.14"


@dataclass(frozen=True)
class Suite:
    """Tests of a package, and what of its sources they need besides: not the package, which is installed."""

    package: str
    tests: tuple[str, ...]
    needs: tuple[str, ...] = ()


SUITES = (
    Suite(
        "kornia",
        ("tests/color", "tests/enhance", "tests/losses", "tests/morphology"),
        ("conftest.py", "testing", "tests", "pyproject.toml"),
    ),
    Suite("torchvision", ("test/test_ops.py",), ("test",)),
    Suite("torchao", ("test/quantization/test_qat.py",), ("test",)),
)


def python() -> Path:
    """The interpreter of an environment with all of them, built if it is not there."""
    folder = ROOT / ".venv-suites"
    interpreter = folder / "bin" / "python"
    if not (folder / "ready").exists():
        subprocess.run([UV, "venv", "--quiet", "--allow-existing", "--python", sys.executable, folder], check=True)
        install = [UV, "pip", "install", "--quiet", "--python", interpreter]
        subprocess.run([*install, *PACKAGES, *OTHERS], check=True)
        subprocess.run([*install, "--no-deps", "--editable", ROOT], check=True)
        (folder / "ready").touch()
    return interpreter


ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "SUBGRAD_FRONT": "never"}


def outcomes(folder: Path, suite: Suite, *options: str) -> tuple[dict[str, str], float, str]:
    """Of every test, with the seconds of a core that pytest took, and what it printed."""
    written = folder / "outcomes.xml"
    command = [
        python(),
        "-m",
        "pytest",
        *suite.tests,
        "-q",
        "-p",
        "no:cacheprovider",
        f"--junitxml={written}",
        *options,
    ]
    before = os.times()
    done = subprocess.run(command, cwd=folder, env=ENVIRONMENT, capture_output=True, text=True)
    after = os.times()
    seconds = after.children_user + after.children_system - before.children_user - before.children_system
    cases = ElementTree.parse(written).iter("testcase")
    found = {f"{case.get('classname')}::{case.get('name')}": _outcome(case) for case in cases}
    return found, seconds, done.stdout


def _outcome(case: ElementTree.Element) -> str:
    kinds = {child.tag for child in case} & {"failure", "error", "skipped"}
    return "failed" if kinds & {"failure", "error"} else "skipped" if kinds else "passed"


def show(suite: Suite, checkout: Path) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for each in suite.needs:
            source = checkout / each
            copytree(source, folder / each) if source.is_dir() else (folder / each).write_bytes(source.read_bytes())
        plain, seconds, _ = outcomes(folder, suite)
        under, seconds_under, _ = outcomes(folder, suite, "--subgrad", "torch-2.13")
        watched, seconds_watched, said = outcomes(folder, suite, "--subgrad-audit", "--subgrad-compare", COMPARED)
    print(f"\n{suite.package}: {', '.join(suite.tests)}")
    for title, found, took in (
        ("as it is", plain, seconds),
        ("--subgrad torch-2.13", under, seconds_under),
        (f"--subgrad-audit --subgrad-compare {COMPARED}", watched, seconds_watched),
    ):
        other = [test for test in plain if plain[test] != found.get(test)]
        print(
            f"  {title}: {dict(Counter(found.values()))}, {took:.0f} s, {len(other)} outcomes differ {other[:5] or ''}"
        )
    print(re.search(r".*subgrad: gradients under.*?in all\.", said, re.DOTALL)[0].partition("subgrad: hits")[2])  # type: ignore[index]


def show_gate() -> None:
    with tempfile.TemporaryDirectory() as name:
        script = ROOT / "scripts" / "torchao_qat.py"
        command = [python(), "-W", "ignore", "-m", "subgrad", "audit", "--fail-on-change", str(script)]
        done = subprocess.run(command, cwd=name, env=ENVIRONMENT, capture_output=True, text=True)
    print(f"\ntorchao at the gate, exit code {done.returncode}:\n{done.stderr.strip().splitlines()[-1]}")


def main(arguments: list[str]) -> None:
    checkouts = dict(each.split("=", 1) for each in arguments)
    for suite in SUITES:
        if suite.package in checkouts:
            show(suite, Path(checkouts[suite.package]).resolve())
    show_gate()


if __name__ == "__main__":
    main(sys.argv[1:])
