"""Who runs a call under a convention: an ordered list, of which the first that accepts a call runs all like it.

``use`` and the kernels in `dispatch.py` know nothing of them, and they know nothing of each other. To add one is to
write a class with `accepts`, and `gains` if it is faster, and to name it in the list.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from typing import Any, Protocol

from torch import Tensor

from subgrad.apply.call import Call
from subgrad.apply.plan import Plan, plan
from subgrad.conventions import Convention
from subgrad.torch_internals.autograd import forward_level
from subgrad.torch_internals.tracing import current_trace
from subgrad.torch_internals.transforms import len_dispatch_stack

# Runs a call; NotImplemented where it turns out that another executor has to.
Run = Callable[[Call], Any]


class Executor(Protocol):
    """One way to the gradient of a plan."""

    def accepts(self, plan: Plan, call: Call) -> Run | None:
        """How to run this call and all that are alike: of the same form, dispatch keys, convention, dtypes, numbers,
        and differentiated arguments, and as large or small. None to leave it to the next executor."""
        ...

    def gains(self, op: str, key: str) -> bool:
        """Whether it is better than torch's own kernel where that gives the same gradient, for some calls: else an
        operator of which torch gives all elements needs no kernel of ours, which would cost time."""
        return False


EXECUTORS: list[Executor] = []  # in the order in which they are asked; filled when `subgrad` is imported


def gain(op: str, key: str) -> bool:
    return any(executor.gains(op, key) for executor in EXECUTORS)


MOST = 4096  # kinds of calls that are remembered; bounds may change with every call
Found = tuple[Convention, Plan, int, Run]  # the plan under a convention, the number of the executor, and how it runs it
_found: dict[tuple[Any, ...] | None, Found] = {}
_sizes: list[Callable[[], int]] = []  # the numbers of entries from which on calls are of another kind
when_forgotten: list[Callable[[], None]] = []  # callbacks, run when all executors are to be asked again


def run(call: Call) -> Any:
    """Run a call as calls like it have been run before; a new kind is planned, and an executor found."""
    key = _key(call)
    try:
        known = _found.get(key)
    except TypeError:  # symbols and lists in it are not hashable
        key = known = None
    if known is None:
        known = find(call)
        if key is not None:
            if len(_found) >= MOST:
                _found.pop(next(iter(_found)), None)
            _found[key] = known
    out = known[3](call)
    while out is NotImplemented:
        known = _accepted(known[1], call, known[2] + 1)
        out = known[3](call)
    return out


def find(call: Call) -> Found:
    """Plan a call, and find who runs it."""
    return _accepted(plan(call.op, call.convention, call.arguments), call, 0)


def _accepted(planned: Plan, call: Call, first: int) -> Found:
    for number, executor in enumerate(EXECUTORS[first:], first):
        accepted = executor.accepts(planned, call)
        if accepted is not None:
            return call.convention, planned, number, accepted
    raise AssertionError(f"no executor for {call.form}")


def forget() -> None:
    """Ask all executors again."""
    _found.clear()
    _splits.cache_clear()
    for each in when_forgotten:
        each()


def split_sizes_at(smallest: Callable[[], int]) -> None:
    """Calls below a number of entries are of another kind than those from it on."""
    _sizes.append(smallest)
    _splits.cache_clear()


@cache
def _splits() -> tuple[int, ...]:
    return tuple(size for size in (smallest() for smallest in _sizes) if size < sys.maxsize)


def _key(call: Call) -> tuple[Any, ...] | None:
    """What plans and executors depend on; None for calls that are planned each time.

    Those are calls in forward mode, with slopes that are tensors, with numbers that are symbols, and in traces.
    """
    if forward_level() >= 0 or not call.op.slopes_are_numbers or current_trace() is not None:
        return None
    splits = _splits()
    key: list[Any] = [call.form, id(call.convention), call.keyset.raw_repr(), len_dispatch_stack()]
    for each in call.args:
        if isinstance(each, Tensor):
            key += (type(each), each.dtype, each.requires_grad)
            if splits:
                size = each.numel()
                if type(size) is not int:
                    return None
                key.extend(size >= split for split in splits)
        elif isinstance(each, list):
            key.append(tuple(each))
        else:  # 0.0 and -0.0, which are equal and not the same, are told apart by their names
            key.append(each or str(each))
    if call.kwargs:
        key.append(tuple(call.kwargs.items()))
    return tuple(key)
