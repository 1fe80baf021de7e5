"""Start a module in a process of its own, once for all test workers: the first one runs it, the others wait."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

import subgrad

TESTS = Path(__file__).parents[1]


def run_once(module: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file that the module wrote: its argument is where."""
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID", str(os.getpid()))
    path = tmp_path_factory.getbasetemp().parent / f"{module}-{run}"
    with open(f"{path}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            places = [str(Path(subgrad.__file__).parents[1]), str(TESTS)]
            done = subprocess.run(
                [sys.executable, "-W", "ignore", "-m", module, str(path)],
                env={**os.environ, "PYTHONPATH": os.pathsep.join(places)},
                capture_output=True,
                text=True,
                timeout=300,
            )
            assert done.returncode == 0, done.stderr
    return path
