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
from subgrad.apply.add_operator import add_operator
from subgrad.apply.scopes import active
from subgrad.apply.use import set_default, use
from subgrad.conventions import Convention
from subgrad.kinks import KINKS as kinks  # noqa: N811
from subgrad.kinks import Kink, Slopes, Ties
from subgrad.version import __version__

if TYPE_CHECKING:
    from subgrad import clarke, functional, loggers, nn, testing
    from subgrad.audit import Audit, audit, compare, explain_nan
    from subgrad.clarke import backward, directions, element, elements, grad, jvp, min_norm, value_and_grad
    from subgrad.converting import conversion, convert, unconvert

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
_OF_CLARKE = ("backward", "directions", "element", "elements", "grad", "jvp", "min_norm", "value_and_grad")


def __getattr__(name: str) -> object:
    if name in (
        "audit",
        "clarke",
        "functional",
        "loggers",
        "nn",
        "testing",
    ):  # made from the table when first asked for
        return import_module(f"subgrad.{name}")
    if name in _OF_CLARKE:
        return getattr(import_module("subgrad.clarke"), name)
    if name in ("conversion", "convert", "unconvert"):
        return getattr(import_module("subgrad.converting"), name)
    if name in ("Audit", "compare", "explain_nan"):
        return getattr(import_module("subgrad.audit"), name)
    raise AttributeError(f"module 'subgrad' has no attribute {name!r}")
