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
FORMS = sorted(ROOT.glob(".github/ISSUE_TEMPLATE/*.yml"))


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


SCHEMAS = {
    "workflows": [WORKFLOW],
    "issue-forms": [each for each in FORMS if each.name != "config.yml"],
    "issue-config": [ROOT / ".github/ISSUE_TEMPLATE/config.yml"],
}


@pytest.mark.parametrize("schema", SCHEMAS)
def test_what_github_reads_keeps_to_its_schema(schema: str) -> None:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", f"vendor.github-{schema}"]
    done = subprocess.run([*command, *map(str, SCHEMAS[schema])], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_the_workflow_runs_the_two_commands() -> None:
    jobs = YAML(typ="safe").load(WORKFLOW.read_text())["jobs"]
    run = [step["run"] for job in jobs.values() for step in job["steps"] if "run" in step]
    assert {"make survey", "make test"} <= set(run)
