"""An operator's value in a tensor that has the derivative already."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor

from subgrad.apply.operators import operator
from subgrad.apply.rule import Arguments
from subgrad.kinks.overloads import overload


def written(out: Tensor, op: str, arguments: Arguments) -> Tensor:
    base, arguments = operator(op).base(arguments)
    with torch._C._AutoDispatchBelowADInplaceOrView():
        return _writing(base.op)(*base.args(arguments), out=out)


@cache
def _writing(op: str) -> Any:
    """The overload that writes into a given tensor."""
    name, _, form = op.partition(".")
    return overload(f"{name}.{form}_out" if form else f"{name}.out")
