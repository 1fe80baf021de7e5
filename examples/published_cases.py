"""Five published reports of gradients at kinks, each in a few lines of unchanged torch code, under two conventions.

1. pytorch#184574: clamp against relu6 and hardtanh, at their bounds.
2. pytorch#184572: four spellings of max(x, 0), at 0.
3. A worked chain rule: clamp(a * b, 1, 5), with a product on the lower bound.
4. A much-read question: relu against clamp(min=0) in a small network.
5. Hardtanh as its reference page documents it: 1 strictly inside, 0 at and outside the bounds.

    python examples/published_cases.py

prints

    1. torch-2.13 relu6 [0.0, 0.0], clamp(0, 6) [1.0, 1.0], clamp_min(0) [1.0, 1.0], clamp_max(6) [1.0, 1.0]
    1. min-norm   relu6 [0.0, 0.0], clamp(0, 6) [0.0, 0.0], clamp_min(0) [0.0, 1.0], clamp_max(6) [1.0, 0.0]
    2. torch-2.13 0.0, 0.5, 1.0, 1.0
    2. min-norm   0.0, 0.0, 0.0, 0.0
    3. torch-2.13 a.grad [1.0, 2.0, 1.0, 0.0], b.grad [1.0, 2.0, 3.0, 0.0]
    3. min-norm   a.grad [0.0, 2.0, 1.0, 0.0], b.grad [0.0, 2.0, 3.0, 0.0]
    4. torch-2.13 relu minus clamp: in w1 [0.0, 0.0, 0.0, 0.0, 0.0, -38.0], in w2 [0.0, 0.0, 0.0, 0.0]
    4. min-norm   relu minus clamp: in w1 [0.0, 0.0, 0.0, 0.0, 0.0, 0.0], in w2 [0.0, 0.0, 0.0, 0.0]
    5. torch-2.13 Hardtanh(0, 6) [0.0, 0.0, 1.0, 0.0, 0.0], min(max(x, 0), 6) [0.0, 0.5, 1.0, 0.5, 0.0]
    5. min-norm   Hardtanh(0, 6) [0.0, 0.0, 1.0, 0.0, 0.0], min(max(x, 0), 6) [0.0, 0.0, 1.0, 0.0, 0.0]
"""

import torch
import torch.nn.functional as F

import subgrad


def slopes(f, *points: float) -> list[float]:
    x = torch.tensor(points, requires_grad=True)
    return torch.autograd.grad(f(x).sum(), x)[0].tolist()


def bounds() -> str:
    functions = {
        "relu6": F.relu6,
        "clamp(0, 6)": lambda x: torch.clamp(x, 0, 6),
        "clamp_min(0)": lambda x: torch.clamp_min(x, 0),
        "clamp_max(6)": lambda x: torch.clamp_max(x, 6),
    }
    return ", ".join(f"{name} {slopes(f, 0.0, 6.0)}" for name, f in functions.items())


def spellings() -> str:
    zero = torch.tensor(0.0)
    functions = (F.relu, lambda x: torch.maximum(x, zero), lambda x: torch.clamp_min(x, 0), lambda x: x.clamp(min=0))
    return ", ".join(str(slopes(f, 0.0)[0]) for f in functions)


def chain_rule() -> str:
    a = torch.tensor([1.0, 2.0, 3.0, 4.0], requires_grad=True)
    b = torch.tensor([1.0, 2.0, 1.0, 2.0], requires_grad=True)
    torch.clamp(a * b, 1, 5).sum().backward()
    return f"a.grad {a.grad.tolist()}, b.grad {b.grad.tolist()}"


def network() -> str:
    x = torch.tensor([[3.0, 2, 1], [1, 0, 2], [4, 1, 2], [0, 0, 1]])
    found = []
    for act in (torch.relu, lambda x: x.clamp(min=0)):
        w1 = torch.tensor([[1.0, 2], [0, 1], [4, 0]], requires_grad=True)
        w2 = torch.tensor([[-1.0, 1], [-2, 3]], requires_grad=True)
        ((act(x @ w1) @ w2 - 1) ** 2).sum().backward()
        found.append((w1.grad, w2.grad))
    (one, two), (other, another) = found
    first, second = ((a - b).flatten().tolist() for a, b in ((one, other), (two, another)))
    return f"relu minus clamp: in w1 {first}, in w2 {second}"


def hardtanh() -> str:
    points = (-1.0, 0.0, 3.0, 6.0, 7.0)
    low, high = torch.tensor(0.0), torch.tensor(6.0)
    as_written = slopes(lambda x: torch.minimum(torch.maximum(x, low), high), *points)
    return f"Hardtanh(0, 6) {slopes(torch.nn.Hardtanh(0, 6), *points)}, min(max(x, 0), 6) {as_written}"


def main() -> None:
    for number, case in enumerate((bounds, spellings, chain_rule, network, hardtanh), 1):
        for convention in ("torch-2.13", "min-norm"):
            with subgrad.use(convention):
                print(f"{number}. {convention:10}", case())


if __name__ == "__main__":
    main()
