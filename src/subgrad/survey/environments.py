"""Environments with other versions of torch, or with other frameworks, made once and kept in a cache folder."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

VERSION = re.compile(r"\d+\.\d+(\.\d+)?((a|b|rc|\.dev|\.post)\d+)?(\+[a-z0-9]+)?")

Tell = Callable[[str], None]


class NotMade(RuntimeError):  # noqa: N818
    """An environment that cannot be had, and why."""


def cache_folder() -> Path:
    """Where environments are kept: ``SUBGRAD_CACHE_DIR``, else where the system keeps caches of this user."""
    if given := os.environ.get("SUBGRAD_CACHE_DIR"):
        return Path(given)
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData" / "Local")) / "subgrad"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "subgrad"


def python(version: str, tell: Tell = lambda message: None) -> Path:
    """The interpreter of an environment with a version of torch, which is made if it is not there.

    Raises:
        NotMade: where it cannot be, with what the installer says.
    """
    return environment(f"torch-{version}", [f"torch=={version}"], tell)


def environment(name: str, wanted: Sequence[str], tell: Tell = lambda message: None) -> Path:
    """The interpreter of an environment with some packages, which is made under a name if it is not there.

    Raises:
        NotMade: where it cannot be, with what the installer says.
    """
    running = ".".join(map(str, sys.version_info[:2]))
    folder = cache_folder() / f"{name}-python{running}"
    if not _interpreter(folder).exists():
        part = folder.with_name(f"{folder.name}.part{os.getpid()}")
        try:
            part.parent.mkdir(parents=True, exist_ok=True)
            _make(part, wanted, tell)
            _put(part, folder)
        except OSError as error:
            raise NotMade(f"{folder} cannot be made: {error}") from error
        finally:
            shutil.rmtree(part, ignore_errors=True)
    return _interpreter(folder)


def _interpreter(folder: Path) -> Path:
    return folder / "Scripts" / "python.exe" if sys.platform == "win32" else folder / "bin" / "python"


def _put(part: Path, folder: Path) -> None:
    """In one step, so that none is ever there by half; one that another process has made meanwhile stays."""
    try:
        part.rename(folder)
    except OSError:
        if not _interpreter(folder).exists():
            raise


def _make(folder: Path, wanted: Sequence[str], tell: Tell) -> None:
    uv = _uv()
    tell(f"installing {wanted[0]} with {'uv' if uv else 'pip'}, once; it may be some gigabytes")
    if uv:
        _call([*uv, "venv", "--quiet", "--python", sys.executable, str(folder)])
        _call([*uv, "pip", "install", "--quiet", "--python", str(_interpreter(folder)), *wanted])
    else:
        _call([sys.executable, "-m", "venv", str(folder)])
        _call([str(_interpreter(folder)), "-m", "pip", "install", "--quiet", *wanted])


def _uv() -> list[str] | None:
    """How uv is called, if it is there."""
    found = shutil.which("uv")
    if found:
        return [found]
    asked = subprocess.run([sys.executable, "-m", "uv", "--version"], capture_output=True, check=False)
    return [sys.executable, "-m", "uv"] if asked.returncode == 0 else None


def _call(command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        said = done.stderr.strip() or done.stdout.strip() or f"exit code {done.returncode}"
        raise NotMade(said)
