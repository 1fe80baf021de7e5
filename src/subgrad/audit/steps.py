"""Where a step of a training ends: when each of its optimizers has stepped.

One optimizer ends a step each time. Several, which step one after the other or each some times in turn, end a step
together, so that it holds the phases of all of them, and recording one step of ten looks at each of them. The one that
joined last is the one that ends it: then a step begins where a round of all of them does.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import Any

LEAST = 10  # steps of others, after which an optimizer that always stepped without a break is not waited for
MOST = 16  # optimizers for each of which a step is recorded; who makes them anew all the time has many


@dataclass
class _Member:
    """An optimizer that takes part.

    Attributes:
        alive: a weak reference to it.
        joined, last: how many steps all had taken when it joined, and when it last stepped.
        gap: the most steps of others so far between two of its own.
        is_away: it has not stepped for much longer than that, and is not waited for until it does.
        is_seen: one of its phases was looked at, from beginning to end.
    """

    alive: Any
    name: str
    joined: int
    last: int
    gap: int = 0
    is_away: bool = False
    is_seen: bool = False


class Steps:
    """Which optimizers take part, and which of them have stepped since the last step of the training ended."""

    def __init__(self) -> None:
        self._members: dict[int, _Member] = {}
        self._done: set[int] = set()
        self._taken, self._joined = 0, 0

    def ends_with(self, optimizer: Any, is_seen: bool) -> bool:
        """An optimizer has stepped, in a step that is looked at or not; whether that ends the step."""
        self._taken += 1
        key = id(optimizer)
        member = self._members.get(key)
        if member is None or member.alive() is not optimizer:
            member = _Member(weakref.ref(optimizer), type(optimizer).__name__, self._taken, self._taken)
            self._joined += 1
            if self._joined > MOST:
                self._members = {key: each for key, each in self._members.items() if each.alive() is not None}
            self._members[key] = member
        else:
            member.joined = self._taken if member.is_away else member.joined
            member.is_away = False
            member.gap = max(member.gap, self._taken - member.last - 1)
            member.last = self._taken
        member.is_seen = member.is_seen or is_seen
        self._done.add(key)
        others = {key: each for key, each in self._members.items() if each is not member and self._is_awaited(each)}
        if member.joined == self._taken:
            return True
        return all(key in self._done and each.joined < member.joined for key, each in others.items())

    def _is_awaited(self, member: _Member) -> bool:
        waited = self._taken - member.last
        member.is_away = member.is_away or member.alive() is None or waited > max(LEAST, 2 * member.gap)
        return not member.is_away

    def begin(self) -> None:
        self._done.clear()

    @property
    def are_owed(self) -> bool:
        """Whether an optimizer takes part none of whose phases was looked at: the next step is, for it."""
        return self._joined <= MOST and any(
            not each.is_seen and not each.is_away and each.alive() is not None for each in self._members.values()
        )

    @property
    def unseen(self) -> list[str]:
        """The optimizers none of whose phases was looked at."""
        return [each.name for each in self._members.values() if not each.is_seen] if self._joined <= MOST else []
