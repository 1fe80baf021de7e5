"""What the survey finds, as frozen data: places in words, and what was measured there."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

from subgrad.survey.joint import Entries

# What is measured: a weight for each argument, or its entries where the kink is one of many entries; None where torch
# cannot differentiate in that mode.
Measured = Mapping[str, float] | Entries


@dataclass(frozen=True)
class Description:
    """A place in words.

    Attributes:
        operator, overload, place, arguments: where.
        differentiated: the arguments that require grad.
        set: the set of generalised derivatives.
    """

    operator: str
    overload: str
    place: str
    arguments: Mapping[str, Any]
    differentiated: tuple[str, ...]
    set: str

    @property
    def key(self) -> str:
        """What is the same for a place under every version of torch."""
        return repr((self.overload, self.place, to_json(self.arguments), list(self.differentiated)))


@dataclass(frozen=True)
class Finding(Description):
    """One kink of one call: the set there, and what was measured.

    Attributes:
        reverse, forward: what torch itself returns for each argument.
        documented: what PyTorch's documented rule asks for; None at a jump, and where torch has no derivative at all.
        keeps_rule: whether reverse and forward mode both return that.
        convention, chosen, chosen_forward: the convention surveyed, and what it returns in reverse and forward mode.
    """

    reverse: Measured | None
    forward: Measured | None
    documented: Measured | None
    keeps_rule: bool | None
    convention: str
    chosen: Measured | None
    chosen_forward: Measured | None

    def to_dict(self) -> dict[str, Any]:
        """Plain data that JSON can hold: what is not finite becomes a string, ``"nan"``."""
        return to_json(self)

    @classmethod
    def from_dict(cls, given: Mapping[str, Any]) -> Finding:
        """The finding that ``to_dict`` made plain data of."""
        measured = {name: _measured(given[name]) for name in _MEASURED}
        return cls(**{**given, **measured, "differentiated": tuple(given["differentiated"])})


_MEASURED = ("reverse", "forward", "documented", "chosen", "chosen_forward")


def to_json(value: Any) -> Any:
    """Plain data that JSON can hold, of frozen data too: what is not finite becomes a string, ``"nan"``."""
    if is_dataclass(value) and not isinstance(value, type):
        return to_json({each.name: getattr(value, each.name) for each in fields(value)})
    if isinstance(value, Mapping):
        return {name: to_json(each) for name, each in value.items()}
    if isinstance(value, tuple | list):
        return [to_json(each) for each in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _measured(given: Mapping[str, Any] | None) -> Any:
    """Weights, of which those that are not finite have become strings."""
    if given is None:
        return None
    return {name: tuple(map(float, each)) if isinstance(each, list) else float(each) for name, each in given.items()}
