"""Shared by all tests: nothing stays in force from one to the next, and GPU tests need a GPU."""

from __future__ import annotations

import os

# The workers share the cores: threads that wait must not keep one busy, which they do unless told before torch loads
# them, and pools of compilers would only wait for each other. The instructions that the processor says it has need no
# program that tries them, which Inductor would compile for five seconds in every process and folder of its cache.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
os.environ.setdefault("TORCHINDUCTOR_VEC_ISA_OK", "1")

import gc
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import may_differ
import pytest
import tested
import torch

import subgrad

# What is imported and collected stays until the end: it is looked through neither while it grows nor after each test.
gc.disable()


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


@pytest.fixture(autouse=True)
def nothing_left_in_force() -> Iterator[None]:
    yield
    assert subgrad.active() == subgrad.Convention("torch")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    return True if config.getoption("may_differ") and may_differ.is_left_out(collection_path) else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("may_differ"):
        items[:], left_out = may_differ.split(items)
        config.hook.pytest_deselected(items=left_out)
    items.sort(key=lambda item: item.get_closest_marker("long") is None)
    if not torch.cuda.is_available():
        for item in items:
            if item.get_closest_marker("gpu"):
                item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--tested", type=Path, metavar="FILE", help="where to keep what ran, what was skipped and why")
    parser.addoption(
        "--may-differ", action="store_true", help="leave out what cannot differ on another version of torch"
    )


def pytest_terminal_summary(terminalreporter: Any, exitstatus: int, config: pytest.Config) -> None:
    found = tested.account(terminalreporter, config, exitstatus)
    if file := config.getoption("tested"):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(found))
    terminalreporter.section("what was tested")
    for line in tested.shown(found):
        terminalreporter.write_line(line)
    _show_database(terminalreporter)


def _show_database(terminalreporter: Any) -> None:
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
