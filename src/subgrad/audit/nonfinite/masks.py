"""Which line made a cotangent 0: a mask, that was to keep an entry out, or a factor that is 0."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from subgrad.audit.nonfinite import entries
from subgrad.audit.nonfinite.entries import Entry
from subgrad.audit.nonfinite.lines import operator_of
from subgrad.audit.nonfinite.walks import Record

Users = Mapping[Any, Sequence[tuple[Record, int]]]  # by node: who took its result, as which operand

# What keeps entries out of a result. A product does too, if its other factor is a constant.
# fmt: off
MASKS = frozenset((
    "where", "masked_fill", "masked_scatter", "masked_select", "index", "index_select", "index_put", "index_fill",
    "gather", "take", "scatter", "slice_scatter", "select_scatter", "select", "slice", "narrow", "split", "unbind",
    "diagonal", "as_strided", "unfold", "constant_pad_nd", "copy_slices", "tril", "triu", "nan_to_num", "nansum",
    "clamp", "clamp_min", "clamp_max", "relu", "hardtanh", "threshold", "maximum", "minimum", "fmax", "fmin", "amax",
    "amin", "max", "min", "topk", "sort", "native_dropout", "max_pool2d_with_indices",
))
# fmt: on
# The entries of these lie in the same order in what they take and give, or elsewhere.
VIEWS = frozenset(("view", "unsafe_view", "reshape_alias", "squeeze", "unsqueeze", "alias", "_reshape_alias", "clone"))
MOVED = frozenset(("t", "transpose", "permute", "flip", "roll", "mm", "bmm", "addmm", "baddbmm", "matmul", "sort"))


def zeroing(node: Any, at: Entry | None, users: Users) -> tuple[Any, Entry | None, bool] | None:
    """The nearest node that hands on 0 there whatever it is given, a mask rather than another; the entry, and whether
    it is a mask.

    Args:
        at: the entry of the result of ``node`` whose cotangent is 0; None for any.
    """
    nearest: tuple[Any, Entry | None, bool] | None = None
    ahead: deque[tuple[Any, Entry | None]] = deque([(node, at)])
    seen = {node}
    while ahead:
        node, entry = ahead.popleft()
        for user, place in users.get(node, ()):
            gradient = user.gradients[place]
            if gradient is None:
                continue
            if _forces_zero(user, place, entry):
                is_mask = _is_mask(user.node, place)
                if is_mask and (nearest is None or entry is not None):
                    return user.node, entry, True
                nearest = nearest or (user.node, entry, is_mask)
            if user.node not in seen:
                seen.add(user.node)
                ahead.append((user.node, _entry_before(user, entry, gradient)))
    return nearest


def _is_mask(node: Any, place: int) -> bool:
    operator, others = operator_of(node), node.next_functions
    if operator == "mul":
        return len(others) < 2 or others[1 - place][0] is None
    return operator in MASKS


def _forces_zero(user: Record, place: int, entry: Entry | None) -> bool:
    """Whether it hands on 0 there whatever it is given."""
    gradient = user.gradients[place]
    unit = None if user.unit is None or place >= len(user.unit) else user.unit[place]
    if gradient is None or unit is None or unit.shape != gradient.shape:
        return False
    if entry is not None and len(entry) == gradient.ndim:
        return bool(unit[entry] == 0) and bool(gradient[entry] == 0)
    return bool(((unit == 0) & (gradient == 0)).any())


def _entry_before(user: Record, entry: Entry | None, gradient: Tensor) -> Entry | None:
    """The place in the result of an operator that belongs to an entry of what it was called with."""
    given = [each for each in user.cotangents if each is not None]
    operator = operator_of(user.node)
    if entry is None or len(given) != 1 or operator in MOVED or len(entry) != gradient.ndim:
        return None
    if operator in VIEWS and given[0].numel() == gradient.numel():
        flat = 0
        for place, size in zip(entry, gradient.shape, strict=True):
            flat = flat * size + place
        return tuple(int(each) for each in torch.unravel_index(torch.tensor(flat), given[0].shape))
    return entries.of_result(user.node, entry, gradient.shape, given[0])
