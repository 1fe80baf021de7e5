"""Rows for an operator that is not torch's, checked before anything is believed of them.

Rows of torch's own operators are held against the forward function by tests. These are held against it when they are
given: a false row would give false gradients.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from subgrad.kinks.expressions import names
from subgrad.kinks.kink import ALIASES, Kink, unknown, user_name
from subgrad.kinks.overloads import argument_names, call_by_name, has_autograd, is_torchs, overload, tensor_names
from subgrad.kinks.samples import filled
from subgrad.kinks.sets import Slopes, Ties
from subgrad.kinks.table import KINKS
from subgrad.torch_internals.dispatcher import schema_of

STEP = 2.0**-10  # of differences, of which two are extrapolated: exact to 1e-6, and in float32 to 1e-3
SAME = 2e-3

Call = Mapping[str, Any]


def require_rows(kinks: Sequence[Kink]) -> str:
    """The operator of some rows that can be added to the table.

    Raises:
        ValueError: for rows that cannot.
    """
    if not kinks or not all(isinstance(kink, Kink) for kink in kinks):
        raise ValueError('no rows: give one or more, subgrad.Kink("mylib::op", "0", subgrad.Slopes(0.0, 1.0)).')
    op, *others = dict.fromkeys(kink.op for kink in kinks)
    if others:
        raise ValueError(f"rows of {op} and {', '.join(others)}: give those of one operator at a time.")
    if is_torchs(op) or op.startswith("aten::"):
        raise ValueError(
            f'{op}: write the namespace and the name, "mylib::op". Torch\'s own operators have their rows.'
        )
    _require_operator(op)
    for kink in kinks:
        _require_row(kink)
    return op


def _require_operator(op: str) -> None:
    try:
        schema = schema_of(overload(op))
    except AttributeError:
        raise ValueError(f"there is no operator {op}: import the package that defines it first.") from None
    kinds = [str(argument.type) for argument in schema.arguments]
    results = [str(each.type) for each in schema.returns]
    if results != ["Tensor"] or schema.is_mutable or any("List[" in kind and "Tensor" in kind for kind in kinds):
        raise ValueError(f"{schema}: only operators that return one tensor, take no lists of them and write into none.")
    if "self" not in tensor_names(op) or schema.arguments[argument_names(op).index("self")].kwarg_only:
        raise ValueError(f"{schema}: only operators whose first tensor is given by position.")
    if not has_autograd(op):
        raise ValueError(f"{op} has no derivative: give it one, as with torch.library.register_autograd.")


def _require_row(kink: Kink) -> None:
    if not isinstance(kink.set, Slopes | Ties):
        raise ValueError(
            f"{kink.op} at {kink.place}: only corners (subgrad.Slopes) and ties between tensors (subgrad.Ties), entry by "
            f"entry; not {type(kink.set).__name__}."
        )
    if kink.torch is not None:
        raise ValueError(f"{kink.op}: leave torch={kink.torch!r} out. What the operator returns by itself is measured.")
    known, tensors = argument_names(kink.op), tensor_names(kink.op)
    used = {name: what for what, each in _expressions(kink) for name in _names(kink, each)}
    used.update(dict.fromkeys(kink.set.candidates, "the set"))
    for name, what in used.items():
        if name not in known:
            first = schema_of(overload(kink.op)).arguments[known.index("self")].name
            hint = f" The first tensor, {first}, is self in rows." if first != "self" else ""
            raise ValueError(f"{kink.op}, {what}: {unknown('argument', name, list(known))}{hint}")
    if isinstance(kink.set, Slopes) and not kink.numbers.isdisjoint(tensors):
        raise ValueError(
            f"{kink.op}: the place and the slopes of a corner are numbers, or made of arguments that are, not of "
            f"{', '.join(sorted(kink.numbers.intersection(tensors)))}."
        )
    if not set(kink.set.candidates) <= set(tensors):
        raise ValueError(f"{kink.op}: ties are between tensors, which are {', '.join(tensors)}; the set is {kink.set}.")


def _expressions(kink: Kink) -> Iterator[tuple[str, Any]]:
    yield from (("at", kink.at), ("when", kink.when))
    if isinstance(kink.set, Slopes):
        yield from (("the left slope", kink.set.left_slope), ("the right slope", kink.set.right_slope))


def _names(kink: Kink, expression: Any) -> set[str]:
    try:
        return names(expression)
    except SyntaxError:
        raise ValueError(f"{kink.op}: {expression!r} is no expression of the operator's arguments.") from None


def require_name(op: str, name: str | None) -> str:
    """The name that users of conventions write for an operator, if it is not another's."""
    found = name or user_name(op)
    if not found.isidentifier():
        raise ValueError(f"name={found!r}: give a name that can be written in Convention(..., {user_name(op)}=...).")
    if found in (*KINKS.names, *ALIASES):
        hint = f"{op.partition('::')[0]}_{user_name(op)}"
        raise ValueError(f"{found} is the name of another operator in the table: give name={hint!r}, or such.")
    return found


