"""Shared by all tests: nothing stays in force from one to the next, and GPU tests need a GPU."""

from __future__ import annotations

import os
from collections.abc import Iterator

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
