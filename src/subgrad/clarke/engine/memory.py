"""What is remembered of a program from call to call: only the time that is taken depends on it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from subgrad.clarke.engine.rule import Site


@dataclass
class Memory:
    """What the last run of a program met: where it met kinks there is no need to look for them first.

    Only the time that is taken depends on it, never the result.

    Attributes:
        expected: the sites of the last run, and whether they met a kink.
        passed: what has been held against the program's values, and need not be again.
        plain: what meets no kink, though no rule sees all of it, and was found continuous.
        without_rules: what rules do not lead through.
        asks_nearby: comparisons tied in value and tangent.
    """

    expected: list[tuple[Site, bool]] | None = None
    tol: float = 0.0
    passed: set[int] = field(default_factory=set)
    plain: set[int] = field(default_factory=set)
    without_rules: set[int] = field(default_factory=set)
    asks_nearby: bool = False

    def forget(self) -> None:
        self.expected = None
        for known in (self.passed, self.plain, self.without_rules):
            known.clear()

    def expect(self, places: Iterable[int]) -> None:
        """Some sites meet kinks as well."""
        assert self.expected is not None
        for place in places:
            self.expected[place] = (self.expected[place][0], True)


def branches_of(expected: list[tuple[Site, bool]], leaks: Sequence[str] = ()) -> int:
    return hash((tuple(expected), tuple(leaks)))


def most_of(expected: list[tuple[Site, bool]]) -> int:
    """How many sites a run may meet before it is taken for one that does not end."""
    return 1000 + 10 * len(expected)
