"""Run calls on kinks in one framework, spelled in its own ways: cases come in as JSON, what was returned goes out.

Each ``with_*.py`` beside this file is run as a program, in an environment with that framework and without this package:
it lists the framework's spellings of each operation, and says how it differentiates.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

# A spelling, called with the arguments of a case by torch's names; what it lacks raises NotImplementedError.
Spelling = Callable[[Mapping[str, Any]], Any]
Spellings = Mapping[str, Mapping[str, Spelling]]


@dataclass(frozen=True)
class Framework:
    """How a framework differentiates.

    Attributes:
        version: of the package.
        array: a tensor of the framework from one of numpy's.
        reverse: of a function of named tensors, the tensors and a cotangent, its value and named gradients.
        forward: of the same and named tangents, the tangent of the value; None where there is no forward mode.
    """

    version: str
    array: Callable[[np.ndarray], Any]
    reverse: Callable[[Callable[..., Any], dict[str, Any], np.ndarray], tuple[Any, dict[str, Any]]]
    forward: Callable[[Callable[..., Any], dict[str, Any], dict[str, Any]], Any] | None = None


def main(framework: Framework, spellings: Spellings) -> None:
    """Answer the cases of standard input on standard output, which is kept clean of what the framework says."""
    cases = json.load(sys.stdin)
    with contextlib.redirect_stdout(sys.stderr):
        found = [
            {
                spelling: _returned(framework, call, case)
                for spelling, call in spellings.get(case["operator"], {}).items()
            }
            for case in cases
        ]
    lacking = {"version": framework.version, "cases": [_without_lacking(each) for each in found]}
    print(json.dumps(lacking))


def only_if(holds: bool) -> None:
    """For spellings of some numbers only."""
    if not holds:
        raise NotImplementedError


def reduced(a: Mapping[str, Any]) -> Any:
    """The dimensions of a reduction, or None for all."""
    dim = a.get("dim")
    return None if dim is None or dim == [] else tuple(dim) if isinstance(dim, list) else dim


def axis(a: Mapping[str, Any]) -> int | None:
    """The one dimension of a norm, or None for all."""
    dim = a.get("dim")
    return dim[0] if isinstance(dim, list) and dim else None


def power(a: Mapping[str, Any]) -> float:
    """The power of a norm, whose argument has two names."""
    return a["ord"] if "ord" in a else a["p"]


def _without_lacking(found: Mapping[str, Any]) -> dict[str, Any]:
    return {spelling: each for spelling, each in found.items() if each is not None}


def _returned(framework: Framework, spelling: Spelling, case: Mapping[str, Any]) -> dict[str, Any] | None:
    """The value, and the gradients in both modes; None for what the spelling does not cover."""
    arguments = {name: _argument(framework, case, name) for name in case["arguments"]}
    leaves = {name: arguments[name] for name in case["differentiated"]}

    def call(**tensors: Any) -> Any:
        return spelling({**arguments, **tensors})

    cotangent = np.asarray(case["cotangent"], np.float32)
    try:
        value, gradients = framework.reverse(call, leaves, cotangent)
    except NotImplementedError as error:
        return {"failed": _said(error)} if str(error) else None
    except Exception as error:
        return {"failed": _said(error)}
    value = np.asarray(value, np.float32)
    if value.shape != cotangent.shape:
        return {"failed": f"a value of shape {value.shape}, where {cotangent.shape} belongs"}
    found = {"value": value.tolist(), "reverse": {name: _entries(each, case, name) for name, each in gradients.items()}}
    if framework.forward is not None:
        try:
            found["forward"] = _forward(framework, call, case, cotangent)
        except Exception as error:
            found["forward"] = _said(error)
    return found


def _argument(framework: Framework, case: Mapping[str, Any], name: str) -> Any:
    given = case["arguments"][name]
    if name not in case["tensors"] or given is None:
        return given
    made = np.asarray(given)
    return framework.array(made.astype(np.float32 if made.dtype.kind == "f" else np.int32))


def _entries(gradient: Any, case: Mapping[str, Any], name: str) -> Any:
    """As nested lists, without the sign of zeros, which summing may lose."""
    return (np.asarray(gradient, np.float32).reshape(np.shape(case["arguments"][name])) + 0.0).tolist()


def _forward(framework: Framework, call: Callable[..., Any], case: Mapping[str, Any], cotangent: np.ndarray) -> Any:
    """The same gradients by forward mode: one tangent for all entries where each has its own, else one by one."""
    assert framework.forward is not None
    shapes = {name: np.shape(case["arguments"][name]) for name in case["differentiated"]}
    leaves = {name: _argument(framework, case, name) for name in shapes}
    entrywise = bool(case["kinks"]) and all(kink["hit"] is not None for kink in case["kinks"])

    def along(name: str, tangent: np.ndarray) -> np.ndarray:
        zeros = {each: np.zeros(shape, np.float32) for each, shape in shapes.items()}
        tangents = {each: framework.array(made) for each, made in {**zeros, name: tangent}.items()}
        return np.asarray(framework.forward(call, leaves, tangents), np.float32)  # type: ignore[misc]

    found = {}
    for name, shape in shapes.items():
        if entrywise:
            found[name] = _entries(along(name, cotangent), case, name)
            continue
        columns = np.eye(int(np.prod(shape)), dtype=np.float32)
        sums = [float((cotangent * along(name, column.reshape(shape))).sum()) for column in columns]
        found[name] = _entries(sums, case, name)
    return found


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".partition("\n")[0][:200]
