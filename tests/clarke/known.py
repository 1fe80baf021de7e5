"""Small expressions whose Clarke sets are known: `cases.json`, with the vertices of each or, at norms, its sphere."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from math import inf
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor


@dataclass(frozen=True)
class Sphere:
    centre: tuple[float, ...]
    radius: float


@dataclass(frozen=True)
class Case:
    """Lines of code, the last of which is the result, and a point; the elements that one direction may lead to."""

    name: str
    code: tuple[str, ...]
    x: tuple[float, ...]
    meaning: str
    vertices: tuple[tuple[float, ...], ...] = ()
    sphere: Sphere | None = None

    def __call__(self, x: Tensor) -> Tensor:
        return self.function(x)

    @property
    def function(self) -> Callable[[Tensor], Tensor]:
        return _compiled(self.code)

    def tensor(self, dtype: torch.dtype = torch.float64) -> Tensor:
        return torch.tensor(self.x, dtype=dtype)

    def distance(self, element: Tensor) -> float:
        """From the element to the nearest that is allowed."""
        element = element.detach().double()
        if self.sphere:
            away = (element - element.new_tensor(self.sphere.centre)).norm()
            return abs(float(away) - self.sphere.radius)
        return float((element.new_tensor(self.vertices) - element).norm(dim=1).min())


@cache
def _compiled(code: tuple[str, ...]) -> Callable[[Tensor], Tensor]:
    body = "".join(f"    {line}\n" for line in (*code[:-1], f"return {code[-1]}"))
    scope: dict[str, Any] = {"torch": torch, "F": F, "inf": inf}
    exec(f"def case(x):\n{body}", scope)
    return scope["case"]


def _case(line: dict[str, Any]) -> Case:
    sphere = line.get("sphere")
    return Case(
        line["name"],
        tuple(line["code"]),
        tuple(line["x"]),
        line["meaning"],
        tuple(map(tuple, line.get("vertices", ()))),
        Sphere(tuple(sphere["centre"]), sphere["radius"]) if sphere else None,
    )


CASES = [_case(line) for line in json.loads((Path(__file__).parent / "cases.json").read_text())]
