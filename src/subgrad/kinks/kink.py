"""The vocabulary of the table: a kink, and the table that holds them."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch

from subgrad.kinks.conditions import WORDS
from subgrad.kinks.expressions import Expression, evaluate, names
from subgrad.kinks.overloads import is_torchs
from subgrad.kinks.rounded import in_dtype
from subgrad.kinks.sets import Ball, Joint, Pole, Set, Slopes, Ties


@dataclass(frozen=True)
class Kink:
    """One place where one operator overload has no derivative, and the set of generalised derivatives there.

    Attributes:
        op: the dispatcher overload, with its namespace if that is not torch's own: ``"clamp.Tensor"``,
            ``"mylib::softclip"``.
        at: where ``self`` lies for a corner (``"min"``), else a condition on the arguments (``"self == other"``), in
            which the words of `conditions` may occur.
        set: the set of generalised derivatives.
        torch: what torch picks in reverse mode: ``"left"`` or ``"right"`` or a number for slopes, the candidates that
            share the cotangent for ties, ``"least"`` or ``"one"`` of the vertices for joint kinks, ``None`` for what is
            no element (nan) or not one in all modes, and for operators that are not torch's. By version where it
            changed.
        when: further arguments for which the place exists.
        family: ``"clamp"`` for the bounds that the conventions ``pass-through`` and ``straight-through`` open.
    """

    op: str
    at: Expression
    set: Set
    torch: Any = field(default=None, hash=False)
    when: Expression = "True"
    family: str = ""

    @property
    def name(self) -> str:
        """The name that users write: ``clamp`` for ``clamp.Tensor``, ``prelu`` for ``_prelu_kernel``."""
        return user_name(self.op)

    @property
    def place(self) -> str:
        """Where the kink is, in words of the operator's arguments."""
        return f"self == {self.at}" if isinstance(self.set, Slopes) else self.at

    def __str__(self) -> str:
        return f"{self.op} at {self.place}: {self.set}"

    @property
    def words(self) -> str:
        """The place as people would say it, where it is more than a comparison."""
        return WORDS.get(self.place.partition("(")[0], self.place)

    @property
    def is_entrywise(self) -> bool:
        """Whether every entry of the result has a set of its own."""
        return isinstance(self.set, Slopes | Ties | Ball)

    @property
    def is_infinite(self) -> bool:
        """Whether the value is infinite there, as the slope is: then the value shows the place."""
        return isinstance(self.set, Pole) and not self.set.finite

    @property
    def numbers(self) -> set[str]:
        """The arguments on which place and slopes of a corner depend."""
        slopes = (self.set.left_slope, self.set.right_slope) if isinstance(self.set, Slopes) else ()
        return {name for each in (self.at, *slopes) for name in names(each)}

    def applies(self, arguments: Mapping[str, Any], dtype: torch.dtype | None = None) -> bool:
        """Whether the place exists at all for these arguments; corners by their bounds in the dtype of ``self``."""
        if isinstance(self.set, Slopes) and self.when != "True":
            arguments = in_dtype(arguments, dtype)
        return bool(evaluate(self.when, arguments))

    def hits(self, arguments: Mapping[str, Any]) -> Any:
        """A boolean tensor: which entries lie exactly on the kink."""
        if self._is_computed:
            return arguments["self"] == self.place_value(arguments)
        return evaluate(self.place, arguments)

    def place_value(self, arguments: Mapping[str, Any], dtype: torch.dtype | None = None) -> Any:
        """The number at which a corner lies; what is computed for it is computed in the dtype of ``self``."""
        if not self._is_computed:
            return evaluate(self.at, arguments)
        given = in_dtype({**arguments, "at": evaluate(self.at, in_dtype(arguments, dtype))}, dtype)
        return given["at"]

    @cached_property
    def _is_computed(self) -> bool:
        """Whether a corner lies at more than an argument or a number, so that it matters how that is computed."""
        bare = self.at.removeprefix("-")
        return isinstance(self.set, Slopes) and not (bare.isidentifier() or bare.isdecimal())

    def torch_picks(self, version: str) -> Any:
        """The ``torch`` column for one version, ``"2.13"`` or ``"2.14"``."""
        picks: Any = self.torch
        return picks[version] if hasattr(picks, "keys") else picks


