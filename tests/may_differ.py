"""What is left to the newest torch when the tests are run again on the oldest, and why: all of it runs there.

Again runs whatever reaches the dispatcher, the table's columns or a compiler. Nothing more is learnt from what only
reads sources or draws pages, nor from commands, processes and trainings, which take long because of what lies above the
operators. ``pytest --may-differ`` leaves these out, and its account says so.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

TESTS = Path(__file__).parent

# By reason: folders, files and single tests.
LEFT_OUT: dict[str, tuple[str, ...]] = {
    "commands and processes, which only call what is run again": (
        "audit/test_command.py",
        "audit/test_loggers.py",
        "audit/test_ranks.py",
        "bench",
        "cli",
        "distributed",
        "everywhere/test_stress.py",
        "plugin",
        "report/test_repro.py",
    ),
    "trainings of whole models, and examples": ("programs", "test_examples.py", "test_examples_of_quantisation.py"),
    "PyTorch's operator database, which is another in each version": ("database", "scan"),
    "pages, drawn from what is recorded": (
        "audit/test_report.py",
        "report/test_atlas_browser.py",
        "report/test_atlas_page.py",
        "report/test_generated.py",
    ),
    "sources, read as text": (
        "test_package.py",
        "clarke/test_mutants.py::test_a_mutant_changes_one_place_and_is_python",
        "clarke/test_mutants.py::test_every_file_with_rules_has_mutants",
        "clarke/test_mutants.py::test_mutants_are_of_all_kinds_and_files",
        "clarke/test_mutants.py::test_the_choice_of_fewer_mutants_is_the_beginning_of_more",
        "test_architecture.py::test_a_module_imports_only_earlier_stages",
        "test_architecture.py::test_only_torch_internals_touches_a_private_name_of_torch",
    ),
}
# Parts that are of all kinds each: so many of them are left out for one that is run again.
LEFT_OUT_FOR_ONE = {"clarke/test_battery.py::test_small_programs_are_right_or_refused": 3}

_NAMES = frozenset(name for names in LEFT_OUT.values() for name in names)


def is_left_out(path: Path) -> bool:
    """Whether a folder or file is, as a whole."""
    return path.is_relative_to(TESTS) and path.relative_to(TESTS).as_posix() in _NAMES


def split(items: list[pytest.Item]) -> tuple[list[pytest.Item], list[pytest.Item]]:
    """What is run again, and what is left out."""
    found: tuple[list[pytest.Item], list[pytest.Item]] = ([], [])
    parts = Counter[str]()
    for item in items:
        name = _name(item)
        parts[name] += 1
        of_some = (parts[name] - 1) % (1 + LEFT_OUT_FOR_ONE.get(name, 0)) > 0
        found[name in _NAMES or of_some].append(item)
    return found


def _name(item: pytest.Item) -> str:
    return item.path.relative_to(TESTS).as_posix() + item.nodeid.partition("[")[0].partition(".py")[2]


def shown() -> dict[str, str]:
    """By reason, what is left out."""
    found = {reason: ", ".join(names) for reason, names in LEFT_OUT.items()}
    some = (f"{number} parts in {number + 1} of {name}" for name, number in LEFT_OUT_FOR_ONE.items())
    return {**found, "parts that are of all kinds each": ", ".join(some)}
