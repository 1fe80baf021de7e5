"""The two Triton kernels of packed masks. Imported only when a CUDA tensor is first met.

The forward writes the operator's value and a *code* of one or two bits for each entry: on which side of the kinks, or
on which kink, it lies. The backward reads the cotangent and the codes alone.

Codes of two bits lie in two planes, of which the second is of those who lie on a kink, or are nan. These are few: a
block that has none leaves its part of that plane as it is, and says so in a flag, after both. ``UNIT`` entries have a
flag together; 0 if there are none.

Numbers come as the bits of a double, since Triton rounds floats to 32 bits.
"""

from __future__ import annotations

import triton
import triton.language as tl

ZERO, ONE = tl.constexpr(0), tl.constexpr(1)  # kinds of weights that need no product; any other is a number


@triton.jit
def _number(bits, like):
    """A double from its bits, in the precision that torch computes in for tensors of this type."""
    value = bits.to(tl.int64).to(tl.float64, bitcast=True)
    return value if like.dtype == tl.float64 else value.to(tl.float32)


@triton.jit
def _wide(x):
    return x if x.dtype == tl.float64 else x.to(tl.float32)


@triton.jit
def _value(x, low, high, extra, OP: tl.constexpr):
    """What torch's own kernel returns, to the bit. ``x`` and the numbers are wide."""
    if OP == "clamp":
        y = tl.where(x != x, x, tl.minimum(tl.maximum(x, low), high))
    elif OP == "clamp_min":
        y = tl.where(x != x, x, tl.maximum(x, low))
    elif OP == "clamp_max":
        y = tl.where(x != x, x, tl.minimum(x, low))
    elif OP == "maximum":
        y = tl.where(x != x, x, tl.where(low != low, low, tl.maximum(x, low)))
    elif OP == "minimum":
        y = tl.where(x != x, x, tl.where(low != low, low, tl.minimum(x, low)))
    elif OP == "abs":
        y = tl.abs(x)
    elif OP == "leaky_relu":
        y = tl.where(x > 0, x, x * extra)
    elif OP == "threshold":
        y = tl.where(x <= low, extra, x)
    elif OP == "hardsigmoid":
        shifted = x + 3
        shifted = tl.where(shifted < 0, 0.0, shifted)
        y = tl.where(shifted > 6, 6.0, shifted) * extra
    else:
        tl.static_assert(OP == "softshrink")
        y = tl.where(x > high, x - high, tl.where(x < low, x - low, tl.where(x != x, x, 0.0)))
    return y


@triton.jit
def _side(x, place, BELOW: tl.constexpr, ON: tl.constexpr, ABOVE: tl.constexpr, NAN: tl.constexpr):
    """The code around one kink, by one comparison where two of the four are alike: in 16 bits each more would show."""
    if NAN == BELOW and ON == BELOW:
        code = tl.where(x > place, ABOVE, BELOW)
    elif NAN == BELOW and ON == ABOVE:
        code = tl.where(x >= place, ABOVE, BELOW)
    elif NAN == ABOVE and ON == BELOW:
        code = tl.where(x <= place, BELOW, ABOVE)
    elif NAN == ABOVE and ON == ABOVE:
        code = tl.where(x < place, BELOW, ABOVE)
    else:
        code = tl.where(x > place, ABOVE, tl.where(x < place, BELOW, tl.where(x == place, ON, NAN)))
    return code


