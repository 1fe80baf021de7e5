"""Packages that only some commands and functions need, and the command that brings one that is missing.

It names packages, as the extras in pyproject.toml do, and not the extras: there is no release to take those from.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

EXTRAS = {
    "cli": ("rich",),
    "plots": ("matplotlib",),
    "build": ("ninja", "setuptools"),
    "testing": ("hypothesis",),
    "loggers": ("accelerate", "lightning", "tensorboard", "transformers", "wandb"),
}


def missing(what: str, package: str) -> str:
    """``subgrad explain draws its picture with matplotlib, which is missing: pip install matplotlib.``"""
    assert any(package in packages for packages in EXTRAS.values())
    return f"{what} {package}, which is missing: pip install {package}."


@contextmanager
def needed(what: str, package: str) -> Generator[None]:
    """Around the import of such a package.

    Raises:
        ModuleNotFoundError: with the command that brings it; as it was, where something else is missing.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != package:
            raise
        raise ModuleNotFoundError(missing(what, package), name=package) from None
