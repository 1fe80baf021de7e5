"""Which versions of torch were tried, and which column of the table of kinks describes the installed one."""

from __future__ import annotations

import torch
from torch.torch_version import TorchVersion

OLDEST_TRIED = (2, 11)
NEWEST_TRIED = (2, 15)

# Torch changed what it returns at kinks once, in 2.14: each column holds from its version on.
COLUMN = "2.14" if TorchVersion(torch.__version__) >= "2.14" else "2.13"

_major, _minor = torch.__version__.split(".")[:2]
INSTALLED = int(_major), int(_minor)  # what is released between two minor versions changes no interface


def is_newer_than_tried() -> bool:
    return INSTALLED > NEWEST_TRIED


def tried() -> str:
    """In words: "2.11 to 2.15"."""
    return " to ".join(".".join(map(str, each)) for each in (OLDEST_TRIED, NEWEST_TRIED))
