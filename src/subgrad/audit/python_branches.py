"""`torch.cond` as Python's `if`: where nothing is compiled, its branches are run as they are written."""

from __future__ import annotations

from typing import Any

import torch
from torch.overrides import TorchFunctionMode


class PythonBranches(TorchFunctionMode):
    """`torch.cond` compiles its branches by itself; where that is switched off, its own derivative raises."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is not torch.ops.higher_order.cond:
            return func(*args, **(kwargs or {}))
        answer, one, other, operands = args
        with self:  # a branch may have branches
            return (one if bool(answer) else other)(*operands)
