"""What is left to the newest torch is there, and nothing else is left out."""

from __future__ import annotations

import pytest
from may_differ import LEFT_OUT, LEFT_OUT_FOR_ONE, TESTS, is_left_out, shown, split

NAMES = [name for names in (*LEFT_OUT.values(), tuple(LEFT_OUT_FOR_ONE)) for name in names]


@pytest.mark.parametrize("name", NAMES)
def test_what_is_left_out_is_there(name: str) -> None:
    path, _, test = name.partition("::")
    assert (TESTS / path).exists()
    assert not test or f"def {test}(" in (TESTS / path).read_text()
    assert any(name in said for said in shown().values())


def test_whole_files_are_not_collected_and_others_are() -> None:
    assert is_left_out(TESTS / "bench")
    assert is_left_out(TESTS / "audit" / "test_ranks.py")
    assert not is_left_out(TESTS / "audit" / "test_counts.py")
    assert not is_left_out(TESTS / "test_architecture.py")
    assert not is_left_out(TESTS.parent / "bench")


def test_this_test_is_run_again(request: pytest.FixtureRequest) -> None:
    again, left_out = split([request.node])
    assert (again, left_out) == ([request.node], [])


@pytest.mark.parametrize(("name", "number"), LEFT_OUT_FOR_ONE.items())
def test_of_many_parts_some_are_run_again(request: pytest.FixtureRequest, name: str, number: int) -> None:
    path, _, test = name.partition("::")
    module = pytest.Module.from_parent(request.session, path=TESTS / path)
    parts = [
        pytest.Function.from_parent(module, name=f"{test}[{part}]", callobj=lambda: None)
        for part in range(3 * number + 3)
    ]
    again, left_out = split(parts)
    assert again == parts[:: number + 1]
    assert len(again) + len(left_out) == len(parts)
