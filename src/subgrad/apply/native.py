"""Torch's own kernel gives the wanted element already: the common case, and no further cost."""

from __future__ import annotations

from subgrad.apply.call import Call
from subgrad.apply.executors import Executor, Run
from subgrad.apply.plan import Plan


class Native(Executor):
    def accepts(self, plan: Plan, call: Call) -> Run | None:
        return Call.native if plan.is_native else None
