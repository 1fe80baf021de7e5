"""The three passes over a program: look for ties, decide their branches by tangents, replay these; and one for values.

Each is handed the calls of operators that have a rule (`rule.py`): the first notes which meet a kink, the second takes
at each the branch that the tangents point to, the third takes the same branches again, to be differentiated.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import torch
from torch import Tensor

from subgrad.apply.pass_kernels import PassCall
from subgrad.clarke.engine.directions import NotGeneric
from subgrad.clarke.engine.duals import carries_tangents, carries_tangents_alone, values
from subgrad.clarke.engine.errors import Refused, here
from subgrad.clarke.engine.rule import RULES, Rule, Site, differentiated, site, taken
from subgrad.torch_internals.transforms import peek_interpreter_stack


def _nothing(tensor: Any) -> None:
    pass


class Noted(list[str]):
    """Lines of the program at which something happened; a few, since that it did is what counts."""

    def note(self, name: str) -> None:
        if len(self) < 5:
            self.append(f"{name} at {here()}")


@dataclass
class Look:
    """A plain run that notes which sites meet a kink. Flags stay on the device until they are asked for.

    Attributes:
        tol: what is closer than this counts as tied.
        sites: all that were met, and their flags.
        leaks: where derivatives were cut: only the tangents can tell whether that matters.
        customs: functions whose derivatives are what somebody says they are.
        fused: where random numbers were drawn in a way that the tangent pass cannot repeat.
        reads: where numbers left the program.
        differentiates: the program takes gradients itself.
        narrows: the program computes in less than double precision.
        is_watched: the program called what is done in another way in every pass.
        undefined: flags of where it asked whether numbers are finite, and some were not.
        keep: told of every tensor that is about to be written into.
    """

    tol: float
    sites: list[tuple[Site, Tensor | bool]] = field(default_factory=list)
    undefined: list[Tensor | bool] = field(default_factory=list)
    leaks: Noted = field(default_factory=Noted)
    customs: list[str] = field(default_factory=list)
    reads: Noted = field(default_factory=Noted)
    fused: Noted = field(default_factory=Noted)
    differentiates: bool = False
    narrows: bool = False
    is_watched: bool = False
    keep: Callable[[Any], None] = _nothing

    rules = RULES

    def run(self, rule: Rule, call: PassCall) -> Any:
        rule.keep(call, self.keep)
        if peek_interpreter_stack() is not None:  # values of a transform's level cannot be looked at; `Watch` notes it
            return call.run()
        if not differentiated(call):
            return call.run()
        if not rule.is_site:
            return rule.around(call, self)
        out, flag = rule.look(call, self.tol)
        self.sites.append((site(call), flag))
        return out

    def fork(self) -> None:
        """Without kinks what is recomputed is plain torch; with some it is not recomputed."""

    def flags(self) -> list[bool]:
        """Which sites meet a kink, read from the device at once."""
        found = read([*(flag for _, flag in self.sites), *self.undefined])
        self.undefined = list(found[len(self.sites) :])
        return found[: len(self.sites)]


def some(mask: Tensor) -> Tensor:
    """A flag; on the CPU a count, which is faster there."""
    return mask.any() if mask.is_cuda else torch.count_nonzero(mask)


def read(flags: list[Tensor | bool]) -> list[bool]:
    """Flags on the device, all read at once."""
    tensors = [flag for flag in flags if isinstance(flag, Tensor) and not flag.is_cpu]
    if not tensors:  # there is nothing to wait for
        return list(map(bool, flags))
    tensors = [flag for flag in flags if isinstance(flag, Tensor)]
    device = next(flag.device for flag in tensors if flag.device.type != "cpu")
    alike: dict[torch.dtype, list[Tensor]] = {}  # flags, and counts; those of one dtype are converted together
    for flag in tensors:
        alike.setdefault(flag.dtype, []).append(flag if flag.device == device else flag.to(device))
    found = iter(torch.cat([torch.stack(each).to(torch.bool) for each in alike.values()]).tolist())
    answers = {dtype: iter(list(islice(found, len(each)))) for dtype, each in alike.items()}
    return [next(answers[flag.dtype]) if isinstance(flag, Tensor) else flag for flag in flags]


@dataclass
class Decide:
    """A run on values and tangents, without a graph, that takes at each kink the branch the tangents point to.

    Attributes:
        tol: what is closer than this counts as tied.
        expected: the sites of the plain run and whether they met a kink, where that is known.
        nearby: what a run a little further on noted at each site; it answers where value and tangent both tie.
        is_nearby: this is such a run: note what every site answers.
        certify: hold every decision against the operator's own values.
        certifies_near: also of what ties within the tolerance.
        most: so many sites at most, or the program does not end on these answers.
        script: the branch taken at every site; None where there was nothing to decide.
        noted: by a run nearby.
        undecided: flags of comparisons whose value and tangent both tie, and where they stand in the program.
        unexpected: numbers and flags of sites that met none in the plain run.
        changed: flags of what answered otherwise than its values say, and where it stands.
        tied: flags of all that may answer otherwise nearby, and where it stands: the program may jump there.
        contradicted: flags of decisions that the operator's own values contradict, and where they stand.
        factors: of those parts of the direction that are products.
        leaks: as for the plain run.
        is_read: Python has read numbers, such as indices, by which it may branch.
        is_watched: the program called what is done in another way in every pass, outside of any operator.
        indices: of selections that nothing decides between, by their memory, with flags and lines; undecided if used.
        is_first: there was no plain run before; ``expected`` is what an earlier one met.
        seen: flags of sites that met a kink then.
        keep: told of every tensor that is about to be written into.
    """

    tol: float
    expected: list[tuple[Site, bool]] | None = None
    nearby: list[tuple[Site, Any]] | None = None
    is_nearby: bool = False
    certify: bool = False
    certifies_near: bool = False
    most: int = 1 << 20
    script: list[tuple[Site, Any]] = field(default_factory=list)
    noted: list[tuple[Site, Any]] = field(default_factory=list)
    undecided: list[tuple[Tensor, str]] = field(default_factory=list)
    unexpected: list[tuple[int, Tensor | bool]] = field(default_factory=list)
    changed: list[tuple[Tensor, str]] = field(default_factory=list)
    tied: list[tuple[Tensor, str]] = field(default_factory=list)
    contradicted: list[tuple[Tensor, str]] = field(default_factory=list)
    factors: Mapping[int, tuple[Tensor, Tensor]] = field(default_factory=dict)
    leaks: Noted = field(default_factory=Noted)
    is_read: bool = False
    is_watched: bool = False
    indices: dict[int, tuple[Tensor, Tensor, str]] = field(default_factory=dict)
    is_first: bool = False
    seen: list[Tensor | bool] = field(default_factory=list)
    keep: Callable[[Any], None] = _nothing

    rules = RULES

    def run(self, rule: Rule, call: PassCall) -> Any:
        rule.keep(call, self.keep)
        # What formulas of forward mode call is not differentiated any more.
        if not differentiated(call):
            return call.run()
        if not rule.is_site:
            return rule.around(call, self)
        name = site(call)
        branch, meets = self._branch(rule, call, name)
        self.script.append((name, branch if meets else None))
        if len(self.script) > self.most:
            raise Refused(f"The program does not end where its comparisons answer by derivatives: see {here()}.")
        out = call.run() if branch is None else self._along(rule, call, branch)
        if self.is_nearby:
            self.noted.append((name, rule.note(call, out)))
        return out

    def _branch(self, rule: Rule, call: PassCall, name: Site) -> tuple[Any, bool]:
        """The branch, None to run the call as it is; and whether the call meets a kink."""
        if self.is_nearby:  # what ties there ties all along the direction
            return (rule.decide(call, self) if rule.wholly and carries_tangents() else None), False
        meets = self._meets_a_kink(name)
        if not meets:
            with values():
                found = rule.hits(call, self.tol)
            if meets is None:  # not known from the plain run
                meets = bool(found)
            else:
                self.unexpected.append((len(self.script), found))
        branch = rule.decide(call, self) if meets or rule.wholly else None
        if meets and self.is_first:
            self.seen.append(self._is_met(rule, call))
        return branch, meets

    def _along(self, rule: Rule, call: PassCall, branch: Any) -> Any:
        certify = self.certify and (self.certifies_near or not self.tol)  # what only nearly ties moves otherwise
        kept = call.as_it_is() if certify and call.written else call
        out = taken(rule, call, branch)
        if certify:
            flag = rule.contradicted(*rule.decided_part(kept, out, branch))
            if flag is not None:
                self.contradicted.append((flag, f"{call.op.op.partition('.')[0]} at {here()}"))
        for index in call.memo.get("indices", ()):
            self.note_indices(index, call.memo["undecided"], call.op.op.partition(".")[0])
        return out

    def _is_met(self, rule: Rule, call: PassCall) -> Tensor | bool:
        if call.memo.get("met") is not None:  # seen on the way to the branch
            return call.memo["met"]
        with values():
            return rule.hits(call, self.tol)

    def _meets_a_kink(self, name: Site) -> bool | None:
        if self.expected is None:
            return None
        place = len(self.script)
        if place >= len(self.expected) or self.expected[place][0] != name:
            self.expected = None  # a Python branch went the other way
            return None
        return self.expected[place][1]

    def further(self, call: PassCall) -> Any:
        """What the run nearby noted at the site that is being decided; None without one."""
        if self.nearby is None:
            return None
        place = len(self.script)
        if place >= len(self.nearby) or self.nearby[place][0] != site(call):
            raise NotFollowed
        return self.nearby[place][1]

    def is_as_expected(self) -> bool:
        """Whether Python cannot have branched otherwise than in the plain run, past kinks that were not met there.

        Kinks that are met though nothing answered otherwise are ties by rounding, which differs between the passes.
        """
        return not any(read([flag for _, flag in self.unexpected])) or not (self.is_read or lines(self.changed))

    def fork(self) -> None:
        if carries_tangents_alone():
            return
        raise Refused(f"A checkpoint at {here()} recomputes what detach or no_grad has cut: its branches are lost.")

    def require_a_direction_without_form(self) -> None:
        """For what is not linear in the direction."""
        if self.factors:
            raise NotGeneric

    def note_indices(self, found: Tensor, undecided: Tensor, name: str) -> None:
        self.indices[_memory(found)] = (found, some(undecided), f"{name} at {here()}")

    def note_use(self, args: Any) -> None:
        """Values of tied entries are the same, and their indices are not."""
        for each in args:
            if not isinstance(each, Tensor):
                if isinstance(each, (list, tuple)):
                    self.note_use(each)
            elif not each.dtype.is_floating_point and _memory(each) in self.indices:
                _, flag, line = self.indices.pop(_memory(each))
                self.tied.append((torch.ones_like(flag), line))
                if self.nearby is None:  # which would have answered
                    self.undecided.append((flag, line))

    def answered(self, name: str, tied: Tensor, undecided: Tensor, changed: Tensor) -> None:
        line = f"{name} at {here()}"
        self.tied.append((tied.any(), line))
        if self.nearby is None:
            self.undecided.append((undecided.any(), line))
        self.changed.append((changed.any(), line))


class NotFollowed(Exception):  # noqa: N818
    """A run a little further on met other sites."""


def _memory(tensor: Tensor) -> int:
    """Where it lies, so that views are known as well; 0 for what does not say."""
    return tensor.untyped_storage().data_ptr() if tensor.layout is torch.strided else 0


def lines(noted: list[tuple[Tensor, str]]) -> list[str]:
    """The lines whose flags are set."""
    flags = read([flag for flag, _ in noted])
    return list(dict.fromkeys(line for flag, (_, line) in zip(flags, noted, strict=True) if flag))


class DoesNotRepeat(Exception):  # noqa: N818
    """A replay met other sites than the tangent pass."""


@dataclass
class Replay:
    """A plain run on the branches that were decided, to be differentiated in reverse mode."""

    script: list[tuple[Site, Any]]
    place: int = 0
    is_forked: bool = False  # branches are needed again
    is_watched: bool = True  # as in the tangent pass
    keep: Callable[[Any], None] = _nothing
    rules: Mapping[str, Rule] = field(init=False)

    def __post_init__(self) -> None:
        # What is written into is known from the tangent pass, as is all that `Watch` tells.
        left_out = () if self.is_watched else [op for op, rule in RULES.items() if not rule.is_replayed]
        self.rules = {op: rule for op, rule in RULES.items() if op not in left_out} if left_out else RULES

    def run(self, rule: Rule, call: PassCall) -> Any:
        rule.keep(call, self.keep)
        if not differentiated(call):
            return call.run()
        if not rule.is_site:
            return rule.around(call, self)
        name = site(call)
        wanted, branch = self.script[self.place] if self.place < len(self.script) else (None, None)
        if wanted != name:
            raise DoesNotRepeat(f"{call.op.op} at {here()} is met where it was not before")
        if not self.is_forked:
            self.script[self.place] = (name, None)  # its memory is needed for what the program keeps
        self.place += 1
        return call.run() if branch is None else taken(rule, call, branch)

    def fork(self) -> Replay:
        self.is_forked = True
        return Replay(self.script, self.place, is_forked=True, is_watched=self.is_watched)

    def finish(self) -> None:
        if self.place != len(self.script):
            raise DoesNotRepeat(f"{self.script[self.place][0][0]} is not met again")


@dataclass
class Beside:
    """A run at another point, for its values alone: operators are torch's own."""

    keep: Callable[[Any], None] = _nothing

    rules = RULES

    def run(self, rule: Rule, call: PassCall) -> Any:
        rule.keep(call, self.keep)
        return call.run()

    def fork(self) -> None:
        pass
