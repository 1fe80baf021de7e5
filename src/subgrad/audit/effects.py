"""What choosing another convention does to the gradients of a batch, and in which line."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from subgrad.audit.call_site import Site


@dataclass(frozen=True)
class Change:
    """How the gradient of one parameter changes.

    Attributes:
        entries: of the parameter.
        differ: how many entries of its gradient are not the same.
        relative: the norm of the difference over that of the gradient before; None where that is 0.
        flips: how many change their sign.
        broken, mended: how many are finite only before, and only after.
    """

    parameter: str
    entries: int
    differ: int
    relative: float | None
    flips: int
    broken: int = 0
    mended: int = 0

    def __str__(self) -> str:
        return f"{self.parameter}: {self.differ:,} of {plural(self.entries, 'entry', 'entries')}, {size(self.relative)}"


@dataclass(frozen=True)
class Cause:
    """A call site that changes gradients when it alone is switched or, if not ``alone``, together with the others.

    Attributes:
        relative: the norm of what it changes over that of the gradients, of all parameters; None where that is 0.
    """

    site: Site
    operator: str
    parameters: int
    differ: int
    flips: int
    alone: bool = True
    relative: float | None = None

    def __str__(self) -> str:
        return f"{self.site} (`{self.operator}`): {size(self.relative)} of the norm of the gradients"


@dataclass(frozen=True)
class Effect:
    """The gradients of one backward under two conventions.

    Attributes:
        before, after: the conventions.
        step: of the audit.
        site: the line that called backward.
        changes: for every parameter that has a gradient.
        relative: as for one parameter, over all of them.
        causes: the call sites responsible, in the order in which the program reached them.
        repeats: backward gave the same gradients twice. Where it did not, some differences are its own, and no line is
            named.
        unseen: what these gradients depend on and was not looked at, in words: of it nothing is said.
    """

    before: str
    after: str
    step: int
    site: Site
    changes: tuple[Change, ...]
    relative: float | None
    causes: tuple[Cause, ...]
    repeats: bool = True
    unseen: tuple[str, ...] = ()

    @property
    def differing(self) -> int:
        return sum(change.differ for change in self.changes)

    @property
    def flips(self) -> int:
        return sum(change.flips for change in self.changes)

    def __str__(self) -> str:
        return self.verdict

    @property
    def first(self) -> Cause | None:
        """The first call site responsible."""
        return self.causes[0] if self.causes else None

    @property
    def verdict(self) -> str:
        """In sentences: which gradients change, because of which line, what keeps them, and what was not seen."""
        changed = sum(change.differ > 0 for change in self.changes)
        if not changed and self.unseen:
            found = f"No difference between {self.before} and {self.after} was found in what was seen."
            return f"{found} {not_seen(self.unseen)}"
        if not changed:
            return f"{self.before} and {self.after} give the same gradients here."
        return f"{self._difference(changed)} {not_seen(self.unseen)}".rstrip()

    def _difference(self, changed: int) -> str:
        sentence = f"{_going(self.before, self.after)} {changes(changed, len(self.changes), self.relative)}"
        if not self.causes:
            return f"{sentence}{self._said()}. Backward is not deterministic here: some of that may be its own."
        return f"{sentence}, all because of {listed(self.causes)}{self._said()}. {self.pin}"

    def _said(self) -> str:
        """What happens to entries besides being different."""
        broken, mended = (sum(each) for each in zip(*((c.broken, c.mended) for c in self.changes), strict=True))
        counts = {"sign": self.flips, "to what is not finite": broken, "back to finite": mended}
        return "".join(
            f", {count:,} {'entry changes' if count == 1 else 'entries change'} {what}"
            for what, count in counts.items()
            if count
        )

    @property
    def pin(self) -> str:
        """The spelling that keeps the gradients of before. Lines of installed packages are not to be edited."""
        sites = dict.fromkeys(cause.site for cause in self.causes)
        installed = [str(site) for site in sites if site.is_installed]
        if not installed:
            return f"To keep them: with subgrad.use({spelled(self.before)}): around {', '.join(map(str, sites))}."
        return (
            f"To keep them: subgrad.set_default({spelled(self.before)}) before the run, "
            f"since {', '.join(installed)} {'is' if len(installed) == 1 else 'are'} in an installed package."
        )

    @classmethod
    def of(cls, given: dict[str, Any]) -> Effect:
        """From JSON."""
        changes = tuple(Change(**each) for each in given.pop("changes"))
        causes = tuple(Cause(site=Site(**each.pop("site")), **each) for each in given.pop("causes"))
        unseen = tuple(given.pop("unseen", ()))
        return cls(site=Site(**given.pop("site")), changes=changes, causes=causes, unseen=unseen, **given)


def spelled(convention: str) -> str:
    """As code: a name, or a convention of one's own."""
    return f"subgrad.{convention}" if "(" in convention else f'"{convention}"'


def _going(before: str, after: str) -> str:
    versions = [re.fullmatch(r"torch-(\d+\.\d+)", each) for each in (before, after)]
    if all(versions):
        old, new = (found[1] for found in versions if found)
        return f"Upgrading from torch {old} to {new}"
    return f"Going from {before} to {after}"


def changes(changed: int, among: int, relative: float | None) -> str:
    """How many gradients, one for each parameter, and by how much of the norm of all of them."""
    of = "its" if among == 1 else "their"
    said = f"changes {changed:,} of {plural(among, 'gradient')}"
    return f"{said}, {size(relative)}" if relative is None else f"{said}, by {size(relative)} of {of} norm"


def size(relative: float | None) -> str:
    """The norm of a difference over that of the gradients, in words."""
    if relative is None:
        return "from 0 or not finite"
    return f"{relative:.3g}" if relative < 1e-3 else f"{relative:.1%}"


def listed(causes: Sequence[Cause]) -> str:
    named = [f"{cause.site} (`{cause.operator}`)" for cause in causes]
    return named[0] if len(named) == 1 else f"{', '.join(named[:-1])} and {named[-1]}"


def not_seen(unseen: Sequence[str]) -> str:
    """What a verdict does not cover."""
    return f"Of what was not seen nothing is known: {first_of(unseen)}." if unseen else ""


def first_of(unseen: Sequence[str]) -> str:
    """The first, since programs that run for long may have many."""
    return unseen[0] if len(unseen) == 1 else f"{unseen[0]}, and {len(unseen) - 1:,} more"


def plural(count: int, noun: str, several: str | None = None) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {several or noun + 's'}"
