"""`add_operator`: rows for an operator that is not torch's."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from subgrad.apply import dispatch, operators
from subgrad.kinks import KINKS, Kink
from subgrad.kinks.kink import USER_NAMES

_lock = threading.RLock()


def add_operator(
    *kinks: Kink,
    calls: Sequence[Mapping[str, Any]] = ({},),
    name: str | None = None,
    device: torch.device | str = "cpu",
) -> None:
    """Tell subgrad of the kinks of an operator that is not torch's: a ``torch.library`` operator of your package.

    From then on it is as if the operator stood in the table: conventions choose its elements, the survey and the audit
    list it, and gradients of whole programs go through it. ::

        subgrad.add_operator(
            subgrad.Kink("mylib::softclip", "-limit", subgrad.Slopes(0.0, 1.0)),
            subgrad.Kink("mylib::softclip", "limit", subgrad.Slopes(1.0, 0.0)),
            calls=[{"limit": 1.0}, {"limit": 2.5}],
        )

    The operator must return one tensor, have a derivative of its own, and work entry by entry. Corners lie where its
    first tensor, which rows call ``self``, equals a number or an expression of the other arguments; ties are between
    tensors: ``Kink("mylib::larger", "self == y", Ties.largest("self", "y"))``. Every row is held against values of
    the operator before anything is changed.

    Args:
        kinks: all rows of the operator.
        calls: the arguments besides the tensors with which it is called to check the rows and to survey it: every row
            must be met by one of the calls.
        name: what users write in ``Convention("min-norm", softclip=1.0)``; if not given, the operator's own.
        device: where it is called then; in float64.

    Raises:
        ValueError: for an operator or a row that cannot be added, a row that is not true, or an operator that has other
            rows already. Nothing is changed then.
    """
    # Only needed here, and the samples take time to import.
    from subgrad.kinks.checked_rows import require_calls, require_name, require_rows
    from subgrad.kinks.rows_against_values import require_truth
    from subgrad.kinks.samples import CALLS, DEVICES

    with _lock:
        op = require_rows(kinks)
        complete = require_calls(op, calls)
        known = KINKS.of_overload(op)
        if known:
            if known == kinks and CALLS[op] == complete and name in (None, known[0].name):
                return
            raise ValueError(f"{op} has other rows, calls or another name already, since they were added before.")
        chosen = require_name(op, name)
        require_truth(kinks, complete, device)
        kept = dispatch.own_kernels(op)
        # Nothing has been changed until here, and nothing fails from here on.
        USER_NAMES[op], CALLS[op], DEVICES[op] = chosen, complete, device
        KINKS.add(kinks)
        dispatch.add(operators.add(op), kept)  # last: who calls the operator now finds its rows
