"""When: which lines of a run land on kinks, and what that does to its gradients."""

from __future__ import annotations

import inspect
import sys
from types import ModuleType

from subgrad.audit.call_site import Site
from subgrad.audit.compare_batch import compare
from subgrad.audit.effects import Cause, Change, Effect
from subgrad.audit.nonfinite.explaining import explain_nan
from subgrad.audit.nonfinite.result import Advice, Line, Nonfinite, Reached
from subgrad.audit.port import Port, Unexplained
from subgrad.audit.result import Audit, Count, Row
from subgrad.audit.session import Session

__all__ = [
    "Advice",
    "Audit",
    "Cause",
    "Change",
    "Count",
    "Effect",
    "Line",
    "Nonfinite",
    "Port",
    "Reached",
    "Row",
    "Session",
    "Site",
    "Unexplained",
    "audit",
    "compare",
    "explain_nan",
]


audit = Session


def __dir__() -> list[str]:
    return sorted(__all__)


class _Callable(ModuleType):
    """`subgrad.audit` is this package, and what users call, with the words and the signature of that."""

    __call__ = staticmethod(audit)


__doc__ = Session.__doc__
__signature__ = inspect.signature(Session)
sys.modules[__name__].__class__ = _Callable
