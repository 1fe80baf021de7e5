"""What goes along with the package says the same things about it, and in the forms that others read."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from ruamel.yaml import YAML

import subgrad

ROOT = Path(__file__).parents[1]
WORKFLOW = ROOT / ".github/workflows/test.yml"


def test_the_citation_is_of_this_version() -> None:
    found = YAML(typ="safe").load((ROOT / "CITATION.cff").read_text())
    project = (ROOT / "pyproject.toml").read_text()
    assert found["version"] == subgrad.__version__
    assert f'license = "{found["license"]}"' in project
    assert f'description = "{found["abstract"]}"' in project


def test_the_classifiers_are_of_the_pythons_that_the_workflow_runs() -> None:
    project = (ROOT / "pyproject.toml").read_text()
    smoke = YAML(typ="safe").load(WORKFLOW.read_text())["jobs"]["smoke"]["strategy"]["matrix"]["python"]
    assert re.findall(r'"Programming Language :: Python :: (3\.\d+)"', project) == smoke
    assert f'requires-python = ">={smoke[0]}"' in project


def test_the_workflow_keeps_to_githubs_schema_and_runs_the_two_commands() -> None:
    check = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.github-workflows", str(WORKFLOW)]
    done = subprocess.run(check, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    jobs = YAML(typ="safe").load(WORKFLOW.read_text())["jobs"]
    run = [step["run"] for job in jobs.values() for step in job["steps"] if "run" in step]
    assert {"make survey", "make test"} <= set(run)


@pytest.mark.parametrize("name", ["wrong_gradient", "missing_operator", "unclear"])
def test_an_issue_form_has_what_github_needs(name: str) -> None:
    form = YAML(typ="safe").load((ROOT / f".github/ISSUE_TEMPLATE/{name}.yml").read_text())
    assert {"name", "description", "body"} <= set(form)
    ids = [each["id"] for each in form["body"] if each["type"] != "markdown"]
    assert len(ids) == len(set(ids)) > 0
    assert {each["type"] for each in form["body"]} <= {"markdown", "textarea", "input", "dropdown", "checkboxes"}
    assert all(each["attributes"].get("label") for each in form["body"] if each["type"] != "markdown")
