"""What `torch.jit.script` compiles where a program calls `subgrad.functional`: torch's own function, from text.

TorchScript compiles the source of functions and knows no keywords beside those in it. So for each function there is a
text that takes ``convention`` and calls torch's.
"""

from __future__ import annotations

import inspect
import linecache
from collections.abc import Callable, Iterable, Iterator
from typing import Any, List, Optional, Union  # noqa: UP035

from torch import Tensor

from subgrad.kinks.overloads import overload
from subgrad.torch_internals.dispatcher import schema_of

Number = Union[int, float]  # noqa: UP007  # as TorchScript knows it
# What the type of an argument of an overload is in a text.
TYPES: dict[str, Any] = {
    "Tensor": Tensor,
    "Optional[Tensor]": Optional[Tensor],  # noqa: UP045
    "number": Number,
    "Optional[number]": Optional[Number],  # noqa: UP045
    "float": float,
    "Optional[float]": Optional[float],  # noqa: UP045
    "int": int,
    "bool": bool,
    "str": str,
    "List[int]": List[int],  # noqa: UP006
    "Optional[int]": Optional[int],  # noqa: UP045
    "Optional[List[int]]": Optional[List[int]],  # noqa: UP006, UP045
}


def scripted(name: str, original: Callable[..., Any], op: str) -> Callable[..., Any]:
    """A function that TorchScript can compile, and that ignores its convention.

    Raises:
        RuntimeError: for functions of which TorchScript would need more than one.
    """
    parameters = _parameters(original, op)
    types = {f"type_of_{parameter}": kind for parameter, (kind, _) in parameters.items()}
    head = ", ".join(f"{each}: type_of_{each}{default}" for each, (_, default) in parameters.items())
    text = (
        f"def {name}({head}, convention: str = 'min-norm'):\n"
        f"    return original({', '.join(_passed(parameters, op, original))})\n"
    )
    place = f"<subgrad.functional.{name} for TorchScript>"
    linecache.cache[place] = (len(text), None, text.splitlines(keepends=True), place)
    found: dict[str, Any] = {"__name__": "subgrad.functional", "original": original, "Tensor": Tensor, **types}
    exec(compile(text, place, "exec"), found)
    return found[name]


def _parameters(original: Callable[..., Any], op: str) -> dict[str, tuple[Any, str]]:
    """Type and default of each."""
    try:
        given = inspect.signature(original).parameters.values()
        found = {each.name: (each.annotation, _default(each.default)) for each in given}
    except ValueError:  # of a built-in function: those of the overload, if that is what it calls
        found = {
            "input" if each.name == "self" else each.name: (
                TYPES.get(str(each.type)),
                _default(each.default_value if each.has_default_value() else inspect.Parameter.empty),
            )
            for each in schema_of(overload(op)).arguments
        }
    if op.startswith("_linalg") or any(kind in (None, inspect.Parameter.empty) for kind, _ in found.values()):
        raise RuntimeError(unscriptable(original.__name__))
    return found


def unscriptable(name: str) -> str:
    return (
        f"subgrad.functional.{name} does not go with torch.jit.script. Write torch's function under "
        "`if torch.jit.is_scripting():`, or use torch.jit.trace."
    )


def _passed(parameters: Iterable[str], op: str, original: Callable[..., Any]) -> Iterator[str]:
    """Built-in functions take some by name alone."""
    by_name = {each.name for each in schema_of(overload(op)).arguments if each.kwarg_only}
    for each in parameters:
        yield f"{each}={each}" if inspect.isbuiltin(original) and each in by_name else each


def _default(value: Any) -> str:
    return "" if value is inspect.Parameter.empty or isinstance(value, list) else f" = {value!r}"
