"""A nonsmooth problem, solved and certified: CB2 of Charalambous and Bandler.

It is the largest of three functions, and two of them tie at its minimiser. A solver stops beside it. There autograd's
gradient is that of one of the two, and long; the least element of all that ties nearby is 0, which proves a minimum.

    python examples/certified_minimum.py

prints

    x = (1.139, 0.900), f = 1.9522
    autograd's gradient there: 2.79 long
    least element of what ties within 0.001: 0.001; fits a convex function: True
    and at (1, 1), where three tie: 0.555
"""

import torch

import subgrad


def pieces(x: torch.Tensor) -> torch.Tensor:
    return torch.stack(
        [
            x[0] ** 2 + x[1] ** 4,
            (2 - x[0]) ** 2 + (2 - x[1]) ** 2,
            2 * torch.exp(x[1] - x[0]),
        ]
    )


def cb2(x: torch.Tensor) -> torch.Tensor:
    return pieces(x).max()


def solved() -> torch.Tensor:
    """Any solver will do: here L-BFGS on smooth functions that come nearer and nearer to CB2."""
    x = torch.tensor([2.0, 2.0], dtype=torch.float64, requires_grad=True)
    for width in (1.0, 1e-1, 1e-2, 1e-3, 1e-4):
        optimizer = torch.optim.LBFGS([x], max_iter=50, line_search_fn="strong_wolfe")

        def closure(width: float = width) -> torch.Tensor:
            x.grad = None
            loss = width * torch.logsumexp(pieces(x) / width, 0)
            loss.backward()
            return loss

        optimizer.step(closure)
    return x.detach()


def main() -> None:
    x = solved()
    print(f"x = ({x[0]:.3f}, {x[1]:.3f}), f = {cb2(x):.4f}")
    print(f"autograd's gradient there: {torch.func.grad(cb2)(x).norm():.2f} long")
    least = subgrad.min_norm(cb2, tol=1e-3)(x)
    print(f"least element of what ties within 0.001: {least.norm:.3f}; fits a convex function: {least.convex}")
    away = subgrad.min_norm(cb2, tol=1e-3)(torch.tensor([1.0, 1.0], dtype=torch.float64))
    print(f"and at (1, 1), where three tie: {away.norm:.3f}")


if __name__ == "__main__":
    main()
