"""The lines of calls: in a few steps of a watched run the nodes that calls make are told which line has made them.

What a node is told lies in its metadata, so that it goes when torch lets the graph go.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import CodeType
from typing import Any, NamedTuple

from torch import Tensor

from subgrad.apply.current_pass import Pass
from subgrad.apply.pass_kernels import PassCall
from subgrad.apply.source_line import user_frame
from subgrad.audit.modules import Modules
from subgrad.audit.nonfinite.poles import NOTED
from subgrad.audit.nonfinite.result import Line

MARK = "subgrad"


class Mark(NamedTuple):
    """What the node of a call is told.

    Attributes:
        code, number, module: which line it is, and in which module.
        value: the entry of its result that is not finite, where that was looked for.
        is_source: and what it was called with was finite, or at least no NaN where its result is.
        is_certain: it was the line of this call, or of its twin in a graph that was the same.
    """

    code: CodeType | None
    number: int
    module: str = ""
    value: Line | None = None
    is_source: bool = False
    is_certain: bool = True


def mark_of(node: Any) -> Mark | None:
    return node.metadata.get(MARK)


class Noting:
    """A pass that notes the lines of calls, around the pass that would be in force."""

    def __init__(self, modules: Modules, inner: Pass | None):
        self.inner, self._modules = inner, modules
        self._inner_rules: Mapping[str, Any] = {} if inner is None else inner.rules
        self.rules = {**dict.fromkeys(NOTED, True), **self._inner_rules}

    def run(self, rule: Any, call: PassCall) -> Any:
        is_inners = call.op.op in self._inner_rules
        out = self.inner.run(rule, call) if self.inner is not None and is_inners else call.run()
        for each in out if isinstance(out, tuple | list) else (out,):
            node: Any = each.grad_fn if isinstance(each, Tensor) else None
            if node is not None:
                frame = user_frame()
                code, number = (None, 0) if frame is None else (frame.f_code, frame.f_lineno)
                node.metadata[MARK] = Mark(code, number, self._modules.path())
        return out

    def fork(self) -> Pass | None:
        return None if self.inner is None else self.inner.fork()
