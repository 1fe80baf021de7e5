"""Tests in a process of their own, since what they are about is set once and for all."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def run_apart(file: str, *arguments: str, **environment: str) -> None:
    """Run the tests in a file beside this one."""
    tests = Path(__file__).with_name(file)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments, str(tests)]
    surroundings = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **environment}
    done = subprocess.run(command, env=surroundings, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
