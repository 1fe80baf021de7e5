"""`convert` and `unconvert`: which module of a model becomes what."""

from __future__ import annotations

import copy
from typing import Any, TypeVar

import torch
from torch.fx import GraphModule

from subgrad.apply.recorded_blocks import is_smooth
from subgrad.conventions import Convention
from subgrad.conventions import convention as as_convention
from subgrad.converting import graphs
from subgrad.converting.under import Under, under
from subgrad.nn import COUNTERPARTS, Carries, Clamp

Model = TypeVar("Model", bound=torch.nn.Module)


def convert(model: Model, convention: str | Convention, *, inplace: bool = False) -> Model:
    """Give the modules and the code of a model a convention of their own.

    Modules with a counterpart in `subgrad.nn` become that; the code of the others runs under the convention whenever
    they are called; graphs of `torch.fx` call `subgrad.functional`. Parameters, buffers and hooks are the same, so is
    ``state_dict``. Modules that carry a convention already keep it. ``print(subgrad.conversion(model))`` shows what
    changed, and what could not be reached.

    >>> import torch, subgrad
    >>> model = subgrad.convert(torch.nn.Sequential(torch.nn.ReLU()), "right")
    >>> x = torch.zeros(2, requires_grad=True)
    >>> torch.autograd.grad(model(x), x, torch.tensor([2.0, 3.0]))
    (tensor([2., 3.]),)

    Args:
        model: any model.
        convention: the name of a convention, or a ``Convention``.
        inplace: change this model, and return it; by default a copy.

    Raises:
        ValueError: for an unknown convention; the model then stays as it was.
    """
    chosen = as_convention(convention)
    model = unconvert(model, inplace=inplace)
    for module in list(model.modules()):
        if why_not(module) is None:
            _convert(module, chosen, is_root=module is model)
    return model


def unconvert(model: Model, *, inplace: bool = False) -> Model:
    """Take back what `convert` has changed; modules of `subgrad.nn` that were in the model before stay.

    Args:
        model: a model that was converted, or any.
        inplace: change this model, and return it; by default a copy.
    """
    model = model if inplace else copy.deepcopy(model)
    for module in list(model.modules()):
        if isinstance(module, Under):
            _become(module, module.plain)
        elif isinstance(module, Carries) and module.is_converted:
            del module.is_converted, module.convention
            _become(module, module.counterpart)
        elif isinstance(module, GraphModule) and graphs.is_converted(module):
            graphs.restore_graph(module)
    return model


def _become(module: Any, kind: type[torch.nn.Module]) -> Any:
    """Another class, and the same module."""
    module.__class__ = kind
    return module


def why_not(module: torch.nn.Module) -> str | None:
    """Why a module cannot be given a convention, if so."""
    if isinstance(module, torch.jit.ScriptModule):
        return "TorchScript holds operators alone"
    if "forward" in vars(module):
        return "its forward was replaced by that of something else"
    return None


def _convert(module: torch.nn.Module, convention: Convention, *, is_root: bool) -> None:
    kind = type(module)
    if kind in COUNTERPARTS:
        converted = _become(module, COUNTERPARTS[kind])
        converted.convention, converted.is_converted = convention, True
    elif isinstance(module, GraphModule):
        graphs.convert_graph(module, convention)
    elif not isinstance(module, Carries | Clamp) and (is_root or not is_smooth(module)):
        _become(module, under(kind, convention))
