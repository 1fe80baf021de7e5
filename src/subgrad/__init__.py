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

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

from subgrad.version import __version__

if TYPE_CHECKING:
    from subgrad import clarke, functional, kernels, loggers, nn, testing
    from subgrad.apply.add_operator import add_operator
    from subgrad.apply.scopes import active
    from subgrad.apply.use import set_default, use
    from subgrad.audit import Audit, audit, compare, explain_nan
    from subgrad.clarke import backward, directions, element, elements, grad, jvp, min_norm, value_and_grad
    from subgrad.conventions import Convention
    from subgrad.converting import conversion, convert, unconvert
    from subgrad.kinks import KINKS as kinks  # noqa: N811
    from subgrad.kinks import Kink, Slopes, Ties

__all__ = [
    "Audit",
    "Convention",
    "Kink",
    "Slopes",
    "Ties",
    "__version__",
    "active",
    "add_operator",
    "audit",
    "backward",
    "clarke",
    "compare",
    "conversion",
    "convert",
    "directions",
    "element",
    "elements",
    "explain_nan",
    "functional",
    "grad",
    "jvp",
    "kernels",
    "kinks",
    "loggers",
    "min_norm",
    "nn",
    "set_default",
    "testing",
    "unconvert",
    "use",
    "value_and_grad",
]

# Loaded when first asked for, torch with it: a command line that only lists its options needs neither.
_MODULES = ("audit", "clarke", "functional", "kernels", "loggers", "nn", "testing")
_HOMES = {
    "subgrad.apply.add_operator": ("add_operator",),
    "subgrad.apply.scopes": ("active",),
    "subgrad.apply.use": ("set_default", "use"),
    "subgrad.audit": ("Audit", "compare", "explain_nan"),
    "subgrad.clarke": ("backward", "directions", "element", "elements", "grad", "jvp", "min_norm", "value_and_grad"),
    "subgrad.conventions": ("Convention",),
    "subgrad.converting": ("conversion", "convert", "unconvert"),
    "subgrad.kinks": ("Kink", "Slopes", "Ties"),
}


def __getattr__(name: str) -> object:
    if name in _MODULES:
        return import_module(f"subgrad.{name}")
    for home, names in _HOMES.items():
        if name in names:
            found = globals()[name] = getattr(import_module(home), name)
            return found
    raise AttributeError(f"module 'subgrad' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)


class _Package(ModuleType):
    """`subgrad.kinks` is the table, and never the folder of that name, which importing it would put here."""

    @property
    def kinks(self) -> object:
        return import_module("subgrad.kinks").KINKS

    @kinks.setter
    def kinks(self, folder: ModuleType) -> None: ...


sys.modules[__name__].__class__ = _Package
