"""`grad`, `value_and_grad`, `backward` and `jvp`, with the interfaces of torch.func and `loss.backward()`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial, wraps
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from torch.autograd import forward_ad

from subgrad.clarke.engine.certificate import Sizes, Values
from subgrad.clarke.engine.dead_entries import is_finite
from subgrad.clarke.engine.duals import carrying_tangents, tangent
from subgrad.clarke.engine.environment import by_itself
from subgrad.clarke.engine.errors import Jumps, Refused, defined_at
from subgrad.clarke.engine.extrapolation import NEARER, derivative_limit
from subgrad.clarke.engine.found import Found
from subgrad.clarke.engine.limits import as_refusal
from subgrad.clarke.engine.memory import Memory
from subgrad.clarke.engine.near_kinks import has_near_kinks, looks_near, met
from subgrad.clarke.engine.nearby_runs import NOT_FOLLOWED, answers_nearby, check_all_reach, check_values
from subgrad.clarke.engine.passes import Beside, Decide, Look, lines
from subgrad.clarke.engine.program import Program
from subgrad.clarke.engine.search import find, require_values
from subgrad.kinks.kink import unknown
from subgrad.torch_internals.tensors import hooks_of
from subgrad.torch_internals.tracing import break_graphs_at
from subgrad.torch_internals.transforms import pytree

Argnums = int | tuple[int, ...]


@dataclass(frozen=True)
class Element:
    """One element of the Clarke set of a program, and how it was found.

    Attributes:
        gradient: shaped as what the program was differentiated in.
        value: of the program.
        aux: what the program returned besides, with ``has_aux=True``.
        direction: along which the branches were decided.
        slope: the one-sided derivative of the program in that direction, from the tangent pass.
        product: the gradient times the direction. It equals ``slope`` up to rounding: the certificate.
        kinks: how many operators met a kink.
        tol: what was closer than this counted as tied. If it is not 0, the element belongs to a nearby point.
        extrapolated: no rule led to it; it is the limit of torch's own gradients along the direction, to about ten
            digits in double precision.
    """

    gradient: Any
    value: Tensor
    aux: Any
    direction: Any
    slope: float
    product: float
    kinks: int
    tol: float
    extrapolated: bool = False


class Arguments:
    """The arguments of a function as one list of leaves, those that are differentiated."""

    def __init__(
        self,
        f: Callable[..., Any],
        argnums: Argnums,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        has_aux: bool,
        trust_custom: bool = False,
    ):
        self.f, self.args, self.kwargs, self.has_aux, self.trust_custom = f, args, kwargs, has_aux, trust_custom
        self.numbers = [argnums] if isinstance(argnums, int) else list(argnums)
        if not all(-len(args) <= number < len(args) for number in self.numbers):
            raise RuntimeError(f"argnums={argnums} with {len(args)} positional arguments: give numbers of these.")
        self.numbers = [number % len(args) for number in self.numbers]
        chosen = tuple(args[number] for number in self.numbers)
        leaves, self.spec = pytree.tree_flatten(chosen[0] if isinstance(argnums, int) else chosen)
        self.is_single = isinstance(argnums, int)
        if not all(isinstance(leaf, Tensor) for leaf in leaves):
            other = next(leaf for leaf in leaves if not isinstance(leaf, Tensor))
            raise RuntimeError(f"Only tensors can be differentiated in, not {type(other).__name__}.")
        self.leaves: list[Tensor] = leaves

    def program(self) -> Program:
        leaves = [leaf if type(leaf) is Tensor and not leaf.requires_grad else leaf.detach() for leaf in self.leaves]
        given = self.f, *self.args, *self.kwargs.values()
        return Program(self.call, leaves, self.line, given, trusts_custom=self.trust_custom)

    @property
    def line(self) -> str:
        return defined_at(self.f)

    def find(self, seed: int, tol: float, **given: Any) -> Found:
        return by_itself(lambda: find(self.program(), seed, tol, **given))

    def call(self, leaves: list[Tensor]) -> tuple[Any, Any]:
        tree = pytree.tree_unflatten(leaves, self.spec)
        args = list(self.args)
        for number, argument in zip(self.numbers, (tree,) if self.is_single else tree, strict=True):
            args[number] = argument
        out = self.f(*args, **self.kwargs)
        if not self.has_aux:
            return out, None
        if not isinstance(out, tuple) or len(out) != 2:
            raise RuntimeError("With has_aux=True the function must return a tuple (value, aux).")
        return out

    def shaped(self, vector: Iterable[Tensor | None]) -> Any:
        pairs = zip(vector, self.leaves, strict=True)
        return pytree.tree_unflatten(
            [torch.zeros_like(leaf) if each is None else each for each, leaf in pairs], self.spec
        )

    def element(self, found: Found, tol: float) -> Element:
        assert found.direction is not None
        assert found.slope is not None
        assert found.product is not None
        direction = self.shaped(found.direction)
        gradient = self.shaped(found.gradient)
        aux = without_graph(found.aux)
        numbers = found.slope, found.product, found.kinks, tol, found.extrapolated
        return Element(gradient, found.value, aux, direction, *numbers)


def without_graph(aux: Any) -> Any:
    return pytree.tree_map_only(Tensor, Tensor.detach, aux)


def require_function(name: str, f: object, argnums: object) -> None:
    """What ``grad(f, x)`` for ``grad(f)(x)`` would only say later."""
    if not callable(f):
        raise TypeError(f"subgrad.{name}: give a function, not {type(f).__name__}.")
    numbers = argnums if isinstance(argnums, tuple) else (argnums,)
    if not all(isinstance(number, int) and not isinstance(number, bool) for number in numbers):
        raise TypeError(
            f"subgrad.{name}: argnums says which arguments to differentiate in, as 0 or (0, 1), not "
            f"{type(argnums).__name__}. The arguments themselves go to what it returns: subgrad.{name}(f)(x)."
        )


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


def jvp(
    f: Callable[..., Any], primals: tuple[Any, ...], tangents: tuple[Any, ...], has_aux: bool = False, tol: float = 0.0
) -> tuple[Any, ...]:
    """The value of a function and its one-sided derivative in a direction, exact at kinks, as `torch.func.jvp`.

    >>> import torch, subgrad
    >>> zero, one = torch.tensor(0.0), torch.tensor(1.0)
    >>> subgrad.jvp(torch.abs, (zero,), (one,)), subgrad.jvp(torch.abs, (zero,), (-one,))
    ((tensor(0.), tensor(1.)), (tensor(0.), tensor(1.)))

    Args:
        f: any function of tensors, or pytrees of them, that returns such; with ``has_aux`` a pair of that and anything.
        primals: its arguments.
        tangents: the direction, shaped as these.
        has_aux: whether ``f`` returns something besides; the result is then ``(value, derivative, aux)``.
        tol: quantities within it of a tie count as tied.
    """
    if not all(isinstance(each, tuple | list) for each in (primals, tangents)):
        raise TypeError(
            "subgrad.jvp: primals and tangents are tuples, one entry an argument: write jvp(f, (x,), (v,))."
        )
    arguments = Arguments(f, tuple(range(len(primals))), tuple(primals), {}, has_aux)
    direction, spec = pytree.tree_flatten(tuple(tangents))
    if spec != arguments.spec or any(
        v.shape != leaf.shape for v, leaf in zip(direction, arguments.leaves, strict=False)
    ):
        raise RuntimeError("jvp: the tangents must be shaped as the primals.")
    program = arguments.program()
    program.copied = True
    return by_itself(lambda: _jvp(program, direction, tol, has_aux))


def _jvp(program: Program, direction: list[Tensor], tol: float, has_aux: bool) -> tuple[Any, ...]:
    with program.as_after_one_run():
        value, aux, looked, refusal = _evaluated(program)
        leaves, shape = pytree.tree_flatten(value)
        try:
            if refusal is not None:
                raise refusal
            found = _from_rules(program, direction, leaves, tol, looked)
        except Jumps:
            raise
        except Exception as error:
            is_hidden = bool(tol) or (refusal is None and has_near_kinks(program))
            limits = None if is_hidden else derivative_limit(program, direction)
            if limits is None or not _are_limits(program, direction, limits):
                raise as_refusal(error, program) from error
            rest = iter(limits)
            found = [next(rest).to(leaf) if leaf.is_floating_point() else torch.zeros_like(leaf) for leaf in leaves]
            check_all_reach(Values(program, direction), limits, [program.line])
        require_values(program, direction)
    result = value, pytree.tree_unflatten(found, shape)
    return (*result, aux) if has_aux else result


def _evaluated(program: Program) -> tuple[Any, Any, Look, Refused | None]:
    """The value, the rest, what was seen on the way, and what is met that has no rule."""
    looked = Look(0.0)
    try:
        return *program.evaluate(looked), looked, None
    except Refused as error:
        program.rewind()
        return *program.evaluate(Beside()), looked, error


def _are_limits(program: Program, direction: list[Tensor], limits: list[Tensor]) -> bool:
    """Whether values move so, or their quotients tend there from nearer as well, if as slowly as beside x sqrt(x)."""
    if _are_what_values_do(program, direction, limits):
        return True
    nearer = derivative_limit(program, direction, NEARER)
    return nearer is not None and all(map(partial(torch.allclose, rtol=1e-6, atol=1e-6), limits, nearer))


def _from_rules(program: Program, direction: list[Tensor], leaves: list[Any], tol: float, looked: Look) -> list[Tensor]:
    found, current = _slopes(program, Decide(tol), direction, leaves)
    undecided = lines(current.undecided)
    if undecided:
        found = _slopes_nearby(program, direction, leaves, tol, undecided[0])
    pairs = [(leaf, slope) for leaf, slope in zip(leaves, found, strict=True) if leaf.is_floating_point()]
    slopes = [slope for _, slope in pairs]
    if not is_finite([torch.where(leaf.isfinite(), slope, 0) for leaf, slope in pairs]):
        raise Refused(f"The derivative of the program at {program.line} is not finite where its value is.")
    if tol:
        return found
    along = Values(program, direction)
    if _are_what_values_do(program, direction, slopes, along) or _are_beside_kinks(program, direction, leaves):
        turned = [*lines(current.tied), *looked.leaks, *looked.customs, *looked.reads]
        if turned or looked.differentiates:
            check_all_reach(along, slopes, turned or [program.line])
        return found
    raise Refused(
        f"The derivative that was found for the program at {program.line} is not what its values do in this direction. "
        "Some part of it jumps, or has a derivative of its own making, where nothing could see it."
    )


def _are_beside_kinks(program: Program, direction: list[Tensor], leaves: list[Any]) -> bool:
    """Whether values deny what rules say for kinks that are not met, and are nearer than the steps: `near_kinks`."""
    expected = met(program)
    for tol, near in looks_near(program):
        if near.new(expected)[1]:
            return False
        try:
            found, current = _slopes(program, Decide(tol), direction, leaves)
            slopes = [slope for leaf, slope in zip(leaves, found, strict=True) if leaf.is_floating_point()]
            if not lines(current.undecided) and _are_what_values_do(program, direction, slopes):
                return True
        except Exception:  # the tolerance is none for this program
            continue
    return False


def _slopes_nearby(program: Program, direction: list[Tensor], leaves: list[Any], tol: float, line: str) -> list[Tensor]:
    """Values and derivatives both tie: two runs a little further on answer, and must lead to the same."""
    try:
        notes = answers_nearby(program, direction, 2, cuts=True)
        one, other = (_slopes(program, Decide(tol, nearby=nearby), direction, leaves)[0] for nearby in notes)
        if all(torch.allclose(*pair, rtol=1e-3, atol=1e-6, equal_nan=True) for pair in zip(one, other, strict=True)):
            return one
    except NOT_FOLLOWED:
        pass
    raise Refused(
        f"{line} ties in its values and in their derivatives in this direction, and what follows from it differs a "
        "little further on."
    )


def _are_what_values_do(
    program: Program, direction: list[Tensor], slopes: list[Tensor], along: Values | None = None
) -> bool:
    """Whether every entry moves as its derivative says."""
    largest = max((float(slope.abs().nan_to_num(0, 0, 0).amax()) for slope in slopes if slope.numel()), default=0.0)
    pairs = [(leaf, v) for leaf, v in zip(program.leaves, direction, strict=True) if leaf.numel()]
    ratios = [float(leaf.abs().amax()) / float(v.abs().amax()) for leaf, v in pairs if bool(v.any())]
    return (along or Values(program, direction)).agree(slopes, Sizes(largest, largest * max(ratios, default=0.0)))


def _further(program: Program, direction: list[Tensor], number: int, step: float) -> Tensor:
    """One of the values, a little further on."""
    return pytree.tree_leaves(program.moved(direction, step, wide=False))[number]


def _slopes(
    program: Program, current: Decide, direction: list[Tensor], leaves: list[Any]
) -> tuple[list[Tensor], Decide]:
    with carrying_tangents(and_a_graph=program.differentiates):
        if program.differentiates:
            _, out = program.with_both(current, direction)
        else:
            out, _ = program.with_tangents(current, direction)
        duals = pytree.tree_leaves(out)
        moved = [tangent(each) for each in duals]
        found = [
            torch.zeros_like(leaf) if each is None else each.detach().clone()
            for leaf, each in zip(leaves, moved, strict=True)
        ]
        reached = [forward_ad.unpack_dual(each).primal.detach().clone() for each in duals]
    for number, (value, other, slope) in enumerate(zip(leaves, reached, found, strict=True)):
        if value.is_floating_point():
            check_values(value, other, partial(_further, program, direction, number), slope, current, program)
    return found, current
