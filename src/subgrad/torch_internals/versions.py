"""Which versions of torch were tried, and which column of the table of kinks describes the installed one."""

from __future__ import annotations

import torch
from torch.torch_version import TorchVersion

OLDEST_TRIED = (2, 11)
NEWEST_TRIED = (2, 15)

# Torch changed what it returns at kinks once, in 2.14: each column holds from its version on.
COLUMN = "2.14" if TorchVersion(torch.__version__) >= "2.14" else "2.13"


def installed() -> tuple[int, int]:
    """Major and minor: what is released between them changes no interface."""
    major, minor = torch.__version__.split(".")[:2]
    return int(major), int(minor)


def is_newer_than_tried() -> bool:
    return installed() > NEWEST_TRIED


def tried() -> str:
    """In words: "2.11 to 2.15"."""
    return " to ".join(".".join(map(str, each)) for each in (OLDEST_TRIED, NEWEST_TRIED))
