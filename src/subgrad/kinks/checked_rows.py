"""Rows for an operator that is not torch's: whether they can be added to the table at all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from subgrad.kinks.expressions import names
from subgrad.kinks.kink import ALIASES, Kink, unknown, user_name
from subgrad.kinks.overloads import argument_names, has_autograd, is_torchs, overload, tensor_names
from subgrad.kinks.sets import Slopes, Ties
from subgrad.kinks.table import KINKS
from subgrad.torch_internals.dispatcher import schema_of

NO_DERIVATIVE = "{} has no derivative: give it one, as with torch.library.register_autograd."

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
    if is_torchs(op) or op.startswith("aten::") or op.endswith(".default"):
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
        raise ValueError(NO_DERIVATIVE.format(op))


def _require_row(kink: Kink) -> None:
    if not isinstance(kink.set, Slopes | Ties):
        raise ValueError(
            f"{kink.op} at {kink.place}: only corners (subgrad.Slopes) and ties between tensors (subgrad.Ties) can be "
            f"added, which lie entry by entry; not {type(kink.set).__name__}, {kink.set}."
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
    if not set(kink.set.candidates) <= set(tensors) or len(kink.set.candidates) > 2:
        raise ValueError(
            f"{kink.op}: ties are between two tensors of {', '.join(tensors)}; the set of the row is the {kink.set}."
        )


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
