"""What the dispatcher says of the operators in the table: arguments, in-place forms, and the kept original kernels."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import torch

from subgrad.kinks import KINKS, Kink
from subgrad.kinks.expressions import names
from subgrad.kinks.overloads import argument_names, is_torchs, overload, qualified, tensor_names
from subgrad.kinks.sets import Joint, Jump, Slopes
from subgrad.kinks.table import COMPOSITES
from subgrad.torch_internals.dispatcher import DispatchKey, has_kernel, is_key_included, schema_of


@dataclass(frozen=True)
class Operator:
    """An overload of the table, as the dispatcher knows it."""

    op: str

    @cached_property
    def kinks(self) -> tuple[Kink, ...]:
        return KINKS.of_overload(self.op)

    @cached_property
    def is_joint(self) -> bool:
        """Whether its kinks lie in many entries at once."""
        return any(isinstance(kink.set, Joint) for kink in self.kinks)

    @cached_property
    def has_corners(self) -> bool:
        """Whether it is of one tensor and has corners, so that these lie where its numbers say."""
        sets = [kink.set for kink in self.kinks]
        is_of_entries = all(isinstance(each, Slopes | Jump) for each in sets)
        return self.tensor_names == ("self",) and is_of_entries and any(isinstance(each, Slopes) for each in sets)

    @cached_property
    def operands(self) -> tuple[str, ...]:
        """The Tensor arguments among which the kinks pick, in the order of the schema."""
        picked = {name for kink in self.kinks for name in kink.set.candidates}
        return tuple(name for name in self.argument_names if name in picked)

    @cached_property
    def _schema_arguments(self) -> Sequence[Any]:
        return schema_of(overload(self.op)).arguments

    @cached_property
    def argument_names(self) -> tuple[str, ...]:
        return argument_names(self.op)

    @cached_property
    def tensor_names(self) -> tuple[str, ...]:
        return tensor_names(self.op)

    @cached_property
    def _defaults(self) -> dict[str, Any]:
        arguments = zip(self.argument_names, self._schema_arguments, strict=True)
        return {name: argument.default_value for name, argument in arguments if argument.has_default_value()}

    @cached_property
    def slopes_are_numbers(self) -> bool:
        """Whether slopes depend on numbers only, so that what was decided for one call holds for the next."""
        slopes = [kink.set for kink in self.kinks if isinstance(kink.set, Slopes)]
        used = {name for each in slopes for name in names(each.left_slope) | names(each.right_slope)}
        return used.isdisjoint(self.tensor_names)

    @cached_property
    def in_place(self) -> str | None:
        """The overload that writes into ``self``, if there is one. That of somebody else's has rows of its own."""
        if not is_torchs(self.op):
            return None
        name, dot, form = self.op.partition(".")
        candidate = f"{name}_{dot}{form}"
        # `pow_.Scalar` has a number for an exponent, and `pow.Scalar` one to be raised; `polygamma_` turns them round.
        if "self" not in self.tensor_names or not exists(candidate):
            return None
        return candidate if argument_names(candidate) == self.argument_names else None

    @cached_property
    def base_name(self) -> str:
        """The overload that does the work: another one for composites."""
        return COMPOSITES[self.op][0] if self.op in COMPOSITES else self.op

    def bind(self, args: Sequence[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
        """All arguments by name; the dispatcher leaves trailing defaults out."""
        return {**self._defaults, **dict(zip(self.argument_names, args, strict=False)), **kwargs}

    def args(self, arguments: Mapping[str, Any]) -> list[Any]:
        """Those that the dispatcher takes by position."""
        given = zip(self.argument_names, self._schema_arguments, strict=True)
        return [arguments[name] for name, each in given if not each.kwarg_only]

    def kwargs(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Those that it takes by name."""
        return {each.name: arguments[each.name] for each in self._schema_arguments if each.kwarg_only}

    def base(self, arguments: Mapping[str, Any]) -> tuple[Operator, Mapping[str, Any]]:
        """The operator that does the work and its arguments: another one for composites, which only call it."""
        if self.op not in COMPOSITES:
            return self, arguments
        base, fixed = COMPOSITES[self.op]
        return operator(base), {**operator(base)._defaults, **arguments, **fixed}


def operator(op: str) -> Operator:
    return _OPERATORS[op]


_OPERATORS = {op: Operator(op) for op in KINKS.overloads}


def add(op: str) -> Operator:
    """An operator that has rows from now on."""
    _OPERATORS[op] = Operator(op)
    return _OPERATORS[op]


@cache
def overload_of(op: str) -> Operator:
    """Any overload, in the table or not."""
    return Operator(op)


# Of torch's own operators those that have a Python kernel of autograd besides, for shapes that are symbols.
ALSO_IN_PYTHON = ("softshrink",)


def torchs_kernel(op: str, key: str) -> Callable[..., Any]:
    """Torch's own kernel; where there is a Python one besides, compiling means that one."""
    kernel, python_kernels = torch.library.get_kernel(qualified(op), key).call_boxed, overload(op).py_kernels
    if is_torchs(op) and op not in ALSO_IN_PYTHON:
        return kernel

    def of_both(keyset: Any, *args: Any, **kwargs: Any) -> Any:
        if python_kernels and is_key_included(DispatchKey.PythonDispatcher):
            in_python = python_kernels.get(DispatchKey.Autograd)
            if in_python is not None:
                return in_python(*args, **kwargs)
        return kernel(keyset, *args, **kwargs)

    return of_both


def exists(op: str) -> bool:
    return has_kernel(qualified(op))
