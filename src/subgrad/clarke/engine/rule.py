"""What is said of an operator at its kinks, to the passes: a `Rule`; and of a call, which of its operands move.

A *site* is one call of an operator that has a rule. Sites are numbered as they are met; the passes meet the same ones.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from torch import Tensor

from subgrad.apply.autograd_nodes import PLAIN
from subgrad.apply.pass_kernels import PassCall
from subgrad.clarke.engine.duals import carries_tangents, tangent, values
from subgrad.clarke.engine.operator_certificate import contradicted, is_floating

if TYPE_CHECKING:
    from subgrad.clarke.engine.passes import Decide


class Rule:
    """What an operator does at its kinks; for some, how it is run instead.

    Attributes:
        is_site: whether there is anything to decide; other rules only change how a call is run, with ``around``.
        is_replayed: whether that matters in a replay, which runs calls with torch's own derivatives.
        wholly: it has no forward mode of its own, and is run on a branch even where it meets no kink.
        is_entrywise: every entry of the result depends on one entry of each operand.
    """

    is_site: bool = True
    is_replayed: bool = True
    wholly: bool = False
    is_entrywise: bool = False

    def look(self, call: PassCall, tol: float) -> tuple[Any, Tensor | bool]:
        """Run a call, and say whether it meets a kink, as a flag on the device."""
        with values():
            flag = self.hits(call, tol)
        return call.run(), flag

    def hits(self, call: PassCall, tol: float) -> Tensor | bool:
        """Only the flag."""
        raise NotImplementedError

    def decide(self, call: PassCall, at: Decide) -> Any:
        """The branch that the tangents point to; None to run the call as it is."""
        raise NotImplementedError

    def along(self, call: PassCall, branch: Any) -> Any:
        """Run a call on a branch, in either mode."""
        raise NotImplementedError

    def around(self, call: PassCall, current: Any) -> Any:
        raise NotImplementedError

    def keep(self, call: PassCall, keep: Callable[[Any], None]) -> None:
        """Tell of what the call writes into, besides ``self`` of in-place forms."""

    def note(self, call: PassCall, out: Any) -> Any:
        """What a run a little further on tells of this site: its answer, where values and tangents may both tie."""
        return None

    def decided_part(self, call: PassCall, out: Any, branch: Any) -> tuple[PassCall, Any]:
        """Of a large call what was decided, as a smaller call and its result, if it can be told apart."""
        return call, out

    def contradicted(self, call: PassCall, out: Any) -> Tensor | None:
        """A flag: the operator's own values, a little further along its operands' tangents, say otherwise."""
        return contradicted(call, self.held(out), self.is_entrywise)

    def held(self, out: Any) -> list[tuple[int, Tensor]]:
        """The outputs that are held against the operator's values nearby, and which they are."""
        outputs = [out] if isinstance(out, Tensor) else list(out)
        return [(number, each) for number, each in enumerate(outputs) if is_floating(each)]


# Of every operator that has one; filled when a program is first differentiated.
RULES: dict[str, Rule] = {}
Site = tuple[str, tuple[int, ...]]


def site(call: PassCall) -> Site:
    """What a site is known by: the operator and the shape of what it is applied to."""
    op = call.op
    first = call.arguments[op.tensor_names[0]]
    return op.op, first.shape if isinstance(first, Tensor) else ()


def is_differentiated(argument: Any) -> bool:
    """Whether an argument depends on what the program is differentiated in."""
    if not isinstance(argument, Tensor):
        return isinstance(argument, (list, tuple)) and any(map(is_differentiated, argument))
    if not carries_tangents():
        return argument.requires_grad
    return (argument.is_floating_point() or argument.is_complex()) and tangent(argument) is not None


def differentiated(call: PassCall) -> bool:
    """The same of what an operator is applied to."""
    arguments, carries = call.arguments, carries_tangents()
    for name in call.op.tensor_names:
        argument = arguments[name]
        if argument is None:
            continue
        if is_differentiated(argument) if carries or type(argument) not in PLAIN else argument.requires_grad:
            return True
    return False


def taken(rule: Rule, call: PassCall, branch: Any) -> Any:
    """Run a call on a branch; a call that writes into ``self`` gets the result written there."""
    if not call.written:
        return rule.along(call, branch)
    self = call.arguments["self"]
    # The derivative needs what is about to be overwritten.
    return self.copy_(rule.along(call, branch))
