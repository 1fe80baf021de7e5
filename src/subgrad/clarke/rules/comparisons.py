"""Comparisons at a tie answer by the tangents, as they would a little further on, and so do operators that jump.

`torch.where`, masks and Python branches follow from that. Where value and tangent both tie, a run of the program a
little further on answers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from subgrad.apply.pass_kernels import PassCall
from subgrad.clarke.engine.duals import carries_tangents, tangent, valued, values
from subgrad.clarke.engine.errors import Refused, here
from subgrad.clarke.engine.operator_certificate import Along, contradicted
from subgrad.clarke.engine.passes import Decide
from subgrad.clarke.engine.rule import Rule, is_differentiated
from subgrad.clarke.rules.pointwise import Pointwise
from subgrad.kinks import KINKS, Kink
from subgrad.kinks.sets import Jump

ANSWERS: dict[str, Callable[[Tensor], Tensor]] = {
    "gt": lambda ahead: ahead > 0,
    "ge": lambda ahead: ahead > 0,
    "lt": lambda ahead: ahead < 0,
    "le": lambda ahead: ahead < 0,
    "eq": lambda ahead: torch.zeros_like(ahead, dtype=torch.bool),
    "ne": lambda ahead: torch.ones_like(ahead, dtype=torch.bool),
}
COMPARISONS = tuple(f"{name}.{form}" for name in ANSWERS for form in ("Tensor", "Scalar"))


class Comparison(Rule):
    """The rule of ``gt``, ``ge``, ``lt``, ``le``, ``eq`` and ``ne``; a branch is the answer itself."""

    def hits(self, call: PassCall, tol: float) -> Tensor | bool:
        return _ties(call, tol).any()

    def decide(self, call: PassCall, at: Decide) -> Tensor:
        one, other = (tangent(call.arguments[name]) for name in ("self", "other"))
        with values():
            ties = _ties(call, at.tol)
            name, by_values = call.op.op.partition(".")[0], call.native(call.arguments)
            ahead = _difference(one, other).to(ties.device)
            moving = ties & (ahead != 0)
            still = ties ^ moving
            answer = torch.where(moving, ANSWERS[name](ahead), by_values)
            further = at.further(call)
            answer = answer if further is None else torch.where(still, further, answer)
            call.memo["moving"], call.memo["met"] = moving, ties.any()
            at.answered(name, call.memo["met"], still, answer ^ by_values)
            return answer

    def along(self, call: PassCall, branch: Tensor) -> Tensor:
        return branch

    def note(self, call: PassCall, out: Tensor) -> Tensor:
        return out

    def contradicted(self, call: PassCall, out: Tensor) -> Tensor | None:
        further, near = (Along(call).at(part) for part in (0.5, 0.25))
        with values():
            return (call.memo["moving"] & (further == near) & (near != out)).any()


def _ties(call: PassCall, tol: float) -> Tensor:
    one, other = call.arguments["self"], call.arguments["other"]
    if one is other:  # as `isnan` and `isfinite` ask
        return torch.zeros((), dtype=torch.bool, device=one.device)
    if tol == 0:
        if torch.bool in (one.dtype, getattr(other, "dtype", None)):  # which have no difference
            return one == other
        return (one - other) == 0  # what is masked with an infinity is not about to move
    return (one - other).abs() <= tol


def _difference(one: Tensor | None, other: Tensor | None) -> Tensor:
    if one is None or other is None:
        assert one is not None or other is not None
        return -other if one is None else one  # type: ignore[operator]
    return one - other


class Truth(Rule):
    """The rule of what asks floating-point numbers whether they are 0, or below; a branch is the answers, by name."""

    def __init__(self, *operands: str, below: bool = False):
        self.operands, self.below = operands, below

    def hits(self, call: PassCall, tol: float) -> Tensor | bool:
        return torch.stack([(call.arguments[name].abs() <= tol).any() for name in self.operands]).any()

    def decide(self, call: PassCall, at: Decide) -> dict[str, Tensor]:
        moved = {name: tangent(call.arguments[name]) for name in self.operands}
        return {name: self._answer(call, name, found, at) for name, found in moved.items() if found is not None}

    def _answer(self, call: PassCall, name: str, ahead: Tensor, at: Decide) -> Tensor:
        x = call.arguments[name]
        with values():
            by_values = x.signbit() if self.below else x != 0
            ties = x.abs() <= at.tol
            still = ties & (ahead == 0)
            answer = torch.where(ties & ~still, ahead < 0 if self.below else ahead != 0, by_values)
            further = at.further(call)
            answer = answer if further is None else torch.where(still, further[name], answer)
            at.answered(call.op.op.partition(".")[0], ties, still, answer ^ by_values)
            return answer

    def note(self, call: PassCall, out: Any) -> dict[str, Tensor]:
        with values():
            operands = {name: call.arguments[name] for name in self.operands}
            return {name: x.signbit() if self.below else x != 0 for name, x in operands.items()}

    def held(self, out: Any) -> list[tuple[int, Tensor]]:
        return []

    def along(self, call: PassCall, branch: dict[str, Tensor]) -> Any:
        with values():
            return branch["self"].clone() if self.below else call.native({**call.arguments, **branch})


TRUTHS: dict[str, Any] = {
    "signbit": Truth("self", below=True),
    **{op: Truth("self") for op in ("logical_not", "nonzero", "count_nonzero", "count_nonzero.dim_IntList")},
    **{f"{name}{form}": Truth("self") for name in ("any", "all") for form in ("", ".dim", ".dims")},
    **{op: Truth("self", "other") for op in ("logical_and", "logical_or", "logical_xor")},
}


class Copysign(Pointwise):
    """The rule of `copysign`, which jumps in the sign that it copies; a branch holds that besides."""

    def hits(self, call: PassCall, tol: float) -> Tensor | bool:
        if not (carries_tangents() or call.arguments["other"].requires_grad):
            return super().hits(call, tol)
        return torch.stack([(call.arguments[name] == 0).any() for name in ("self", "other")]).any()

    def decide(self, call: PassCall, at: Decide) -> Any:
        moved = tangent(call.arguments["other"])
        if moved is None:
            return None, super().decide(call, at)
        with values():
            other = call.arguments["other"]
            ties, ahead = other == 0, torch.sign(moved)
            still = ties & (ahead == 0)
            further = at.further(call)
            ahead = ahead if further is None else torch.where(still, further, ahead)
            at.answered("copysign", ties, still, ties)
            other = torch.where(ties & (ahead != 0), ahead, other)
            other = torch.where(ties & (ahead == 0), torch.copysign(torch.ones_like(other), other), other)
        # Where only the sign is differentiated, nothing is left to decide.
        rest = is_differentiated(call.arguments["self"]) and super().decide(_with_other(call, other), at)
        return other, rest or None

    def note(self, call: PassCall, out: Any) -> Tensor:
        with values():
            return torch.copysign(torch.ones_like(call.arguments["other"]), call.arguments["other"])

    def along(self, call: PassCall, branch: Any) -> Any:
        other, rest = branch
        call = call if other is None else _with_other(call, other)
        return call.native(call.arguments) if rest is None else super().along(call, rest)


def _with_other(call: PassCall, other: Tensor) -> PassCall:
    return call.with_arguments({"other": other})


class Jumping(Rule):
    """The rule of what jumps, entry by entry in ``self``: its value a little further on."""

    def hits(self, call: PassCall, tol: float) -> Tensor | bool:
        return self._met(call).any() if _jumps(call) else False

    def _met(self, call: PassCall) -> Tensor:
        x = call.arguments["self"]
        met = [kink.hits(call.arguments) for kink in _jumps(call)]
        return torch.stack(torch.broadcast_tensors(x != x, *met)).any(0)

    def decide(self, call: PassCall, at: Decide) -> Tensor | None:
        for name in call.op.tensor_names:
            if name != "self" and tangent(call.arguments[name]) is not None:
                raise Refused(f"{call.op.op} at {here()} is differentiated in {name} where it jumps.")
        x, moved = call.arguments["self"], tangent(call.arguments["self"])
        assert moved is not None
        with values():
            ahead = torch.sign(moved)
            hit = self._met(call)
            still = hit & (ahead == 0)
            at.answered(call.op.op.partition(".")[0], hit, still, hit)
            limits = torch.finfo(x.dtype)
            step = (x.abs() * limits.eps).clamp(min=limits.tiny)
            further = at.further(call)
            if further is not None:
                ahead = torch.where(still, _side(call, step, further), ahead)
            return torch.where(hit, ahead * step, 0)

    def along(self, call: PassCall, branch: Tensor) -> Any:
        x = call.arguments["self"]
        out = call.native({**call.arguments, "self": x + branch})
        if not out.is_floating_point():
            return out
        with values():
            limit = self._limit(call, branch, out)
        return valued(out, limit)

    def _limit(self, call: PassCall, branch: Tensor, out: Tensor) -> Tensor:
        """From that side, not the value beside it: what ties with it later is to tie exactly."""
        further = call.native({**call.arguments, "self": call.arguments["self"] + 2 * branch})
        return torch.where(branch == 0, out, 2 * out - further)

    def note(self, call: PassCall, out: Tensor) -> Tensor:
        return out

    def contradicted(self, call: PassCall, out: Tensor) -> Tensor | None:
        along, slope = Along(call), tangent(out)
        further, near = along.at(0.5), along.at(0.25)
        with values():
            steps = 4 * along.step * (0 if slope is None else slope.abs().double())
            allowed = 1e-3 * (out.double().abs() + near.abs()) + steps
            jumps = ((out.double() - near).abs() > allowed) & ((further - near).abs() <= allowed)
        flag = contradicted(call, self.held(out), is_entrywise=True)
        return jumps.any() if flag is None else jumps.any() | flag


def _side(call: PassCall, step: Tensor, further: Tensor) -> Tensor:
    """On which side of the jump a value lies: 1, -1, or 0 for the jump itself."""
    x = call.arguments["self"]
    beside = [call.native({**call.arguments, "self": x + side * step}).to(further) for side in (0, 1, -1)]
    nearest = torch.stack([(each - further).abs() for each in beside]).argmin(0)
    return torch.where(nearest == 2, -1, nearest).to(x.dtype)


def _jumps(call: PassCall) -> list[Any]:
    rows = (kink for kink in KINKS.of_overload(call.op.op) if isinstance(kink.set, Jump))
    return [kink for kink in rows if kink.applies(call.arguments)]


class Stepping(Jumping):
    """The rule of what only steps, and has no forward mode: its derivative is 0 wherever it has one."""

    wholly = True

    def along(self, call: PassCall, branch: Tensor) -> Any:
        with values():
            out = call.native({**call.arguments, "self": call.arguments["self"] + branch})
            return self._limit(call, branch, out) if out.is_floating_point() else out


class Steep(Jumping):
    """The rule of kinks that have no one-sided value or slope, or none that is known: refused."""

    def hits(self, call: PassCall, tol: float) -> Tensor | bool:
        found = [kink.hits(call.arguments).any() for kink in call.op.kinks if kink.applies(call.arguments)]
        return torch.stack(found).any() if found else False

    def decide(self, call: PassCall, at: Decide) -> None:
        with values():
            for kink in call.op.kinks:
                if kink.applies(call.arguments) and bool(kink.hits(call.arguments).any()):
                    raise Refused(f"{kink.name} at {here()}: {_why(kink)} where {kink.words}.")


def _why(kink: Kink) -> str:
    if isinstance(kink.set, Jump):
        return f"there is no generalised derivative ({kink.set.what})"
    return f"there is no rule for the branches of the program (the set is the {kink.set})"


class Surrogate(Steep):
    """The rule of operators whose gradient in torch is a straight-through slope everywhere: refused at once."""

    def look(self, call: PassCall, tol: float) -> tuple[Any, Tensor | bool]:
        raise Refused(
            f"{call.op.op} at {here()}: its gradient in torch is a straight-through slope, not that of the function."
        )
