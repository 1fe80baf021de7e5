"""What the atlas shows, as frozen data: by operation the places, and at each who returns which element."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from subgrad.report.atlas_curve import Curve

VERSIONS = {"torch 2.13": "torch-2.13", "torch 2.14": "torch-2.14"}
NEAR = 1e-5
Weights = tuple[float, ...]

# In the order of the page.
ENTRYWISE, JOINT, COMPOSED = "Entry by entry", "Many entries at once", "Written with several operations"
JUMPS, POLES = "Jumps", "Infinite slopes"
GROUPS = (ENTRYWISE, JOINT, COMPOSED, JUMPS, POLES)


@dataclass(frozen=True)
class Answer:
    """What one spelling of one framework returns at a place.

    Attributes:
        framework, source: its name, and with the version where that is a version of torch.
        spelling: of the operation; "" for versions of torch that are reproduced.
        weights: of the entries at stake, in reverse mode; None where there are none.
        forward: in forward mode, where that is another; a sentence where it fails.
        failed: why there is nothing.
    """

    framework: str
    source: str
    spelling: str
    weights: Weights | None
    forward: Weights | str | None = None
    failed: str | None = None

    @property
    def key(self) -> str:
        """What is equal where the same is returned."""
        return repr(None if self.weights is None else tuple(shown(each) for each in self.weights))


@dataclass(frozen=True)
class Spot:
    """One place: where, the set, and the answers.

    Attributes:
        where, call: the place, and the call that meets it, in words.
        names: of the entries at stake, for which weights are given.
        set: in words.
        reach: the least and the largest weight that an element has in the shown entry; None where there is no set.
        least: what the documented rule asks for.
        main: the number of the entry that is shown.
        breaks: whether the installed torch breaks that rule.
        also: other calls at which the same is returned.
        held: the arguments that take part and are not differentiated.
        cotangent: with which the entries of a result of many are weighed, if they are.
    """

    where: str
    call: str
    names: tuple[str, ...]
    set: str
    answers: tuple[Answer, ...]
    curve: Curve | None = None
    reach: tuple[float, float] | None = None
    least: Weights | None = None
    main: int = 0
    breaks: bool = False
    also: tuple[str, ...] = ()
    held: tuple[str, ...] = ()
    cotangent: Weights = ()

    @property
    def disagrees(self) -> bool:
        """Whether spellings and frameworks of today differ among each other."""
        return len({each.key for each in self.answers if each.weights and each.source not in VERSIONS}) > 1

    @property
    def changed(self) -> bool:
        """Whether torch 2.14 returns something else than torch 2.13."""
        return len({each.key for each in self.answers if each.source in VERSIONS}) > 1

    def is_outside(self, answer: Answer) -> bool:
        """Whether the weights are known to be those of no element."""
        if self.reach is None or answer.weights is None:
            return False
        low, high = self.reach
        if not low - NEAR <= answer.weights[self.main] <= high + NEAR:
            return True
        if self.held or self.cotangent:
            return False
        if is_simplex(self.set):
            return abs(math.fsum(answer.weights) - 1) > NEAR
        return self.set.startswith("unit ball over") and math.hypot(*answer.weights) > 1 + NEAR


@dataclass(frozen=True)
class Operation:
    """An operation, with its places."""

    name: str
    what: str
    group: str
    spots: tuple[Spot, ...]


@dataclass(frozen=True)
class Atlas:
    """Everything, and what it was measured with.

    Attributes:
        torch: the installed version.
        sources: everyone who answers, in the order of the page, with the version as far as it is known.
        failed: the frameworks that could not be asked, and why.
        recorded: the real versions of torch against whose records those that are reproduced are held, if they are here.
    """

    operations: tuple[Operation, ...]
    torch: str
    sources: Mapping[str, str]
    failed: Mapping[str, str]
    recorded: tuple[str, ...] = ()

    @property
    def spots(self) -> list[Spot]:
        return [spot for operation in self.operations for spot in operation.spots]


def is_simplex(found: str) -> bool:
    """Whether a set in words holds all the ways to share a cotangent."""
    return found.startswith("simplex over") and "signs" not in found


def shown(weight: float) -> float:
    """Without what single precision has rounded, and without the sign of zero."""
    meant = round(weight * 24) / 24 if abs(weight) < 1e6 else weight
    return (meant if abs(meant - weight) < 1e-6 else float(f"{weight:.6g}")) + 0.0
