"""What made a gradient infinite or NaN, as frozen data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from subgrad.audit.call_site import Site

NAN, INFINITE = "NaN", "infinite"
# Why a gradient is not finite.
SLOPE = "slope"  # values are finite, and an operator has an infinite slope, or one that is not a number, where they lie
OVERFLOW = "overflow"  # values, slope and cotangent are finite, and their product is not
VALUE = "value"  # what backward was called on was not finite itself
COTANGENT = "cotangent"  # the gradient that backward was given was not
SUM = "sum"  # infinite gradients of both signs were added up, or finite ones whose sum overflows
UNKNOWN = "unknown"  # it became so outside of what was looked at


@dataclass(frozen=True)
class Line:
    """One call of an operator in the forward program, and one entry of it.

    Attributes:
        site: the line; without a file where it was not noted.
        operator: as torch's graph names it.
        module: the path of the innermost module, where it was looked up.
        is_certain: the line is that of the call, and not the one in which all calls like it were made in other steps.
        entry: the place in the input whose gradient this is about.
        inputs: the numbers there by their names in the operator, and the result if that is what it keeps; as text,
            since JSON has neither infinity nor NaN.
    """

    site: Site
    operator: str
    module: str = ""
    entry: tuple[int, ...] = ()
    inputs: tuple[tuple[str, str], ...] = ()
    is_certain: bool = True

    def __str__(self) -> str:
        where = (
            f"{self.site} (`{self.operator}`)" if self.site.file else f"`{self.operator}`, in a line that was not noted"
        )
        likely = "" if self.is_certain else "likely "
        return f"{likely}{where} in {self.module}" if self.module else f"{likely}{where}"

    @classmethod
    def of(cls, given: Mapping[str, Any] | None) -> Line | None:
        if given is None:
            return None
        inputs = tuple((name, value) for name, value in given["inputs"])
        return cls(**{**given, "site": Site(**given["site"]), "entry": tuple(given["entry"]), "inputs": inputs})


@dataclass(frozen=True)
class Reached:
    """A parameter whose gradient is not finite.

    Attributes:
        became: ``"NaN"`` if any entry is, and else ``"infinite"``.
        nan, infinite: how many entries are; None where only the largest was read from a device.
    """

    parameter: str
    entries: int
    became: str
    nan: int | None = None
    infinite: int | None = None


@dataclass(frozen=True)
class Advice:
    """What to write instead.

    Attributes:
        words: what it does.
        code: that can be copied; ``x`` is what the operator is called with, if it could not be read from the line.
        is_gradient: it gives the gradient of the function that is meant, not one of a function nearby.
    """

    words: str
    code: str
    is_gradient: bool = True


@dataclass(frozen=True)
class Taken:
    """A step that an optimizer took with gradients that are not finite.

    Attributes:
        site: the line that called the optimizer.
        optimizer: its class.
        step: how many steps optimizers had taken by then, with this one.
        broken, parameters: of how many of its parameters the gradients were not finite.
        shapes: of those.
    """

    site: Site
    optimizer: str
    step: int
    broken: int
    parameters: int
    shapes: str


@dataclass(frozen=True)
class Nonfinite:
    """Why a gradient became infinite or NaN.

    Attributes:
        step: of the audit, the first in which it did.
        steps, last: in how many, and the last of them.
        kind: ``"slope"``, ``"overflow"``, ``"value"``, ``"cotangent"``, ``"sum"`` or ``"unknown"``.
        became: ``"NaN"`` or ``"infinite"``, what reached the parameters.
        site: the line that called backward.
        reached: the parameters.
        line: whose slope is infinite, or where finite numbers overflow.
        cotangent: what backward brought there.
        gradient: what the line made of it.
        nan_line: where infinity became NaN, if it did; often the same line, where the cotangent is 0.
        mask: the line that sent the cotangent of 0, and so was to keep the entry out.
        zero: the line that did so without being a mask: a factor that is 0, which may change.
        value: where a value first became infinite or NaN, if one did.
        advice: what to write instead.
        is_whole: every node of the graph was looked at.
        taken: the first step that an optimizer took with it, if the audit was to look at what optimizers are given.
    """

    step: int
    kind: str
    became: str
    site: Site
    reached: tuple[Reached, ...] = ()
    line: Line | None = None
    cotangent: str = ""
    gradient: str = ""
    nan_line: Line | None = None
    mask: Line | None = None
    zero: Line | None = None
    value: Line | None = None
    advice: tuple[Advice, ...] = ()
    is_whole: bool = True
    steps: int = 1
    last: int = 0
    taken: Taken | None = None

    @property
    def _lines(self) -> tuple[Line | None, ...]:
        return (self.line, self.nan_line, self.mask, self.zero, self.value)

    @property
    def key(self) -> tuple[Any, ...]:
        """What the same thing has in common, step by step."""
        places = tuple(each and (each.site, each.operator, each.module) for each in self._lines)
        return (self.kind, self.became, self.site, *places)

    @property
    def is_located(self) -> bool:
        """Whether its lines are known, and no more than likely."""
        return all(each is None or (each.is_certain and each.site.file) for each in self._lines)

    def is_like(self, other: Nonfinite) -> bool:
        """Whether it is the same but for where the lines are."""
        (one, another) = ([each and each.operator for each in found._lines] for found in (self, other))
        return (self.kind, self.became, self.site, one) == (other.kind, other.became, other.site, another)

    @property
    def guilty(self) -> Line | None:
        """The line to change: where a value first was not finite, if that came first, or the one with the slope."""
        return self.value or self.line

    def again(self, other: Nonfinite) -> Nonfinite:
        first, later = (self, other) if self.step <= other.step else (other, self)
        told = first if first.is_located or not later.is_located else later
        steps = {"steps": first.steps + later.steps, "step": first.step, "last": max(first.last, later.last)}
        return replace(told, taken=first.taken or later.taken, **steps)

    def __str__(self) -> str:
        from subgrad.audit.nonfinite.words import words  # which reads this data

        return words(self)

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Nonfinite:
        """As `dataclasses.asdict` and JSON have left it."""
        lines = {name: Line.of(given[name]) for name in ("line", "nan_line", "mask", "zero", "value")}
        reached = tuple(Reached(**each) for each in given["reached"])
        advice = tuple(Advice(**each) for each in given["advice"])
        found = {"site": Site(**given["site"]), "reached": reached, "advice": advice}
        if given.get("taken"):  # not in older files
            found["taken"] = Taken(**{**given["taken"], "site": Site(**given["taken"]["site"])})
        return cls(**{**given, **lines, **found})


def merged(findings: Iterable[Nonfinite]) -> tuple[Nonfinite, ...]:
    """One for each thing that happened, those that came first before others."""
    found: dict[tuple[Any, ...], Nonfinite] = {}
    for each in findings:
        found[each.key] = found[each.key].again(each) if each.key in found else each
    return tuple(sorted(found.values(), key=lambda each: each.step))
