"""What tests of the kernels share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from subgrad.kernels import set_packed


@pytest.fixture
def always_packed() -> Iterator[None]:
    set_packed("always")
    yield
    set_packed("auto")
