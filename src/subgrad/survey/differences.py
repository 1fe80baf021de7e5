"""Where two conventions take different elements: for those named after versions of torch, what an upgrade changes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from subgrad.conventions import Convention, convention
from subgrad.survey.finding import Description, Measured
from subgrad.survey.measure import Place


@dataclass(frozen=True)
class Change(Description):
    """A place at which two conventions take different elements.

    Attributes:
        before, after: what reverse mode returns under the one and under the other.
    """

    before: Measured | None
    after: Measured | None


def changes(before: str | Convention, after: str | Convention, places: Iterable[Place]) -> Iterator[Change]:
    """Measure both conventions, and keep where they differ.

    >>> from subgrad.survey import changes, places
    >>> relu = [place for place in places() if place.kink.op == "relu"]
    >>> [(change.before["self"], change.after["self"]) for change in changes("left", "right", relu)]
    [(0.0, 1.0)]
    """
    for place in places:
        one, other = (place.element(convention(like)) for like in (before, after))
        if repr(one) != repr(other):  # in which nan is equal to nan
            yield Change(**vars(place.description), before=one, after=other)
