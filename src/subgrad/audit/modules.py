"""Which module is running, by its path: hooks on every module, there only while something is recorded."""

from __future__ import annotations

import sys
import threading
from typing import Any

from torch import nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.utils.hooks import RemovableHandle


class _Here(threading.local):
    def __init__(self) -> None:
        self.entered: list[nn.Module] = []


class Modules:
    """The modules that were entered and not left, in each thread, and their names."""

    def __init__(self, model: nn.Module | None):
        self._here = _Here()
        self._handles: list[RemovableHandle] = []
        self._names: dict[nn.Module, str] = {}
        self.roots: list[nn.Module] = []
        if model is not None:
            self._names.update({module: name for name, module in model.named_modules() if name})
            self._names[model] = type(model).__name__
            self.roots.append(model)

    def watch(self) -> None:
        if not self._handles:
            leave: Any = register_module_forward_hook(self._leave, always_call=True)
            self._handles = [register_module_forward_pre_hook(self._enter), leave]

    def forget(self) -> None:
        """No hook is left."""
        for handle in self._handles:
            handle.remove()
        self._handles = []
        self._here = _Here()

    def path(self) -> str:
        """Of the innermost module, ``""`` outside of all."""
        entered = self._here.entered
        return self._names.get(entered[-1], type(entered[-1]).__name__) if entered else ""

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

    def _enter(self, module: nn.Module, _: Any) -> None:
        if not self._here.entered and module not in self._names:  # called by no other: named after its class
            self.roots.append(module)
            root = type(module).__name__
            for name, each in module.named_modules():
                self._names.setdefault(each, f"{root}.{name}" if name else root)
        self._here.entered.append(module)

    def _leave(self, module: nn.Module, _: Any, __: Any) -> None:
        entered = self._here.entered
        if module in entered:  # else it was entered before we watched
            while entered.pop() is not module:
                pass  # one that raised
