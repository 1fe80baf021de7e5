"""Derivatives inside of a program: transforms of torch.func, and torch.autograd.grad with a graph."""

from __future__ import annotations

from clarke.mixed.table import Operation, entrywise, mp

SQUARE = "lambda v: ((F.relu(v) ** 2 + F.relu(-v) ** 2) / 2).sum()"  # smooth: its gradient is v
HUBER = "lambda v: F.huber_loss(v, torch.zeros_like(v), reduction='sum')"  # once differentiable: clamp(v, -1, 1)
CUBE = "lambda v: (v ** 3).sum() / 6"
SINES = "lambda v: v.sin().sum()"
BALL = "lambda v: torch.where(v.abs() < 1, v * v / 2, v.abs() - 0.5).sum()"  # as huber, by a comparison


def _gradients(f: str) -> tuple[str, ...]:
    """The ways to take the gradient of a scalar function inside of a program."""
    return (
        f"{{y}} = torch.func.grad({f})({{x}})",
        f"{{y}} = torch.func.jacrev({f})({{x}})",
        f"{{y}} = torch.func.jacfwd({f})({{x}})",
        f"{{y}} = torch.func.vjp({f}, {{x}})[1](torch.ones_like({{x}}.sum()))[0]",
        f"m = {{x}}.clone()\n{{y}} = torch.autograd.grad(({f})(m), m, create_graph=True)[0]",
    )


def _pushed(f: str) -> tuple[str, ...]:
    return (f"{{y}} = torch.func.jvp({f}, ({{x}},), ({{z}},))[1][None]",)


TRANSFORMS: dict[str, Operation] = {
    "gradient_of_square": Operation(entrywise(lambda x: x), _gradients(SQUARE), share=3),
    "gradient_of_huber": Operation(
        entrywise(lambda x: max(min(x, mp.mpf(1)), mp.mpf(-1))), (*_gradients(HUBER), *_gradients(BALL)), share=2
    ),
    "gradient_of_sines": Operation(entrywise(lambda x: mp.cos(x)), _gradients(SINES), share=2),
    "hessian_of_cube": Operation(
        entrywise(lambda x: x),
        (
            f"{{y}} = torch.func.hessian({CUBE})({{x}}).sum(1)",
            f"{{y}} = torch.func.jacrev(torch.func.grad({CUBE}))({{x}}).diagonal()",
            f"{{y}} = torch.func.jacfwd(torch.func.grad({CUBE}))({{x}}).sum(0)",
            f"m = {{x}}.clone()\nv = torch.autograd.grad(({CUBE})(m), m, create_graph=True)[0]\n"
            "{y} = torch.autograd.grad(v.sum(), m, create_graph=True)[0]",
        ),
        share=2,
    ),
    "pushed_square": Operation(
        lambda given, x, z: [sum(a * b for a, b in zip(x, z, strict=True))], _pushed(SQUARE), arity=2
    ),
    "pushed_sines": Operation(
        lambda given, x, z: [sum(mp.cos(a) * b for a, b in zip(x, z, strict=True))], _pushed(SINES), arity=2
    ),
    "gradient_penalty": Operation(
        lambda given, x: [(mp.sqrt(sum(each * each for each in x)) - 1) ** 2],
        (
            f"m = {{x}}.clone()\nv = torch.autograd.grad(({SQUARE})(m), m, create_graph=True)[0]\n"
            "{y} = ((v.norm() - 1) ** 2)[None]",
            f"{{y}} = ((torch.func.grad({SQUARE})({{x}}).norm() - 1) ** 2)[None]",
        ),
        narrowest=2,
    ),
}
