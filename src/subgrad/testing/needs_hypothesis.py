"""The package that searches and draws: loaded when it is used, and named where it is missing."""

from __future__ import annotations

from types import ModuleType


def hypothesis_for(what: str) -> ModuleType:
    """
    Raises:
        ModuleNotFoundError: with the command that brings it.
    """
    try:
        import hypothesis
        import hypothesis.strategies
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "hypothesis":
            raise
        said = f"{what} draws with hypothesis, which is missing: pip install 'subgrad[testing]'."
        raise ModuleNotFoundError(said, name="hypothesis") from None
    return hypothesis
