"""The package that searches and draws: loaded when it is used, and named where it is missing."""

from __future__ import annotations

from types import ModuleType

from subgrad.extras import needed


def hypothesis_for(what: str) -> ModuleType:
    """
    Raises:
        ModuleNotFoundError: with the command that brings it.
    """
    with needed(f"{what} draws with", "hypothesis"):
        import hypothesis
        import hypothesis.strategies
    return hypothesis
