"""`grad`, `value_and_grad`, `element` and `backward`, with the interfaces of torch.func and `loss.backward()`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from subgrad.clarke.arguments import Argnums, Arguments, Element, require_function, without_graph
from subgrad.clarke.engine.environment import by_itself
from subgrad.clarke.engine.errors import defined_at
from subgrad.clarke.engine.found import Found
from subgrad.clarke.engine.memory import Memory
from subgrad.clarke.engine.program import Program
from subgrad.clarke.engine.search import find
from subgrad.kinks.kink import unknown
from subgrad.torch_internals.tensors import hooks_of
from subgrad.torch_internals.tracing import break_graphs_at

ELEMENTS = ("clarke", "min-norm", "mean")


def _known_element(name: str) -> str:
    if name not in ELEMENTS:
        raise ValueError(unknown("element", name, list(ELEMENTS)))
    return name


def _found(element: str, arguments: Arguments, seed: int, tol: float, memory: Memory) -> Found:
    if element == "clarke":
        return arguments.find(seed, tol, memory=memory)
    from subgrad.clarke.least_element import least_found, mean_found  # which are built on this file

    return (least_found if element == "min-norm" else mean_found)(arguments, seed, tol)


def value_and_grad(
    f: Callable[..., Any],
    argnums: Argnums = 0,
    has_aux: bool = False,
    seed: int = 0,
    tol: float = 0.0,
    element: str = "clarke",
    trust_custom: bool = False,
) -> Callable[..., tuple[Any, Any]]:
    """As `grad`, and the value of the program, bit for bit: ``(value, gradient)``, or ``((value, aux), gradient)``.

    >>> import torch, subgrad
    >>> subgrad.value_and_grad(lambda x: torch.relu(x) - torch.relu(-x))(torch.tensor(0.0))
    (tensor(0.), tensor(1.))
    """

    require_function("value_and_grad", f, argnums)
    memory, wanted = Memory(), _known_element(element)

    @wraps(f)
    def gradient(*args: Any, **kwargs: Any) -> tuple[Any, Any]:
        arguments = Arguments(f, argnums, args, kwargs, has_aux, trust_custom)
        found = _found(wanted, arguments, seed, tol, memory)
        value = (found.value, without_graph(found.aux)) if has_aux else found.value
        return value, arguments.shaped(found.gradient)

    return break_graphs_at(gradient)


def grad(
    f: Callable[..., Any],
    argnums: Argnums = 0,
    has_aux: bool = False,
    seed: int = 0,
    tol: float = 0.0,
    element: str = "clarke",
    trust_custom: bool = False,
) -> Callable[..., Any]:
    """The gradient of a program, as `torch.func.grad`; at kinks an element of its Clarke set.

    Where the program is differentiable it is the gradient, however the program is written:

    >>> import torch, subgrad
    >>> f = lambda x: torch.relu(x) - torch.relu(-x)  # x
    >>> x = torch.tensor(0.0)
    >>> torch.func.grad(f)(x), subgrad.grad(f)(x)
    (tensor(0.), tensor(1.))

    Where it is not, the branches that a random direction takes at the kinks decide. The program is run once if no kink
    is met, else three times, with the same random numbers.

    Args:
        f: a function that returns a scalar tensor, or with ``has_aux`` a pair of that and anything.
        argnums: which arguments to differentiate in, each a tensor or a pytree of tensors.
        has_aux: whether ``f`` returns something besides; the result is then ``(gradient, aux)``.
        seed: of the direction: the same seed gives the same element.
        tol: quantities within it of a tie count as tied; the element then belongs to a nearby point.
        element: which one: ``"clarke"``, what one direction finds; ``"min-norm"``, the least, as `min_norm` finds it,
            against which a convex function falls; ``"mean"`` of the distinct ones that some directions find.
        trust_custom: take the derivatives of every `torch.autograd.Function` in the program as they are given, be they
            those of its values or not, as a straight-through estimator's. Nothing is then held against values.

    Raises:
        Refused: where the program has no such gradient; the message has its line.
    """

    require_function("grad", f, argnums)
    memory, wanted = Memory(), _known_element(element)

    @wraps(f)
    def gradient(*args: Any, **kwargs: Any) -> Any:
        arguments = Arguments(f, argnums, args, kwargs, has_aux, trust_custom)
        found = _found(wanted, arguments, seed, tol, memory)
        result = arguments.shaped(found.gradient)
        return (result, without_graph(found.aux)) if has_aux else result

    return break_graphs_at(gradient)


def element(
    f: Callable[..., Any],
    argnums: Argnums = 0,
    has_aux: bool = False,
    seed: int = 0,
    tol: float = 0.0,
    trust_custom: bool = False,
) -> Callable[..., Element]:
    """As `grad`, with the direction that decided and the certificate that the gradient keeps, kink or not.

    >>> import torch, subgrad
    >>> found = subgrad.element(torch.abs, seed=3)(torch.tensor(0.0))
    >>> abs(found.product - found.slope) < 1e-6, float(found.gradient) == torch.sign(found.direction)
    (True, tensor(True))
    """
    require_function("element", f, argnums)

    @wraps(f)
    def found(*args: Any, **kwargs: Any) -> Element:
        arguments = Arguments(f, argnums, args, kwargs, has_aux, trust_custom)
        return arguments.element(arguments.find(seed, tol, certify=True), tol)

    return found


_memories: WeakKeyDictionary[Any, Memory] = WeakKeyDictionary()  # by the code of a closure, often made anew


def backward(
    closure: Callable[[], Tensor],
    params: Iterable[Tensor] | Tensor,
    seed: int = 0,
    tol: float = 0.0,
    trust_custom: bool = False,
) -> Tensor:
    """Add the gradient of a loss to ``.grad`` of the parameters, as ``closure().backward()``; returns the loss.

    >>> import torch, subgrad
    >>> head = torch.nn.Linear(3, 1)
    >>> _ = torch.nn.init.zeros_(head.weight), torch.nn.init.zeros_(head.bias)
    >>> softplus = lambda z: torch.relu(z) + torch.log1p(torch.exp(-z.abs()))  # smooth; its slope at 0 is 1/2
    >>> loss = subgrad.backward(lambda: softplus(head(torch.ones(3))).sum(), head.parameters())
    >>> head.bias.grad
    tensor([0.5000])
    """
    if not callable(closure):
        raise TypeError(f"subgrad.backward: give a function that returns the loss, not {type(closure).__name__}.")
    leaves = _leaves(params)
    wanted = [leaf for leaf in leaves if leaf.requires_grad]
    if not all(leaf.is_leaf for leaf in wanted):
        raise RuntimeError("Only leaves, as the parameters of a module, have a .grad to add to.")
    memory = _memories.setdefault(getattr(closure, "__code__", closure), Memory())
    line = defined_at(closure)
    program = Program(lambda _: (closure(), None), wanted, line, [closure], held=True, trusts_custom=trust_custom)
    with _without_hooks(wanted):
        found = by_itself(lambda: find(program, seed, tol, memory=memory))
    pairs = [(leaf, each) for leaf, each in zip(wanted, found.gradient, strict=True) if each is not None]
    if pairs:  # accumulates, and calls hooks, as it always does
        torch.autograd.backward([leaf for leaf, _ in pairs], [each for _, each in pairs])
    return found.value


def _leaves(params: Iterable[Tensor] | Tensor) -> list[Tensor]:
    """
    Raises:
        TypeError: for modules, dictionaries and the like, with what to write.
    """
    if isinstance(params, torch.nn.Module) and not isinstance(params, torch.nn.ParameterList):
        wrong, rather = f"a {type(params).__name__}", "model.parameters()"
    elif isinstance(params, Mapping):
        wrong, rather = "a dictionary", "its values()"
    elif not isinstance(params, Iterable):
        wrong, rather = type(params).__name__, "model.parameters()"
    else:
        leaves = [params] if isinstance(params, Tensor) else list(params)
        other = next((each for each in leaves if not isinstance(each, Tensor)), None)
        if other is None:
            return leaves
        wrong, rather = f"{type(other).__name__}s", "model.parameters()"
    raise TypeError(f"subgrad.backward: the second argument is the tensors to differentiate in: {rather}, not {wrong}.")


@contextmanager
def _without_hooks(leaves: list[Tensor]) -> Iterator[None]:
    """Hooks of leaves see the gradient that is found, once."""
    hooks = [(each, dict(each)) for leaf in leaves if (each := hooks_of(leaf))]
    try:
        for each, _ in hooks:
            each.clear()
        yield
    finally:
        for each, kept in hooks:
            each.update(kept)
