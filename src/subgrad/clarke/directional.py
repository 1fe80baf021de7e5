"""`jvp`: the one-sided derivative of a program in a direction that is given, with the interface of torch.func."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from subgrad.clarke.arguments import Arguments
from subgrad.clarke.engine.dead_entries import is_finite
from subgrad.clarke.engine.duals import carrying_tangents, tangent
from subgrad.clarke.engine.environment import by_itself
from subgrad.clarke.engine.errors import Jumps, Refused
from subgrad.clarke.engine.extrapolation import NEARER, derivative_limit
from subgrad.clarke.engine.limits import as_refusal
from subgrad.clarke.engine.near_kinks import has_near_kinks, looks_near, met
from subgrad.clarke.engine.nearby_runs import NOT_FOLLOWED, answers_nearby, check_all_reach, check_values
from subgrad.clarke.engine.passes import Beside, Decide, Look, lines
from subgrad.clarke.engine.program import Program
from subgrad.clarke.engine.quotients import Values
from subgrad.clarke.engine.search import require_values
from subgrad.clarke.engine.terms import Sizes
from subgrad.torch_internals.transforms import pytree


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
    is_alike = spec == pytree.tree_flatten(tuple(primals))[1]
    if not is_alike or any(v.shape != leaf.shape for v, leaf in zip(direction, arguments.leaves, strict=True)):
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
