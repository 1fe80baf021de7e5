"""Shared by all tests: nothing stays in force from one to the next, and GPU tests need a GPU."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import torch

import subgrad

# The test workers share the cores already: pools of compilers would only wait for each other.
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")


@pytest.fixture(autouse=True)
def nothing_left_in_force() -> Iterator[None]:
    yield
    assert subgrad.active() == subgrad.Convention("torch")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if not torch.cuda.is_available():
        for item in items:
            if item.get_closest_marker("gpu"):
                item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print what the tests over PyTorch's operator database counted."""
    total: Counter[str] = Counter()
    for report in terminalreporter.getreports("passed") + terminalreporter.getreports("failed"):
        for name, value in report.user_properties:
            if name == "database" and report.when == "call":
                total.update(json.loads(value))
    if total:
        terminalreporter.section("PyTorch's operator database under conventions")
        for count, number in sorted(total.items()):
            terminalreporter.write_line(f"{number:8,} {count}")
