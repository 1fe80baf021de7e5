"""What of a model has a convention of its own, as data and as a table."""

from __future__ import annotations

import inspect
import warnings
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import GraphModule, Node, Tracer

from subgrad.apply.recorded_blocks import is_smooth, named, spelled
from subgrad.conventions import Convention
from subgrad.converting import graphs
from subgrad.converting.models import why_not
from subgrad.converting.under import Under
from subgrad.nn import Carries, Clamp


@dataclass(frozen=True)
class Line:
    """One module of a model.

    Attributes:
        path: its name in the model.
        module: its class.
        convention: the one that it has, or None where it was not reached.
        what: what of it has that convention, or why it was not reached.
    """

    path: str
    module: str
    convention: str | None
    what: str


@dataclass(frozen=True)
class Conversion:
    """What of a model has a convention of its own.

    Attributes:
        reached: the modules that have one.
        unreached: those with kinks that have none, and so take the convention around them.
    """

    reached: tuple[Line, ...]
    unreached: tuple[Line, ...]

    def __str__(self) -> str:
        rows = [(each.path, each.module, each.convention or "not reached", each.what) for each in self.lines]
        heads = ("module", "class", "convention", "what")
        widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
        table = [heads, *rows]
        shown = [
            "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in table
        ]
        end = "Methods other than forward, called from outside, take the convention in force around them."
        return "\n".join((*shown, "", end))

    @property
    def lines(self) -> tuple[Line, ...]:
        return (*self.reached, *self.unreached)


def conversion(model: torch.nn.Module) -> Conversion:
    """Which modules of a model have a convention of their own, and which with kinks have none.

    The calls in the code of a module are listed as `torch.fx` sees them; where it cannot follow the code, that is said.

    >>> import torch, subgrad
    >>> print(subgrad.conversion(subgrad.convert(torch.nn.Sequential(torch.nn.ReLU()), "mean")))
    module   class       convention  what
    (model)  Sequential  mean        its code
    0        ReLU        mean        subgrad.nn.ReLU
    <BLANKLINE>
    Methods other than forward, called from outside, take the convention in force around them.
    """
    lines = [line for path, module in model.named_modules() for line in _lines(path or "(model)", module)]
    reached = tuple(line for line in lines if line.convention is not None)
    return Conversion(reached, tuple(line for line in lines if line.convention is None))


def _lines(path: str, module: torch.nn.Module) -> list[Line]:
    name, why = type(module).__name__, why_not(module)
    if why is not None:
        return [Line(path, name, None, why)]
    if isinstance(module, Carries | Clamp):
        return [Line(path, name, str(module.convention), f"subgrad.nn.{name}")]
    if isinstance(module, GraphModule):
        return _of_graph(path, name, module)
    if isinstance(module, Under):
        return [Line(path, name, str(module.convention), _calls(module))]
    return [] if is_smooth(module) else [Line(path, name, None, "not converted")]


def _of_graph(path: str, name: str, module: GraphModule) -> list[Line]:
    lines = []
    for convention in dict.fromkeys(_convention(node) for node in graphs.calls(module)):
        nodes = [node for node in graphs.calls(module) if _convention(node) == convention]
        lines.append(Line(path, name, convention, f"its graph: {named(nodes)}"))
    lost = graphs.lost(module)
    return [*lines, Line(path, name, None, f"in its graph: {named(lost)}")] if lost else lines


def _convention(node: Node) -> str:
    given: Any = node.kwargs["convention"]
    return str(Convention(*given.args)) if isinstance(given, Node) else str(given)  # type: ignore[arg-type]


class _OwnCode(Tracer):
    """Records the code of one module, and of the modules in it only that they are called."""

    def is_leaf_module(self, m: torch.nn.Module, module_qualified_name: str) -> bool:
        return True


def _defaults(module: torch.nn.Module) -> dict[str, Any]:
    """The arguments that may be left out, on which the code of a module often branches."""
    parameters = inspect.signature(module.forward).parameters.values()
    return {each.name: each.default for each in parameters if each.default is not inspect.Parameter.empty}


def _calls(module: torch.nn.Module) -> str:
    """Its code, and the calls with kinks in it."""
    if type(module).__module__.startswith("torch.nn."):
        return "its code"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of what `torch.fx` could not keep, and nobody is about to run
            graph = _OwnCode().trace(module, _defaults(module))
    except Exception:
        return "its code, which torch.fx cannot list"
    functions = set(spelled().values())
    calls = [node for node in graph.nodes if node.target in functions]
    return f"its code: {named(calls)}" if calls else "its code"
