"""A program that uses what is public, for pyright in strict mode: what it is given back has types that are known."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

import subgrad
from subgrad.audit import Cause, Change, Effect, Port, Row
from subgrad.clarke import Element, MinNorm
from subgrad.testing import Conformance, FoundKink
from subgrad.testing.conformance_pack import Case


@subgrad.use("min-norm")
def decorated(x: Tensor, times: int = 1) -> Tensor:
    return torch.relu(x) * times


def program(x: Tensor) -> Tensor:
    return torch.relu(x).sum()


def conventions(x: Tensor) -> list[Tensor]:
    subgrad.set_default("torch", strong_zero=True)
    with subgrad.use(subgrad.Convention("min-norm", relu=1.0, clamp="pass-through")) as chosen:
        name: str = chosen.base
        active: subgrad.Convention = subgrad.active()
    places: list[str] = [f"{kink.op} {kink.place} {kink.set}" for kink in subgrad.kinks["relu"]]
    print(name, active, places, subgrad.kinks.names)
    return [decorated(x, times=2), subgrad.functional.clamp(x, 0, 6, convention="mean"), subgrad.nn.ReLU()(x)]


def whole_program(x: Tensor, model: nn.Module) -> None:
    found: Element = subgrad.element(program)(x)
    several: tuple[Element, ...] = subgrad.elements(program, tries=4)(x)
    least: MinNorm = subgrad.min_norm(program, accuracy=1e-6)(x)
    loss: Tensor = subgrad.backward(lambda: program(x), model.parameters(), seed=1)
    gradient: Any = subgrad.grad(program, argnums=(0,), element="min-norm")(x)
    value, slope = subgrad.jvp(program, (x,), (x,))
    print(found.slope, len(several), least.norm, loss, gradient, value, slope, subgrad.value_and_grad(program)(x))


def audited(model: nn.Module, x: Tensor) -> None:
    with subgrad.audit(model, compare=["torch-2.13", "torch-2.14"], every=1) as session:
        print(torch.autograd.grad(program(x), x))
    audit: subgrad.Audit = session.result
    rows: tuple[Row, ...] = audit.rows
    causes: list[Cause] = [cause for effect in audit.effects for cause in effect.causes]
    effect: Effect | tuple[Effect, ...] = subgrad.compare(lambda: program(x), {"x": x}, ["mean", "torch"])
    changes: list[Change] = [] if isinstance(effect, tuple) else list(effect.changes)
    port: Port = subgrad.compare(lambda: program(x), model, reference={"x": [1.0]})
    lines: list[str] = [str(each) for each in subgrad.explain_nan(lambda: program(x), model).nonfinite]
    print(rows, causes, changes, port.explained, lines, audit.verdicts, subgrad.Audit.from_json(audit.to_json()))


def backend(case: Case) -> tuple[Any, dict[str, Any]]:
    return None, dict.fromkeys(case.differentiated)


def checked(x: Tensor) -> None:
    subgrad.testing.assert_same_gradient(program, decorated, x)
    right: bool = subgrad.testing.gradcheck(program, (x,))
    kinks: tuple[FoundKink, ...] = subgrad.testing.find_kinks(program, (-1, 1))
    conformance: Conformance = subgrad.testing.conformance(backend)
    print(right, [kink.operator for kink in kinks], conformance.passed)
