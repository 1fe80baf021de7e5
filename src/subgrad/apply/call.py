"""One call of an operator, as torch's dispatcher hands it to our kernel."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

from subgrad.apply.operators import Operator, overload_of
from subgrad.apply.strong_zero import kernels as strong_zero
from subgrad.apply.strong_zero.table import reaches
from subgrad.conventions import Convention

Arguments = Mapping[str, Any]
Originals = Mapping[str, Callable[..., Any]]  # torch's own kernels at one dispatch key, by overload


class Call:
    """One call under a convention.

    Attributes:
        op: the operator, of which ``form`` was called: itself, its in-place form, or one without indices.
        keyset: the dispatch keys, with which torch's own kernels are called.
        args, kwargs: as they were given.
        originals: torch's own kernels at this key.
    """

    def __init__(
        self,
        op: Operator,
        form: str,
        originals: Originals,
        convention: Convention,
        keyset: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ):
        self.op, self.form, self.originals, self.convention = op, form, originals, convention
        self.keyset, self.args, self.kwargs = keyset, args, kwargs

    @property
    def in_place(self) -> bool:
        return self.form == self.op.in_place

    @cached_property
    def arguments(self) -> dict[str, Any]:
        """All of them, by name."""
        is_op = self.form in (self.op.op, self.op.in_place)
        return (self.op if is_op else overload_of(self.form)).bind(self.args, self.kwargs)

    def native(self, arguments: Arguments | None = None) -> Any:
        """Torch's own kernel, in place if that was called; of a composite the one that it calls.

        What torch's own composite calls has a kernel of ours, perhaps for another element.
        """
        if arguments is None and self.op.base_name == self.op.op:
            return self._run(self.op, self.form, self.args, self.kwargs)
        base, given = self.op.base(self.arguments if arguments is None else arguments)
        form = (base.in_place or base.op) if self.in_place else base.op
        return self._run(base, form, tuple(base.args(given)), base.kwargs(given))

    def _run(self, op: Operator, form: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        original = self.originals[form]
        if self.convention.strong_zero and op.op in reaches():
            return strong_zero.run(op, form != op.op, original, self.keyset, args, kwargs)
        return original(self.keyset, *args, **kwargs)