def require_calls(op: str, calls: Sequence[Call]) -> tuple[Call, ...]:
    """The calls with all arguments that are no tensors."""
    return tuple(_complete(op, call) for call in calls)


def _complete(op: str, call: Call) -> Call:
    schema, known = schema_of(overload(op)), argument_names(op)
    for name in call:
        if name not in known:
            raise ValueError(f"{op}, calls: {unknown('argument', name, list(known))}")
    found: dict[str, Any] = {}
    for name, argument in zip(known, schema.arguments, strict=True):
        if name in call:
            found[name] = call[name]
        elif argument.has_default_value():
            found[name] = argument.default_value
        elif name not in tensor_names(op):
            raise ValueError(
                f"{op}, calls: {name} is missing in {dict(call)}. Give it, as in calls=[{{{name!r}: 1.0}}]."
            )
    return found


def require_truth(kinks: Sequence[Kink], calls: Sequence[Call], device: torch.device | str) -> None:
    """Hold rows against the operator's own values, in float64.

    Raises:
        ValueError: for a row that they contradict or that no call meets, and for an operator that does not work entry by
            entry or has no derivative.
    """
    met: set[Kink] = set()
    for numbers in calls:
        call = filled(kinks, numbers, torch.float64, device)
        applying = [kink for kink in kinks if kink.applies(call)]
        out = _called(kinks[0].op, call)
        _require_entrywise(kinks[0].op, call, out)
        for kink in applying:
            hits = kink.hits(call).nonzero().flatten().tolist()
            met.update([kink] if hits else [])
            for entry in hits[:1]:
                _require_set(
                    kink, {name: each[entry] if isinstance(each, Tensor) else each for name, each in call.items()}
                )
        _require_derivative(kinks[0].op, call)
    for kink in kinks:
        if kink not in met:
            raise ValueError(f"{kink.op}: no call meets the kink at {kink.place}. Give calls=[...] that do.")


def _called(op: str, call: Call) -> Tensor:
    try:
        with torch.no_grad():
            return call_by_name(op, call)
    except Exception as error:
        shown = {name: each for name, each in call.items() if not isinstance(each, Tensor)}
        raise ValueError(
            f"{op} could not be called with tensors in float64 and {shown}, which is how its rows are checked (give calls= "
            f"that it takes, device= if it does not run on the CPU): {type(error).__name__}: {error}"
        ) from error


def _require_entrywise(op: str, call: Call, out: Tensor) -> None:
    for entry in range(len(call["self"])):
        one = _called(op, {name: each[entry] if isinstance(each, Tensor) else each for name, each in call.items()})
        if out.shape != call["self"].shape or one.numel() != 1 or not _is_near(float(out[entry]), float(one)):
            raise ValueError(f"{op} does not work entry by entry, and only such kinks can be given rows.")


def _require_set(kink: Kink, call: Call) -> None:
    """At one entry: the slopes of the row are those of the values on both sides."""

    def slope(name: str, side: int) -> float:
        def quotient(step: float) -> float:
            return float(_called(kink.op, {**call, name: call[name] + side * step}) - here) / (side * step)

        return 2 * quotient(STEP / 2) - quotient(STEP)

    here = _called(kink.op, call)
    for name in kink.set.candidates:
        for side, words in ((-1, "left"), (1, "right")):
            stated, found = _stated(kink, call, name, side), slope(name, side)
            if not _is_near(stated, found):
                shown = ", ".join(
                    f"{key}={float(each) if isinstance(each, Tensor) else each}" for key, each in call.items()
                )
                raise ValueError(
                    f"{kink.op} at {kink.place}: the {words} slope in {name} is {stated:g} by the row, and {found:g} by "
                    f"the operator's values, at {shown}."
                )


def _stated(kink: Kink, call: Call, name: str, side: int) -> float:
    if isinstance(kink.set, Ties):
        lowered, raised = kink.set.moved[name]
        return float(name in (raised if side > 0 else lowered))
    assert isinstance(kink.set, Slopes)
    slopes = kink.set.at(call)
    return float(slopes.right_slope if side > 0 else slopes.left_slope)


def _is_near(one: float, other: float) -> bool:
    return one == other or abs(one - other) <= SAME * (1 + abs(one)) or (one != one and other != other)


def _require_derivative(op: str, call: Call) -> None:
    leaves = {name: call[name].clone().requires_grad_() for name in tensor_names(op) if call.get(name) is not None}
    try:
        with torch.enable_grad():
            out = call_by_name(op, {**call, **leaves})
            torch.autograd.grad(out.sum(), list(leaves.values()), allow_unused=True)
    except Exception as error:
        raise ValueError(
            f"{op} has no derivative: give it one, as with torch.library.register_autograd. Differentiating it raised "
            f"{type(error).__name__}: {error}"
        ) from error