@triton.jit
def _plane(size):
    """The bytes of one of two planes, as in `codes`; of sizes up to 2^31 in 32 bits, too."""
    return ((size - 1) // 128 + 1) * 16


@triton.jit
def _code_block(
    x_ptr, other_ptr, out_ptr, codes_ptr, start, size, low_bits, high_bits, extra_bits,
    OP: tl.constexpr, OTHER: tl.constexpr, CORNERS: tl.constexpr, BELOW: tl.constexpr, LOW: tl.constexpr,
    BETWEEN: tl.constexpr, HIGH: tl.constexpr, ABOVE: tl.constexpr, NAN: tl.constexpr,
    BITS: tl.constexpr, UNIT: tl.constexpr, BLOCK: tl.constexpr, WHOLE: tl.constexpr,
):  # fmt: skip
    at = start + tl.arange(0, BLOCK)
    inside = at < size
    raw = tl.load(x_ptr + at) if WHOLE else tl.load(x_ptr + at, mask=inside)
    x, low, high, extra = _wide(raw), _number(low_bits, raw), _number(high_bits, raw), _number(extra_bits, raw)
    if OTHER == "tensor":
        low = _wide(tl.load(other_ptr + at) if WHOLE else tl.load(other_ptr + at, mask=inside))
    elif OTHER == "number":
        low = _wide(tl.load(other_ptr).to(raw.dtype))
    # Kinks lie at the bounds as the tensor's own type holds them. Most operators round these for the value too, or may
    # as well: the value is a bound, to be rounded, or an entry, which is.
    first, second = low if OTHER == "tensor" else _wide(low.to(raw.dtype)), _wide(high.to(raw.dtype))
    if OP != "leaky_relu" and OP != "hardsigmoid" and OP != "abs":
        low, high, extra = first, second, _wide(extra.to(raw.dtype))
    value = _value(x, low, high, extra, OP).to(raw.dtype)
    code = _side(x, first, BELOW, LOW, BETWEEN, NAN)
    if CORNERS == 2:
        if HIGH == ABOVE:
            code = tl.where(x >= second, ABOVE, code)
        else:
            code = tl.where(x > second, ABOVE, code if HIGH == BETWEEN else tl.where(x == second, HIGH, code))
    planes = code if BITS == 1 else (code & 1) | (code >> 1 << 8)
    packed = tl.sum(tl.reshape(planes, [BLOCK // 8, 8]) << tl.arange(0, 8)[None, :], axis=1)
    place = start // 8 + tl.arange(0, BLOCK // 8)
    if WHOLE:
        tl.store(out_ptr + at, value)
        tl.store(codes_ptr + place, packed.to(tl.uint8))
    else:
        tl.store(out_ptr + at, value, mask=inside)
        tl.store(codes_ptr + place, packed.to(tl.uint8), mask=place * 8 < size)
    if BITS == 2:
        second = packed >> 8
        is_written = True
        if UNIT:
            is_written = tl.max(second, axis=0) > 0
            tl.store(codes_ptr + 2 * _plane(size) + start // UNIT, is_written.to(tl.uint8))
        if is_written:
            tl.store(codes_ptr + _plane(size) + place, second.to(tl.uint8), mask=place * 8 < size)


@triton.jit
def code(
    x_ptr, other_ptr, out_ptr, codes_ptr, size, low_bits, high_bits, extra_bits,
    OP: tl.constexpr, OTHER: tl.constexpr, CORNERS: tl.constexpr, BELOW: tl.constexpr, LOW: tl.constexpr,
    BETWEEN: tl.constexpr, HIGH: tl.constexpr, ABOVE: tl.constexpr, NAN: tl.constexpr,
    BITS: tl.constexpr, UNIT: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The operator's value, and the code of each entry."""
    start = tl.program_id(0).to(tl.int64) * BLOCK
    if start + BLOCK <= size:  # without masks loads are as wide as they can be, whatever the size
        _code_block(
            x_ptr, other_ptr, out_ptr, codes_ptr, start, size, low_bits, high_bits, extra_bits,
            OP, OTHER, CORNERS, BELOW, LOW, BETWEEN, HIGH, ABOVE, NAN, BITS, UNIT, BLOCK, True,
        )  # fmt: skip
    else:
        _code_block(
            x_ptr, other_ptr, out_ptr, codes_ptr, start, size, low_bits, high_bits, extra_bits,
            OP, OTHER, CORNERS, BELOW, LOW, BETWEEN, HIGH, ABOVE, NAN, BITS, UNIT, BLOCK, False,
        )  # fmt: skip


@triton.jit
def _weigh(cotangent, weight_bits, KIND: tl.constexpr):
    if KIND == ZERO:
        result = tl.zeros_like(cotangent)
    elif KIND == ONE:
        result = cotangent
    else:
        result = (_wide(cotangent) * _number(weight_bits, cotangent)).to(cotangent.dtype)
    return result


@triton.jit
def _chosen(cotangent, code, w0, w1, w2, w3, K0: tl.constexpr, K1: tl.constexpr, K2: tl.constexpr, K3: tl.constexpr,
            BITS: tl.constexpr):  # fmt: skip
    result = tl.where(code == 0, _weigh(cotangent, w0, K0), _weigh(cotangent, w1, K1))
    if BITS == 2:
        result = tl.where(code == 2, _weigh(cotangent, w2, K2), result)
        result = tl.where(code == 3, _weigh(cotangent, w3, K3), result)
    return result


@triton.jit
def _store_weighed(
    cotangent, code, out_ptr, other_ptr, at, size, w0, w1, w2, w3, u0, u1, u2, u3,
    K0: tl.constexpr, K1: tl.constexpr, K2: tl.constexpr, K3: tl.constexpr,
    L0: tl.constexpr, L1: tl.constexpr, L2: tl.constexpr, L3: tl.constexpr,
    OTHER: tl.constexpr, BITS: tl.constexpr, WHOLE: tl.constexpr,
):  # fmt: skip
    result = _chosen(cotangent, code, w0, w1, w2, w3, K0, K1, K2, K3, BITS)
    if WHOLE:
        tl.store(out_ptr + at, result)
    else:
        tl.store(out_ptr + at, result, mask=at < size)
    if OTHER:
        result = _chosen(cotangent, code, u0, u1, u2, u3, L0, L1, L2, L3, BITS)
        if WHOLE:
            tl.store(other_ptr + at, result)
        else:
            tl.store(other_ptr + at, result, mask=at < size)


@triton.jit
def _weigh_block(
    cotangent_ptr, codes_ptr, out_ptr, other_ptr, start, size, w0, w1, w2, w3, u0, u1, u2, u3,
    K0: tl.constexpr, K1: tl.constexpr, K2: tl.constexpr, K3: tl.constexpr,
    L0: tl.constexpr, L1: tl.constexpr, L2: tl.constexpr, L3: tl.constexpr,
    OTHER: tl.constexpr, BITS: tl.constexpr, UNIT: tl.constexpr, BLOCK: tl.constexpr, WHOLE: tl.constexpr,
):  # fmt: skip
    at = start + tl.arange(0, BLOCK)
    shift = (at % 8).to(tl.int32)
    cotangent = tl.load(cotangent_ptr + at) if WHOLE else tl.load(cotangent_ptr + at, mask=at < size)
    byte = tl.load(codes_ptr + at // 8) if WHOLE else tl.load(codes_ptr + at // 8, mask=at < size)
    code = (byte.to(tl.int32) >> shift) & 1
    has_second = BITS == 2
    if BITS == 2 and UNIT:
        has_second = tl.load(codes_ptr + 2 * _plane(size) + start // UNIT) != 0
    if has_second:
        place = codes_ptr + _plane(size) + at // 8
        second = tl.load(place) if WHOLE else tl.load(place, mask=at < size)
        code |= ((second.to(tl.int32) >> shift) & 1) << 1
        _store_weighed(
            cotangent, code, out_ptr, other_ptr, at, size, w0, w1, w2, w3, u0, u1, u2, u3,
            K0, K1, K2, K3, L0, L1, L2, L3, OTHER, 2, WHOLE,
        )  # fmt: skip
    else:
        _store_weighed(
            cotangent, code, out_ptr, other_ptr, at, size, w0, w1, w2, w3, u0, u1, u2, u3,
            K0, K1, K2, K3, L0, L1, L2, L3, OTHER, 1, WHOLE,
        )  # fmt: skip


@triton.jit
def weigh(
    cotangent_ptr, codes_ptr, out_ptr, other_ptr, size, w0, w1, w2, w3, u0, u1, u2, u3,
    K0: tl.constexpr, K1: tl.constexpr, K2: tl.constexpr, K3: tl.constexpr,
    L0: tl.constexpr, L1: tl.constexpr, L2: tl.constexpr, L3: tl.constexpr,
    OTHER: tl.constexpr, BITS: tl.constexpr, UNIT: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The cotangent times the weight that each entry's code stands for; for one operand or two."""
    start = tl.program_id(0).to(tl.int64) * BLOCK
    if start + BLOCK <= size:
        _weigh_block(
            cotangent_ptr, codes_ptr, out_ptr, other_ptr, start, size, w0, w1, w2, w3, u0, u1, u2, u3,
            K0, K1, K2, K3, L0, L1, L2, L3, OTHER, BITS, UNIT, BLOCK, True,
        )  # fmt: skip
    else:
        _weigh_block(
            cotangent_ptr, codes_ptr, out_ptr, other_ptr, start, size, w0, w1, w2, w3, u0, u1, u2, u3,
            K0, K1, K2, K3, L0, L1, L2, L3, OTHER, BITS, UNIT, BLOCK, False,
        )  # fmt: skip


@triton.jit
def pack(mask_ptr, bits_ptr, size, BLOCK: tl.constexpr):
    """Bytes that are 0 or 1 as bits."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    bits = tl.load(mask_ptr + at, mask=at < size, other=0).to(tl.int32)
    packed = tl.sum(tl.reshape(bits, [BLOCK // 8, 8]) << tl.arange(0, 8)[None, :], axis=1)
    place = tl.program_id(0).to(tl.int64) * (BLOCK // 8) + tl.arange(0, BLOCK // 8)
    tl.store(bits_ptr + place, packed.to(tl.uint8), mask=place * 8 < size)


@triton.jit
def mend(
    gradient_ptr, x_ptr, cotangent_ptr, size, low_bits, high_bits, w0, w1,
    K0: tl.constexpr, K1: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """A gradient made by torch, written anew where the input lies on one of two kinks: the weighted cotangent."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    raw = tl.load(x_ptr + at, mask=at < size, other=float("nan"))
    x, low, high = _wide(raw), _wide(_number(low_bits, raw).to(raw.dtype)), _wide(_number(high_bits, raw).to(raw.dtype))
    is_hit = (x == low) | (x == high)
    if tl.max(is_hit.to(tl.int32), axis=0) > 0:
        cotangent = tl.load(cotangent_ptr + at, mask=is_hit)
        result = tl.where(x == low, _weigh(cotangent, w0, K0), _weigh(cotangent, w1, K1))
        tl.store(gradient_ptr + at, result, mask=is_hit)


@triton.jit
def _place(at, channels, height, width, LAST: tl.constexpr):
    """Plane, row, column and, where channels come last in memory, channel of an entry."""
    if LAST:
        channel, rest = at % channels, at // channels
    else:
        channel, rest = at, at
    return rest // width // height, rest // width % height, rest % width, channel


@triton.jit
def look_ahead(
    x_ptr, tangent_ptr, values_ptr, chosen_ptr, flags_ptr, size, channels, height, width, out_height, out_width,
    pad_y, pad_x, dilate_y, dilate_x, STEP_Y: tl.constexpr, STEP_X: tl.constexpr, KERNEL_Y: tl.constexpr,
    KERNEL_X: tl.constexpr, LAST: tl.constexpr, INDEX: tl.constexpr, OF_SEVERAL_THE_LAST: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """In windows that hold their largest entry twice, the position of the one whose tangent is largest.

    Two flags: whether there is such a window, and one in which tangents tie as well.
    """
    at = tl.program_id(0).to(INDEX) * BLOCK + tl.arange(0, BLOCK)
    inside = at < size
    value = tl.load(values_ptr + at, mask=inside)
    plane, down, across, channel = _place(at, channels, out_height, out_width, LAST)
    count, level = tl.zeros([BLOCK], dtype=tl.int32), tl.zeros([BLOCK], dtype=tl.int32)
    best = tl.full([BLOCK], float("-inf"), dtype=_wide(value).dtype)
    chosen = tl.zeros([BLOCK], dtype=tl.int64)
    for i in tl.static_range(KERNEL_Y):
        for j in tl.static_range(KERNEL_X):
            y, x = down * STEP_Y - pad_y + i * dilate_y, across * STEP_X - pad_x + j * dilate_x
            valid = inside & (y >= 0) & (y < height) & (x >= 0) & (x < width)
            place = (plane * height + y) * width + x
            if LAST:
                place = place * channels + channel
            hit = valid & (tl.load(x_ptr + place, mask=valid) == value)
            ahead = _wide(tl.load(tangent_ptr + place, mask=hit, other=0.0))
            # What is nan is ahead of all, as for torch; and -inf counts, too.
            leads = hit & ((count == 0) | (ahead > best) | ((ahead != ahead) & (best == best)))
            is_level = hit & (count > 0) & (ahead == best)
            level = tl.where(leads, 1, level + is_level.to(tl.int32))
            takes = (leads | is_level) if OF_SEVERAL_THE_LAST else leads
            chosen = tl.where(takes, (y * width + x).to(tl.int64), chosen)
            best = tl.where(leads, ahead, best)
            count += hit.to(tl.int32)
    tl.store(chosen_ptr + at, chosen, mask=inside & (count > 1))
    if tl.max(count, axis=0) > 1:
        tl.store(flags_ptr, 1)
    if tl.max(tl.where(count > 1, level, 0), axis=0) > 1:
        tl.store(flags_ptr + 1, 1)


@triton.jit
def count_hits(
    x_ptr, counts_ptr, size, first_bits, second_bits, PLACES: tl.constexpr, APART: tl.constexpr, INDEX: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Add up how many entries equal each of one or two numbers, which the type of the entries holds.

    The counts lie ``APART``, 0 to be added up too.
    """
    at = tl.program_id(0).to(INDEX) * BLOCK + tl.arange(0, BLOCK)
    inside = at < size
    raw = tl.load(x_ptr + at, mask=inside, other=0.0)
    x = _wide(raw)
    hits = tl.sum((inside & (x == _number(first_bits, raw))).to(tl.int32), axis=0)
    if hits > 0:  # most programs meet none, and need not wait for each other
        tl.atomic_add(counts_ptr, hits.to(tl.int64))
    if PLACES == 2:
        others = tl.sum((inside & (x == _number(second_bits, raw))).to(tl.int32), axis=0)
        if others > 0:
            tl.atomic_add(counts_ptr + APART, others.to(tl.int64))


@triton.jit
def _divided(x, y):
    """Rounded to nearest, as torch divides."""
    return x / y if x.dtype == tl.float64 else tl.div_rn(x, y)


def index_type(size: int) -> tl.dtype:
    """What counts so many entries: 32 bits divide faster."""
    return tl.int32 if size < 1 << 31 else tl.int64