USER_NAMES = {
    "_prelu_kernel": "prelu",
    "rrelu_with_noise": "rrelu",
    "_cdist_forward": "cdist",
    "_euclidean_dist": "cdist",
    "_pdist_forward": "pdist",
    "_embedding_bag": "embedding_bag",
    "_linalg_svd": "linalg_svdvals",
    "_linalg_eigh": "linalg_eigvalsh",
    "max_pool2d_with_indices": "max_pool2d",
    "max_pool3d_with_indices": "max_pool3d",
    "multilabel_margin_loss_forward": "multilabel_margin_loss",
    "grid_sampler_2d": "grid_sample",
    "grid_sampler_3d": "grid_sample",
}
ALIASES = {"clip": "clamp", "absolute": "abs"}


def user_name(op: str) -> str:
    """The name that users write for an overload."""
    return USER_NAMES.get(op, op.rpartition("::")[2].partition(".")[0])


class Table:
    """All known kinks: iterate over them, or look them up by operator.

    >>> import subgrad
    >>> [kink.place for kink in subgrad.kinks["hardtanh"] if kink.when == "min_val < max_val"]
    ['self == min_val', 'self == max_val']
    """

    def __init__(self, kinks: tuple[Kink, ...]):
        self._kinks: tuple[Kink, ...] = ()
        self._by_name: dict[str, list[Kink]] = {}
        self.add(kinks)

    def __iter__(self) -> Iterator[Kink]:
        return iter(self._kinks)

    def __len__(self) -> int:
        return len(self._kinks)

    def __getitem__(self, operator: str) -> tuple[Kink, ...]:
        """Those of one overload (``"clamp.Tensor"``) or of all overloads of an operator (``"clamp"``, ``"clip"``)."""
        name = ALIASES.get(operator, operator)
        found = self._by_name.get(name) or [kink for kink in self if kink.op == name]
        if not found:
            raise KeyError(unknown("operator", operator, [*self.names, *ALIASES]))
        return tuple(found)

    def __contains__(self, operator: object) -> bool:
        return any(ALIASES.get(operator, operator) in (kink.op, kink.name) for kink in self)  # type: ignore[arg-type]

    def add(self, kinks: tuple[Kink, ...]) -> None:
        """Further rows."""
        self._kinks = (*self._kinks, *kinks)
        for kink in kinks:
            self._by_name.setdefault(kink.name, []).append(kink)

    @property
    def added(self) -> tuple[Kink, ...]:
        """The rows of operators that are not torch's."""
        return tuple(kink for kink in self if not is_torchs(kink.op))

    @property
    def names(self) -> tuple[str, ...]:
        """The operators as users name them, in the order of the table."""
        return tuple(self._by_name)

    @property
    def overloads(self) -> tuple[str, ...]:
        """The dispatcher overloads, in the order of the table."""
        return tuple(dict.fromkeys(kink.op for kink in self))

    @property
    def entrywise(self) -> tuple[str, ...]:
        """The overloads with kinks entry by entry: their samples are vectors of places."""
        return tuple(dict.fromkeys(kink.op for kink in self if kink.is_entrywise))

    @property
    def joint(self) -> tuple[str, ...]:
        """The overloads with kinks in many entries at once."""
        return tuple(dict.fromkeys(kink.op for kink in self if isinstance(kink.set, Joint)))

    def of_overload(self, op: str) -> tuple[Kink, ...]:
        """The kinks of exactly one overload."""
        return tuple(kink for kink in self if kink.op == op)

    def __repr__(self) -> str:
        return f"<{len(self)} kinks of {len(self.names)} operators, from {self.names[0]} to {self.names[-1]}>"


def unknown(kind: str, name: object, known: list[str]) -> str:
    """The message for a name that is not known: what was given, the nearest, and all there are."""
    nearest = difflib.get_close_matches(str(name), known, n=1, cutoff=0.5)
    hint = f" Did you mean {nearest[0]!r}?" if nearest else ""
    return f"unknown {kind} {name!r}.{hint} Known: {', '.join(known)}."
