"""Which module is running, by its path: read from the frames of the program, so that no module needs a hook.

Hooks would cost every call of every module, and compiled code would be compiled anew whenever they come and go.
"""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

from torch import nn

from subgrad.torch_internals.lookup import require
from subgrad.torch_internals.tensors import code_of_module_call


class Modules:
    """The names of modules: of a given one, and of those that are met."""

    def __init__(self, model: nn.Module | None):
        require(code_of_module_call)
        self._names: dict[nn.Module, str] = {}
        self.roots: list[nn.Module] = []
        self.given = model
        if model is not None and not isinstance(model, nn.Module):
            raise TypeError(
                f"audit({model!r}): the first argument is the torch.nn.Module whose parts are named in what is found; "
                "conventions are given as compare=['torch-2.13', 'torch-2.14']."
            )
        if model is not None:
            self._names.update({module: name for name, module in model.named_modules() if name})
            self._names[model] = type(model).__name__
            self.roots.append(model)

    def path(self) -> str:
        """Of the innermost module that is running in this thread, ``""`` outside of all."""
        frame = _calling(sys._getframe(1))
        if frame is None:
            return ""
        module = frame.f_locals["self"]
        if module not in self._names:
            self._name(frame)
        return self._names.get(module, type(module).__name__)

    def parameters(self) -> dict[int, str]:
        """The names of the parameters of the modules that were met, by their identity."""
        return {id(each): name for root in self.roots for name, each in root.named_parameters()}

    def are_sharded(self) -> bool:
        """Whether FSDP manages the parameters of any module that was met."""
        fsdp: Any = sys.modules.get("torch.distributed.fsdp")
        if fsdp is None:
            return False
        kinds = (fsdp.FSDPModule, fsdp.FullyShardedDataParallel)
        return any(isinstance(module, kinds) for root in self.roots for module in root.modules())

    def _name(self, frame: FrameType) -> None:
        """Name a module, and all beside it, after the outermost one that called it."""
        outer: FrameType | None = frame
        while outer is not None:
            frame, outer = outer, _calling(outer.f_back)
        root = frame.f_locals["self"]
        self.roots.append(root)
        for name, each in root.named_modules():
            self._names.setdefault(each, f"{type(root).__name__}.{name}" if name else type(root).__name__)


def _calling(frame: FrameType | None) -> FrameType | None:
    """The innermost frame, from one on, in which a module is called."""
    while frame is not None and frame.f_code is not code_of_module_call:
        frame = frame.f_back
    return frame
