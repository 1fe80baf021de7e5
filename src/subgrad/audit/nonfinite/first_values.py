"""Where a value first became infinite or NaN, from what the nodes of a recorded walk have saved."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from subgrad.apply.autograd_nodes import values
from subgrad.audit.nonfinite import entries
from subgrad.audit.nonfinite.finite import is_finite
from subgrad.audit.nonfinite.lines import Lines, operator_of
from subgrad.audit.nonfinite.result import Line
from subgrad.audit.nonfinite.walks import Record
from subgrad.torch_internals.autograd import sequence_nr

Saved = Mapping[str, Any]


def _unary(name: str) -> Callable[[Saved], Tensor]:
    function = getattr(torch, name)
    return lambda saved: function(saved["self"])


# What an operator has made of what its node has saved; the result is looked up where it is saved itself.
MADE: dict[str, Callable[[Saved], Tensor]] = {
    **{name: _unary(name) for name in ("log", "log2", "log10", "log1p", "atanh", "erfinv", "sinh", "cosh", "acosh")},
    **{name: _unary(name) for name in ("acos", "asin", "lgamma", "digamma")},
    "logit": lambda saved: torch.logit(saved["self"], saved.get("eps")),
    "div": lambda saved: saved.get("self", torch.ones(())) / saved["other"],
    "mul": lambda saved: saved["self"] * saved["other"],
    "pow": lambda saved: saved["self"] ** saved["exponent"],
    "addmm": lambda saved: saved["mat1"] @ saved["mat2"],
    "mm": lambda saved: saved["self"] @ saved["mat2"],
    "native_layer_norm": lambda saved: saved["result2"],
    "native_group_norm": lambda saved: saved["result2"],
}
MEANT = ("log_softmax", "logsumexp", "logcumsumexp", "logaddexp")  # -inf is a value like others to these


def made(record: Record) -> Tensor | None:
    """The result of the operator of a node, as far as what was saved says it."""
    try:
        with values():
            found = record.saved.get("result")
            return found if isinstance(found, Tensor) else MADE[operator_of(record.node)](record.saved)
    except (KeyError, TypeError, RuntimeError):
        return None


def is_made_here(record: Record) -> bool:
    """Whether a value is not finite after an operator and was before."""
    result = made(record)
    if result is None or _is_fine(record, result):
        return False
    is_nan = bool(result.isnan().any())
    given = [each for name, each in record.saved.items() if isinstance(each, Tensor) and name not in entries.RESULTS]
    floating = [each for each in given if each.is_floating_point()]
    return not any(bool(each.isnan().any()) if is_nan else not is_finite(each) for each in floating)


def first(records: Iterable[Record], lines: Lines) -> Line | None:
    """By what nodes have saved: who made it if that is known, and else who took it."""
    for record in sorted(records, key=lambda each: sequence_nr(each.node)):
        if is_made_here(record):
            return _made_line(record, lines)
        found = _taken(record, lines)
        if found is not None:
            return found
    return None


def _is_fine(record: Record, value: Tensor) -> bool:
    if is_finite(value):
        return True
    return operator_of(record.node) in MEANT and not bool(value.isnan().any()) and not bool((value > 0).isinf().any())


def _made_line(record: Record, lines: Lines) -> Line:
    result = made(record)
    assert result is not None
    entry = entries.first_bad(result) or ()
    kept = entries.operands({**record.saved, "result": result}, entry, result.shape)
    return lines.line(record.node, entry, tuple(kept.items()))


def _taken(record: Record, lines: Lines) -> Line | None:
    """What an operator was called with was not finite: the line before it, or this one if that is none."""
    for name, value in record.saved.items():
        is_number = isinstance(value, Tensor) and value.layout is torch.strided and name not in entries.RESULTS
        if not is_number or _is_fine(record, value):
            continue
        place = {"other": 1, "mat2": 1, "exponent": 1}.get(name, 0)
        behind = record.node.next_functions[place][0] if place < len(record.node.next_functions) else None
        entry = entries.first_bad(value.detach()) or ()
        if behind is not None and behind.next_functions:
            return lines.line(behind, entry, (("result", entries.text(entries.number(value.detach(), entry))),))
        return lines.line(record.node, entry, ((name, entries.text(entries.number(value.detach(), entry))),))
    return None
