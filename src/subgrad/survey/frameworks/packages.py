"""The frameworks that can be asked: what is installed for each, and how its worker is run."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

VERSION = re.compile(r"\d+(\.\d+)*((a|b|rc|\.dev|\.post)\d+)?")


@dataclass(frozen=True)
class Package:
    """One framework.

    Attributes:
        name: as users write it, and of its worker: ``with_NAME.py``.
        installs: the package to install, with what it needs and does not say.
        variables: of the process that runs it.
    """

    name: str
    installs: str
    beside: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict, hash=False)

    def wanted(self, version: str | None) -> list[str]:
        """What the installer is asked for."""
        return [self.installs + (f"=={version}" if version else ""), "numpy", *self.beside]


# Frameworks that compile are kept from taking every core for calls of ten entries.
PACKAGES = {
    each.name: each
    for each in (
        Package("torch", "torch"),
        Package("jax", "jax", variables={"JAX_PLATFORMS": "cpu"}),
        Package("tensorflow", "tensorflow", variables={"CUDA_VISIBLE_DEVICES": "-1", "TF_CPP_MIN_LOG_LEVEL": "3"}),
        Package("mlx", "mlx[cpu]"),
        Package("paddle", "paddlepaddle", ("setuptools",)),  # imports it, and does not say so
        Package("tinygrad", "tinygrad", variables={"DEV": "PYTHON"}),  # its own interpreter, which needs no compiler
        Package("autograd", "autograd", ("scipy",)),
    )
}


def parsed(text: str) -> tuple[str, str | None]:
    """``jax==0.10.2`` as name and version, ``jax`` as name and None.

    Raises:
        ValueError: for what is no such framework, or no version.
    """
    name, given, version = text.partition("==")
    if name not in PACKAGES:
        raise ValueError(f"unknown framework {name!r}. Known: {', '.join(PACKAGES)}.")
    if given and not VERSION.fullmatch(version):
        raise ValueError(f"{text!r}: give a version as in {name}==1.2.3, or {name} for the newest.")
    return name, version or None
