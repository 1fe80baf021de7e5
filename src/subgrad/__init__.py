"""Every kink in your PyTorch program: chosen, seen, proven, and fast.

A kink is a point where a function has no derivative and autograd returns a number all the same. One line chooses it,
for unchanged torch code:

>>> import torch, subgrad
>>> x = torch.tensor(0.0, requires_grad=True)
>>> with subgrad.use("min-norm"):
...     y = torch.maximum(x, torch.tensor(0.0)) + torch.clamp(x, min=0) + torch.relu(x)
>>> torch.autograd.grad(y, x)
(tensor(0.),)
"""

from importlib import import_module
from typing import TYPE_CHECKING

from subgrad import kernels
from subgrad.apply.active import active
from subgrad.apply.use import set_default, use
from subgrad.conventions import Convention
from subgrad.kinks import KINKS as kinks  # noqa: N811
from subgrad.version import __version__

if TYPE_CHECKING:
    from subgrad import functional, nn

__all__ = [
    "Convention",
    "__version__",
    "active",
    "functional",
    "kernels",
    "kinks",
    "nn",
    "set_default",
    "use",
]


def __getattr__(name: str) -> object:
    if name in ("functional", "nn"):  # made from the table when first asked for
        return import_module(f"subgrad.{name}")
    raise AttributeError(f"module 'subgrad' has no attribute {name!r}")
