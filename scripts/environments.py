"""Throw-away environments, one per torch version, built by uv beside the project's own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
UV = ROOT / ".venv-uv" / "bin" / "uv"
VERSIONS = ("2.11.0", "2.12.1", "2.13.0", "2.14.1", "2.15.0")


def python(version: str) -> Path:
    """The interpreter of an environment with this torch version, built if it is not there."""
    folder = ROOT / f".venv-torch-{version}"
    interpreter = folder / "bin" / "python"
    if not (folder / "ready").exists():
        print(f"building an environment with torch {version} ...", file=sys.stderr)
        subprocess.run([UV, "venv", "--quiet", "--allow-existing", "--python", sys.executable, folder], check=True)
        install = [UV, "pip", "install", "--quiet", "--python", interpreter, f"torch=={version}", "numpy"]
        subprocess.run(install, check=True)
        (folder / "ready").touch()
    return interpreter


def run(version: str, *arguments: str | Path) -> str:
    """What a Python program prints under a torch version, with this project on its path."""
    path = os.pathsep.join(str(ROOT / folder) for folder in ("src", "tests"))
    command = [python(version), "-W", "ignore", *arguments]
    return subprocess.run(
        command, env={**os.environ, "PYTHONPATH": path}, check=True, stdout=subprocess.PIPE, text=True
    ).stdout
