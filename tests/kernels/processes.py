"""Tests in a process of their own, since what they are about is set once and for all."""

from __future__ import annotations

from pathlib import Path

from fresh import run_module


def run_apart(file: str, *arguments: str, **environment: str) -> None:
    """Run the tests in a file beside this one."""
    tests = str(Path(__file__).with_name(file))
    done = run_module("pytest", "-q", "-p", "no:cacheprovider", *arguments, tests, cwd=Path.cwd(), **environment)
    assert done.returncode == 0, done.stdout + done.stderr
