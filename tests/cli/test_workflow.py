"""The workflow in docs/ci.md: valid for GitHub, and its commands do what the page says."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from fresh import run_module
from ruamel.yaml import YAML

PAGE = (Path(__file__).parents[2] / "docs" / "ci.md").read_text()
(WORKFLOW,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
(BASELINE,) = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
KNOWN = """
def bounded(weight):
    return weight.clamp(min=0)
"""
TRAIN = """
import torch
from model import *

weight = torch.zeros(3, requires_grad=True)
optimizer = torch.optim.SGD([weight], lr=0.1)
(bounded(weight) * torch.tensor([1.0, -2.0, 3.0])).sum().backward()
optimizer.step()
"""
SUITE = """
import torch
from model import bounded


def test_gradients_are_those_of_torch_2_13():
    weight = torch.zeros(2, requires_grad=True)
    (bounded(weight) * torch.tensor([1.0, -2.0])).sum().backward()
    assert weight.grad.tolist() == [1.0, -2.0]
"""


def steps() -> list[Any]:
    return YAML(typ="safe").load(WORKFLOW)["jobs"]["gradients"]["steps"]


def check(folder: Path, text: str) -> subprocess.CompletedProcess[str]:
    (folder / "gradients.yml").write_text(text)
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.github-workflows", "gradients.yml"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True)


def test_it_keeps_to_githubs_schema(tmp_path: Path) -> None:
    done = check(tmp_path, WORKFLOW)
    assert done.returncode == 0, done.stdout
    assert check(tmp_path, WORKFLOW.replace("runs-on:", "runs_on:")).returncode == 1


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("repository")
    for name, text in (("train.py", TRAIN), ("test_it.py", SUITE), ("kinks.json", BASELINE), ("model.py", KNOWN)):
        (folder / name).write_text(text)
    return folder


def run(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return run_module(*shlex.split(command), cwd=folder, warn="ignore", GITHUB_WORKSPACE=str(folder))


def test_its_commands_pass_on_a_repository_whose_lines_are_known(repository: Path) -> None:
    commands = [step["run"] for step in steps() if step.get("run", "").startswith(("subgrad ", "pytest "))]
    assert len(commands) == 2
    for command in commands:
        done = run(command, repository)
        assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines()[-1] == (
        "subgrad: passed: gradients are finite in 1 step; gradients depend on no new line (1 known), "
        "in 1 compared of 1 step."
    )
    uploaded = [
        step["with"].get("sarif_file") or step["with"]["path"] for step in steps() if "upload" in step.get("uses", "")
    ]
    assert all((repository / name).exists() for name in uploaded)


def test_its_gate_fails_and_annotates_a_new_line(repository: Path) -> None:
    (repository / "model.py").write_text(KNOWN.replace("min=0", "0, 1"))
    (command,) = [step["run"] for step in steps() if step.get("run", "").startswith("subgrad ")]
    done = run(command, repository)
    assert done.returncode == 3
    assert done.stdout.startswith("::warning file=model.py,line=3,title=subgrad::`clamp`: ")
