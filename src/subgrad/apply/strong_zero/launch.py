"""On CUDA, one launch in the place of four: 0 where a gradient is nan and its cotangent is exactly 0."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor

from subgrad.apply.autograd_nodes import is_memory
from subgrad.apply.torch_compile.guards import is_compiling
from subgrad.torch_internals.tensors import jitted

DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
CODE = """
template <typename T> T spared(T gradient, T cotangent) {
  return gradient != gradient && cotangent == T(0) ? T(0) : gradient;
}
"""
_failed: list[str] = []  # why it is not launched: torch compiles it when it is first called


def spared(gradient: Tensor, cotangent: Tensor) -> Tensor | None:
    """The gradient of an operator of entries; None where operators of torch have to make it."""
    if _failed or not gradient.is_cuda or gradient.dtype not in DTYPES or torch.is_grad_enabled() or is_compiling():
        return None
    alike = [(each.shape, each.dtype, each.device) for each in (gradient, cotangent)]
    if alike[0] != alike[1] or not is_memory(gradient) or not is_memory(cotangent):
        return None
    try:
        return _launched()(gradient, cotangent)
    except RuntimeError as error:  # nothing to compile with
        _failed.append(str(error))
        return None


@cache
def _launched() -> Any:
    return jitted(CODE)
