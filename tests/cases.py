"""The five published cases that started the project, user code unchanged, with every number.

Run as a program it measures them in the torch that is installed: ``python tests/cases.py`` prints JSON.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import forward_ad

import subgrad

Loss = Callable[..., Tensor]


@dataclass(frozen=True)
class Case:
    """A loss of some tensors, and its gradient in each of them under each convention.

    Attributes:
        name: what is asked.
        source: where it was published.
        loss: the user's code.
        inputs: where the gradient is taken.
        wanted: the gradients, by convention.
    """

    name: str
    source: str
    loss: Loss
    inputs: tuple[Tensor, ...]
    wanted: dict[str, tuple[list, ...]]

    def __str__(self) -> str:
        return self.name.replace(" ", "_")


def reverse(loss: Loss, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    leaves = [each.clone().requires_grad_() for each in inputs]
    return torch.autograd.grad(loss(*leaves), leaves)


def transformed(loss: Loss, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return torch.func.grad(loss, argnums=tuple(range(len(inputs))))(*inputs)


def compiled(loss: Loss, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return reverse(torch.compile(loss, fullgraph=True), inputs)


def forward(loss: Loss, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """One tangent after the other; what is not moved carries zeros, since it is differentiated too."""
    gradients = [torch.zeros_like(each) for each in inputs]
    for position, gradient in enumerate(gradients):
        for entry in range(gradient.numel()):
            tangents = [torch.zeros_like(each) for each in inputs]
            tangents[position].view(-1)[entry] = 1.0
            with forward_ad.dual_level():
                duals = [forward_ad.make_dual(*pair) for pair in zip(inputs, tangents, strict=True)]
                gradient.view(-1)[entry] = forward_ad.unpack_dual(loss(*duals)).tangent
    return tuple(gradients)


MODES = {"reverse": reverse, "torch.func.grad": transformed, "forward": forward, "torch.compile": compiled}

# Case 1: clamp against relu6 and hardtanh, at the bounds. Weights make the cotangents differ.
BOUNDED = {
    "F.relu(x)": (lambda x: F.relu(x), [0.0]),
    "F.relu6(x)": (lambda x: F.relu6(x), [0.0, 6.0]),
    "F.hardtanh(x, -1, 1)": (lambda x: F.hardtanh(x, -1, 1), [-1.0, 1.0]),
    "torch.clamp(x, 0, 6)": (lambda x: torch.clamp(x, 0, 6), [0.0, 6.0]),
    "torch.clamp(x, -1, 1)": (lambda x: torch.clamp(x, -1, 1), [-1.0, 1.0]),
    "torch.clamp_min(x, 0)": (lambda x: torch.clamp_min(x, 0), [0.0]),
    "torch.clamp_max(x, 6)": (lambda x: torch.clamp_max(x, 6), [6.0]),
}
BOUNDS = torch.tensor([place for _, places in BOUNDED.values() for place in places])
WEIGHTS = torch.arange(2.0, 2.0 + len(BOUNDS))


def bounded(x: Tensor) -> Tensor:
    parts = x.split([len(places) for _, places in BOUNDED.values()])
    outputs = [function(part) for (function, _), part in zip(BOUNDED.values(), parts, strict=True)]
    return (torch.cat(outputs) * WEIGHTS).sum()


# Case 2: four spellings of max(x, 0), and abs.
def spellings(x: Tensor) -> Tensor:
    y = torch.stack(
        [F.relu(x[0]), torch.maximum(x[1], torch.tensor(0.0)), torch.clamp_min(x[2], 0), torch.clamp(x[3], min=0)]
    )
    return (y * torch.tensor([2.0, 4.0, 6.0, 8.0])).sum() + 10 * torch.abs(x[4])


# Case 3: a worked chain rule.
def chain(a: Tensor, b: Tensor) -> Tensor:
    c = torch.clamp(a * b, 1, 5)
    return c.sum()


# Case 4: a small network, relu against clamp(min=0).
X = torch.tensor([[3.0, 2, 1], [1, 0, 2], [4, 1, 2], [0, 0, 1]])
W1 = torch.tensor([[1.0, 2], [0, 1], [4, 0]])
W2 = torch.tensor([[-1.0, 1], [-2, 3]])


def relu_minus_clamp(w1: Tensor, w2: Tensor) -> Tensor:
    with_relu = ((F.relu(X @ w1) @ w2 - 1) ** 2).sum()
    with_clamp = (((X @ w1).clamp(min=0) @ w2 - 1) ** 2).sum()
    return with_relu - with_clamp


def scalar(x: Tensor) -> Tensor:
    return (torch.clamp(x, min=0) - 1) ** 2


# Case 5: Hardtanh as documented for mobile networks.
def hardtanh_module(x: Tensor) -> Tensor:
    return (torch.nn.Hardtanh(-2.0, 3.0)(x) * torch.tensor([2.0, 3, 4, 5, 6])).sum()


def hardtanh_minus_relu6(x: Tensor) -> Tensor:
    weights = torch.tensor([2.0, 3, 4, 5, 6])
    return (torch.nn.Hardtanh(0, 6)(x) * weights).sum() - (torch.nn.ReLU6()(x) * weights).sum()


def _weighted(slopes: list[float]) -> list[float]:
    return (torch.tensor(slopes) * WEIGHTS).tolist()


CASES = (
    Case(
        "clamp against relu6 and hardtanh",
        "pytorch#184574",
        bounded,
        (BOUNDS,),
        {
            "min-norm": (_weighted([0] * 11),),
            "torch-2.13": (_weighted([0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1]),),
        },
    ),
    Case(
        "four spellings of max(x, 0)",
        "pytorch#184572",
        spellings,
        (torch.zeros(5),),
        {"min-norm": ([0.0, 0, 0, 0, 0],), "torch-2.13": ([0.0, 2, 6, 8, 0],)},
    ),
    Case(
        "a worked chain rule",
        "a blog post of 2026",
        chain,
        (torch.tensor([1.0, 2, 3, 4]), torch.tensor([1.0, 2, 1, 2])),
        {"min-norm": ([0.0, 2, 1, 0], [0.0, 2, 3, 0]), "torch-2.13": ([1.0, 2, 1, 0], [1.0, 2, 3, 0])},
    ),
    Case(
        "relu minus clamp in a small network",
        "a much-read question",
        relu_minus_clamp,
        (W1, W2),
        {
            "min-norm": ([[0.0, 0], [0, 0], [0, 0]], [[0.0, 0], [0, 0]]),
            "torch-2.13": ([[0.0, 0], [0, 0], [0, -38]], [[0.0, 0], [0, 0]]),
        },
    ),
    Case(
        "one number through clamp",
        "a much-read question",
        scalar,
        (torch.tensor(0.0),),
        {"min-norm": (0.0,), "torch-2.13": (-2.0,)},
    ),
    Case(
        "Hardtanh strictly inside its bounds",
        "a reference page",
        hardtanh_module,
        (torch.tensor([-5.0, -2, 0, 3, 5]),),
        {"min-norm": ([0.0, 0, 4, 0, 0],), "torch-2.13": ([0.0, 0, 4, 0, 0],)},
    ),
    Case(
        "Hardtanh(0, 6) minus ReLU6",
        "a reference page",
        hardtanh_minus_relu6,
        (torch.tensor([-1.0, 0, 3, 6, 7]),),
        {"min-norm": ([0.0, 0, 0, 0, 0],), "torch-2.13": ([0.0, 0, 0, 0, 0],)},
    ),
)


def measure(case: Case, convention: str, mode: str) -> tuple[list, ...]:
    """The gradients of a case in the installed torch."""
    with subgrad.use(convention):
        return tuple(gradient.tolist() for gradient in MODES[mode](case.loss, case.inputs))


def main() -> None:
    results = []
    for case in CASES:
        for convention, wanted in case.wanted.items():
            right = [mode for mode in MODES if measure(case, convention, mode) == wanted]
            results.append({"case": case.name, "convention": convention, "wanted": wanted, "right": right})
            print(f"  {case.name} under {convention}", file=sys.stderr)
    print(json.dumps({"torch": torch.__version__, "results": results}))


if __name__ == "__main__":
    main()
