"""What real versions of torch return at every kink: each measured in an environment and a process of its own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from subgrad.survey.environments import NotMade, Tell, python
from subgrad.survey.finding import Finding

PACKAGE = Path(__file__).parents[1]


@dataclass(frozen=True)
class Measurement:
    """One version of torch.

    Attributes:
        version: that was asked for.
        findings: of the places that this version has.
        failed: why there are none, in the words of what failed.
    """

    version: str
    findings: tuple[Finding, ...] = ()
    failed: str | None = None


def measure(version: str, operators: Sequence[str] = (), tell: Tell = lambda message: None) -> Measurement:
    """Survey a version of torch, in an environment that is made for it; what fails is said, not raised."""
    try:
        interpreter = python(version, tell)
    except NotMade as error:
        return Measurement(version, failed=str(error))
    tell("measuring")
    command = [str(interpreter), "-W", "ignore", "-m", "subgrad", "survey", "--json", "--convention", "torch"]
    with tempfile.TemporaryDirectory() as folder:
        # This package alone: what is installed beside it here would hide what is installed there.
        shutil.copytree(PACKAGE, Path(folder) / "subgrad", ignore=shutil.ignore_patterns("__pycache__"))
        environment = {**os.environ, "PYTHONPATH": folder, "SUBGRAD_FRONT": "never"}
        done = subprocess.run([*command, *operators], env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        return Measurement(version, failed=done.stderr.strip() or f"exit code {done.returncode}")
    return Measurement(version, tuple(map(Finding.from_dict, json.loads(done.stdout))))
