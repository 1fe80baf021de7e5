"""The Triton kernel of strong zeros: it reads little, and writes only where a gradient is nan by a dead term.

A *term* is the product of a cotangent and a factor, and *dead* where the cotangent is exactly 0. Some gradients of a
call are *narrow*: an entry is the sum of many terms. Others are *wide*: an entry is one term.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _wide(x):
    return x if x.dtype == tl.float64 else x.to(tl.float32)


# Compiled once for each type and use, and not for each shape: numbers matter only where something is nan.
NUMBERS = (
    *("size", "second_size", "third_size", "rest", "inner"),
    *(f"{tensor}{dimension}" for tensor in "cow" for dimension in range(1, 6)),
)


@triton.jit(do_not_specialize=NUMBERS)
def spare(
    narrow_ptr, wide_ptr, cotangent_ptr, other_ptr, factor_ptr, size, second_size, third_size, rest, inner,
    c1, c2, c3, c4, c5, o1, o2, o3, o4, o5, w1, w2, w3, w4, w5,
    SUMS: tl.constexpr, SPREADS: tl.constexpr, DIVIDES: tl.constexpr, LINES: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """In place: narrow sums with their dead terms taken for 0, and 0 for wide terms that are dead. With ``LINES``
    entries are no sums of terms, and dead where all cotangents that they belong to are 0.

    A program has some entries of ``size``, which the narrow gradient, or the factor of the wide one, has in memory side
    by side, in three dimensions. Each belongs to ``rest`` terms, in two dimensions, of which the inner one has
    ``inner``. Numbers are strides in these five dimensions: of the cotangent, the other factor, the wide gradient.

    Where nothing is nan a narrow gradient is read and no more, and of a wide one only its factor. ``DIVIDES``: the
    terms are those of a quotient, by the factor.
    """
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < size
    is_nan = at < 0
    is_steep = is_nan
    has_dead = is_nan
    if SUMS or LINES:
        narrow = tl.load(narrow_ptr + at, mask=inside, other=0.0)
        is_nan = _wide(narrow) != _wide(narrow)
    if SPREADS or DIVIDES:
        factor = _wide(tl.load(factor_ptr + at, mask=inside, other=1.0))
    if SPREADS:
        slope = 1 / factor if DIVIDES else factor
        is_steep = slope * 0 != 0
    if tl.max((is_nan | is_steep).to(tl.int32), axis=0) > 0:
        third = at % third_size
        second = at // third_size % second_size
        first = at // third_size // second_size
        cotangents = cotangent_ptr + first * c1 + second * c2 + third * c3
        others = other_ptr + first * o1 + second * o2 + third * o3
        wides = wide_ptr + first * w1 + second * w2 + third * w3
        total = tl.zeros([BLOCK], dtype=tl.float64 if cotangent_ptr.dtype.element_ty == tl.float64 else tl.float32)
        is_asked = is_nan | is_steep
        place = tl.program_id(0).to(tl.int64) * 0
        while (place < rest) & (tl.max(is_asked.to(tl.int32), axis=0) > 0):
            outer, last = place // inner, place % inner
            cotangent = _wide(tl.load(cotangents + outer * c4 + last * c5, mask=is_asked, other=1.0))
            is_dead = is_asked & (cotangent == 0)
            if SUMS:
                other = _wide(tl.load(others + outer * o4 + last * o5, mask=is_nan, other=1.0))
                term = -cotangent * (other / factor / factor) if DIVIDES else cotangent * other
                is_spared = is_dead & (term != term)
                has_dead = has_dead | is_spared
                total += tl.where(is_spared, 0.0, term)
                is_asked = is_steep | (is_nan & (total == total))  # nothing can be done for a sum that is nan by then
            if LINES:
                has_dead = is_asked & is_dead  # until one is live
                is_asked = has_dead
            if SPREADS:
                found = tl.load(wides + outer * w4 + last * w5, mask=is_steep, other=0.0)
                tl.store(
                    wides + outer * w4 + last * w5, tl.zeros_like(found), mask=is_steep & is_dead & (found != found)
                )
            place += 1
        if SUMS or LINES:
            tl.store(narrow_ptr + at, total.to(narrow.dtype), mask=is_nan & has_dead)
