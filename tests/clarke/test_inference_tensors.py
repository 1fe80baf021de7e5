"""What was made inside `inference_mode`: constants are taken, parameters and what is written into refused."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import subgrad
from subgrad.clarke import Refused

with torch.inference_mode():
    C = torch.tensor([2.0, 3.0])
    MODULE = nn.Linear(2, 2)
    MODULE.load_state_dict({"weight": torch.tensor([[1.0, -2.0], [0.5, 1.0]]), "bias": torch.tensor([0.25, -0.125])})
    COUNT = torch.zeros(2)

PROGRAMS: dict[str, Callable[[Tensor, Tensor, nn.Module], Tensor]] = {
    "a product": lambda x, c, module: (x * c).sum(),
    "kinks": lambda x, c, module: (x.abs() * c).sum() + F.relu(x - 0 * c).sum(),
    "a module": lambda x, c, module: module(x).relu().sum() + x.abs().sum(),
    "a choice": lambda x, c, module: torch.where(c > 2.5, x, -x).abs().sum(),
    "a place": lambda x, c, module: (x[c.argsort()] * c).relu().sum(),
    "in a list": lambda x, c, module: (torch.cat([x, c]) ** 2).sum(),
    "a view": lambda x, c, module: ((x * c[1:]).abs() * c.view(2)).sum(),
}
WHERE: dict[str, Callable[[], AbstractContextManager[None]]] = {
    "inside": lambda: torch.inference_mode(),
    "outside": lambda: nullcontext(),
}


def made_outside(program: Callable[[Tensor, Tensor, nn.Module], Tensor], x: Tensor) -> Tensor:
    """Torch's gradient, with constants of the same numbers that autograd takes."""
    with torch.inference_mode(False):
        module = nn.Linear(2, 2)
        module.load_state_dict({name: each.detach().clone() for name, each in MODULE.state_dict().items()})
        return torch.func.grad(lambda x: program(x, C.clone(), module))(x.clone())


@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("name", PROGRAMS)
def test_constants_are_taken_as_they_are(name: str, where: str) -> None:
    program: Callable[[Tensor], Tensor] = lambda x: PROGRAMS[name](x, C, MODULE)  # noqa: E731
    with WHERE[where]():
        smooth, kinked = torch.tensor([0.5, -1.0]), torch.tensor([0.0, 1.0])
        gradient = subgrad.grad(program)
        for _ in range(2):
            torch.testing.assert_close(gradient(smooth), made_outside(PROGRAMS[name], smooth))
        found = subgrad.element(program)(kinked)
        if found.direction is not None:
            torch.testing.assert_close(
                gradient(kinked), made_outside(PROGRAMS[name], kinked + 1e-3 * found.direction), rtol=1e-2, atol=1e-2
            )
        _, slope = subgrad.jvp(program, (kinked,), (torch.ones(2),))
        ahead = (program(kinked + 2.0**-10 * torch.ones(2)) - program(kinked)).detach()
        assert float(slope) == pytest.approx(float(ahead) * 2**10, rel=1e-2)


def test_parameters_may_be_multiplied_with_them() -> None:
    parameter = nn.Parameter(torch.zeros(2))
    subgrad.backward(lambda: (parameter.abs() * C).sum(), parameter)
    assert parameter.grad is not None
    assert parameter.grad.abs().tolist() == [2.0, 3.0]


def test_what_torch_does_not_differentiate_is_refused() -> None:
    with torch.inference_mode():
        parameter = nn.Parameter(torch.zeros(2))
        with pytest.raises(Refused, match=r"test_inference_tensors\.py"):
            subgrad.backward(lambda: (parameter * parameter).sum() + parameter.abs().sum(), [parameter])
        assert parameter.grad is None
    with pytest.raises(Refused, match=r"test_inference_tensors\.py"):
        subgrad.grad(lambda x: (COUNT.add_(1) * x).sum())(torch.zeros(2))
    assert COUNT.tolist() == [0.0, 0.0]
