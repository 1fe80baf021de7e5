"""The Triton kernels of max-pooling whose tied entries share. Imported only when a CUDA tensor is first met.

The forward writes the largest entry of every window and a *word*: a bit for each entry of the window that is as large
and, above those bits, how many there are. The backward reads the cotangent and the words alone, and writes every entry
of the gradient once: no atomics, so that the order of the sums, and with it every bit of them, is always the same.

A program does a tile of *positions* times *lanes*. Where channels come last in memory, lanes are channels, and threads
lie along them; else lanes are whole planes, which a program does in ``TURNS``, and threads lie along positions.
Positions are windows in the forward; in the backward they are *cells*: as many entries as windows
lie apart, so that what is read of a window serves all entries of the cell. All is in three dimensions: an image has one
plane of depth, a line also one row. Stores come last, so that no read waits for them.

``EVEN``: windows all have one size and lie ``S`` apart. Else they are those of adaptive pooling.

A window of more entries than a word has bits is looked at one dimension after the other, and its word is a position and
a count: how many are as large as the entry there. Which they are the backward sees in the input, which is kept for it:
those that equal the window's largest.
"""

from __future__ import annotations

import triton
import triton.language as tl

from subgrad.kernels.triton_bitmask import _divided, _wide

POSITION = tl.constexpr(0x7FFFFFFF)  # in the word of a large window; above are how many entries are as large
COUNTED = tl.constexpr(58)  # entries, for which a word of 64 bits still has room for their count


@triton.jit
def _tile(positions, lanes, P: tl.constexpr, L: tl.constexpr, TURNS: tl.constexpr):
    """This program's positions and lanes, the first of its lanes, and which image it is in, if channels come last."""
    program, blocks, of_lanes = tl.program_id(0), tl.cdiv(positions, P), tl.cdiv(lanes, L * TURNS)
    position = program % blocks * P + tl.arange(0, P)
    first = (program // blocks % of_lanes).to(tl.int64) * (L * TURNS)
    return position, tl.arange(0, L), first, (program // blocks // of_lanes).to(tl.int64)


@triton.jit
def _start(ptr, image, first, lanes, space, LAST: tl.constexpr):
    """Where a tile's lanes begin in a tensor that has so many entries in space."""
    return ptr + (image * space * lanes + first if LAST else first * space)


@triton.jit
def _offset(place, lane, lanes, space, LAST: tl.constexpr, INDEX: tl.constexpr):
    """From there to an entry."""
    place, lane = place.to(INDEX)[:, None], lane.to(INDEX)[None, :]
    return place * lanes + lane if LAST else lane * space + place


@triton.jit
def _counted(bits):
    """How many bits are set; the compiler knows this pattern."""
    if bits.dtype == tl.int64:
        bits -= (bits >> 1) & 0x5555555555555555
        bits = (bits & 0x3333333333333333) + ((bits >> 2) & 0x3333333333333333)
        bits = (bits + (bits >> 4)) & 0x0F0F0F0F0F0F0F0F
        return ((bits * 0x0101010101010101) >> 56) & 0x7F
    else:
        bits -= (bits >> 1) & 0x55555555
        bits = (bits & 0x33333333) + ((bits >> 2) & 0x33333333)
        bits = (bits + (bits >> 4)) & 0x0F0F0F0F
        return ((bits * 0x01010101) >> 24) & 0x3F


@triton.jit
def _apart(z, y, x, height, width, lanes, LAST: tl.constexpr, INDEX: tl.constexpr):
    """How far apart in memory entries lie that are so far apart in space."""
    space = (tl.cast(z, INDEX) * height + y) * width + x
    return space * lanes if LAST else space


@triton.jit
def _begin(
    window, size, outputs, S: tl.constexpr, PAD: tl.constexpr, EVEN: tl.constexpr, COUNTS: tl.constexpr
):  # fmt: skip
    """Where along one dimension a window begins, and where it, or the input, ends; ``COUNTS`` holds what is divided."""
    if EVEN:
        return window * S - PAD, size
    else:
        wide = window.to(COUNTS) * size
        return (wide // outputs).to(tl.int32), ((wide + size + outputs - 1) // outputs).to(tl.int32)


@triton.jit
def max_pool_forward(
    x_ptr, values_ptr, words_ptr, indices_ptr, lanes, depth, height, width, out_depth, out_height, out_width,
    KZ: tl.constexpr, KY: tl.constexpr, KX: tl.constexpr, SZ: tl.constexpr, SY: tl.constexpr, SX: tl.constexpr,
    PZ: tl.constexpr, PY: tl.constexpr, PX: tl.constexpr, DZ: tl.constexpr, DY: tl.constexpr, DX: tl.constexpr,
    EVEN: tl.constexpr, COUNTS: tl.constexpr, INDICES: tl.constexpr, LAST: tl.constexpr, WHOLE: tl.constexpr,
    INDEX: tl.constexpr, WORD: tl.constexpr, P: tl.constexpr, L: tl.constexpr, TURNS: tl.constexpr,
):  # fmt: skip
    """Values, words and, with ``INDICES``, the positions that torch returns."""
    windows, space = out_depth * out_height * out_width, depth * height * width
    position, lane, first, image = _tile(windows, lanes, P, L, TURNS)
    column, row, plane = position % out_width, position // out_width % out_height, position // out_width // out_height
    z, z_end = _begin(plane, depth, out_depth, SZ, PZ, EVEN, COUNTS)
    y, y_end = _begin(row, height, out_height, SY, PY, EVEN, COUNTS)
    x, x_end = _begin(column, width, out_width, SX, PX, EVEN, COUNTS)
    place = (z * height + y) * width + x
    found = ()
    for turn in tl.static_range(TURNS):
        is_lane = (first + turn * L + lane < lanes)[None, :]
        begin = _start(x_ptr, image, first + turn * L, lanes, space, LAST)
        begin += _offset(place, lane, lanes, space, LAST, INDEX)
        value = tl.full([P, L], float("-inf"), dtype=x_ptr.dtype.element_ty)
        bits = tl.full([P, L], 0, dtype=WORD)
        index = tl.full([P, L], 0, dtype=tl.int32)
        for i in tl.static_range(KZ):
            for j in tl.static_range(KY):
                for k in tl.static_range(KX):
                    exists = (z + i * DZ >= 0) & (z + i * DZ < z_end) & (y + j * DY >= 0) & (y + j * DY < y_end)
                    exists = exists & (x + k * DX >= 0) & (x + k * DX < x_end) & (position < windows)
                    exists = exists[:, None] if WHOLE else exists[:, None] & is_lane
                    entry_ptr = begin + _apart(i * DZ, j * DY, k * DX, height, width, lanes, LAST, INDEX)
                    entry = tl.load(entry_ptr, mask=exists, other=float("-inf"))
                    # The first of the largest, or the last that is nan, as torch's kernels; all are -inf at first.
                    leads, level = (entry > value) | (entry != entry), (entry == value) & exists
                    if INDICES:
                        at = place + _apart(i * DZ, j * DY, k * DX, height, width, 1, False, tl.int32)
                        index = tl.where(leads | (level & (bits == 0)), at[:, None], index)
                    bit = tl.full([1, 1], 1, dtype=WORD) << ((i * KY + j) * KX + k)
                    bits = tl.where(leads, bit, tl.where(level, bits | bit, bits))
                    value = tl.where(leads, entry, value)
        if KZ * KY * KX <= COUNTED:
            bits |= _counted(bits) << KZ * KY * KX
        found = found + ((value, bits, index),)
    out = _offset(position, lane, lanes, windows, LAST, INDEX)
    for turn in tl.static_range(TURNS):
        stored = (position < windows)[:, None]
        stored = stored if WHOLE else stored & (first + turn * L + lane < lanes)[None, :]
        start = first + turn * L
        tl.store(_start(values_ptr, image, start, lanes, windows, LAST) + out, found[turn][0], mask=stored)
        words = found[turn][1].to(words_ptr.dtype.element_ty)
        tl.store(_start(words_ptr, image, start, lanes, windows, LAST) + out, words, mask=stored)
        if INDICES:
            indices = found[turn][2].to(tl.int64)
            tl.store(_start(indices_ptr, image, start, lanes, windows, LAST) + out, indices, mask=stored)


@triton.jit
def _share(cotangent, word, ENTRIES: tl.constexpr):
    """What each of a window's largest entries is given."""
    room: tl.constexpr = 15 if ENTRIES <= 12 else 31 if ENTRIES <= 27 else 63
    count = (word >> ENTRIES) & room if ENTRIES <= COUNTED else _counted(word)
    wide = _wide(cotangent)
    if cotangent.dtype == tl.float32 or cotangent.dtype == tl.float64:
        return _divided(wide, count.to(wide.dtype))
    else:  # wrong in the last of 24 bits at most, of which 11 or 8 are left; and exact where none tie
        return tl.where(count == 1, wide, wide / count.to(tl.float32))


@triton.constexpr_function
def _entry(at_z, at_y, at_x, kernel, dilation):
    """Which entry of a window lies so far from its start; -1 if none does."""
    number = 0
    for at, size, apart in zip((at_z, at_y, at_x), kernel, dilation):  # noqa: B905 (the interpreter's are no tuples)
        if at < 0 or at % apart or at // apart >= size:
            return -1
        number = number * size + at // apart
    return number


@triton.jit
def _added(total, share, word, NUMBER: tl.constexpr):
    """With the share of a window in which the entry of that number is among the largest."""
    if NUMBER < 0:
        return total
    else:
        return total + tl.where(((word >> NUMBER) & 1) != 0, share, 0.0)


@triton.jit
def _total(
    shares, words, i: tl.constexpr, j: tl.constexpr, k: tl.constexpr,
    KZ: tl.constexpr, KY: tl.constexpr, KX: tl.constexpr, SZ: tl.constexpr, SY: tl.constexpr, SX: tl.constexpr,
    PZ: tl.constexpr, PY: tl.constexpr, PX: tl.constexpr, DZ: tl.constexpr, DY: tl.constexpr, DX: tl.constexpr,
    UZ: tl.constexpr, UY: tl.constexpr, UX: tl.constexpr, VZ: tl.constexpr, VY: tl.constexpr, VX: tl.constexpr,
):  # fmt: skip
    """What one entry of each cell is given by all windows that reach it."""
    total = tl.zeros_like(shares[0])
    for w in tl.static_range(UZ, VZ):
        for v in tl.static_range(UY, VY):
            for u in tl.static_range(UX, VX):
                total = _added(
                    total,
                    shares[((w - UZ) * (VY - UY) + v - UY) * (VX - UX) + u - UX],
                    words[((w - UZ) * (VY - UY) + v - UY) * (VX - UX) + u - UX],
                    _entry(i + PZ - w * SZ, j + PY - v * SY, k + PX - u * SX, (KZ, KY, KX), (DZ, DY, DX)),
                )
    return total


@triton.jit
def max_pool_backward(
    cotangent_ptr, words_ptr, gradient_ptr, lanes, depth, height, width, out_depth, out_height, out_width,
    KZ: tl.constexpr, KY: tl.constexpr, KX: tl.constexpr, SZ: tl.constexpr, SY: tl.constexpr, SX: tl.constexpr,
    PZ: tl.constexpr, PY: tl.constexpr, PX: tl.constexpr, DZ: tl.constexpr, DY: tl.constexpr, DX: tl.constexpr,
    PAIRS: tl.constexpr, LAST: tl.constexpr, WHOLE: tl.constexpr, INDEX: tl.constexpr, WORD: tl.constexpr,
    P: tl.constexpr, L: tl.constexpr, TURNS: tl.constexpr,
):  # fmt: skip
    """Every entry's share of the cotangents of the windows in which it is largest, summed in their order."""
    across, down = tl.cdiv(width, SX), tl.cdiv(height, SY)
    cells = tl.cdiv(depth, SZ) * down * across
    windows, space = out_depth * out_height * out_width, depth * height * width
    position, lane, first, image = _tile(cells, lanes, P, L, TURNS)
    column, row, plane = position % across, position // across % down, position // across // down
    window = _offset((plane * out_height + row) * out_width + column, lane, lanes, windows, LAST, INDEX)
    # The windows that reach into a cell have its own number or, before and after, others near it.
    UZ: tl.constexpr = -(((KZ - 1) * DZ - PZ) // SZ)
    UY: tl.constexpr = -(((KY - 1) * DY - PY) // SY)
    UX: tl.constexpr = -(((KX - 1) * DX - PX) // SX)
    VZ: tl.constexpr = (SZ - 1 + PZ) // SZ + 1
    VY: tl.constexpr = (SY - 1 + PY) // SY + 1
    VX: tl.constexpr = (SX - 1 + PX) // SX + 1
    found = ()
    for turn in tl.static_range(TURNS):
        is_lane = (first + turn * L + lane < lanes)[None, :]
        cotangents = _start(cotangent_ptr, image, first + turn * L, lanes, windows, LAST) + window
        of_windows = _start(words_ptr, image, first + turn * L, lanes, windows, LAST) + window
        shares, words = (), ()
        for w in tl.static_range(UZ, VZ):
            for v in tl.static_range(UY, VY):
                for u in tl.static_range(UX, VX):
                    z, y, x = plane + w, row + v, column + u
                    exists = (z >= 0) & (z < out_depth) & (y >= 0) & (y < out_height) & (x >= 0) & (x < out_width)
                    exists = exists & (position < cells)
                    exists = exists[:, None] if WHOLE else exists[:, None] & is_lane
                    apart = _apart(w, v, u, out_height, out_width, lanes, LAST, INDEX)
                    word = tl.load(of_windows + apart, mask=exists, other=0).to(WORD)
                    cotangent = tl.load(cotangents + apart, mask=exists, other=0.0)
                    shares, words = shares + (_share(cotangent, word, KZ * KY * KX),), words + (word,)
        for i in tl.static_range(SZ):
            for j in tl.static_range(SY):
                for k in tl.static_range(SX):
                    total = _total(
                        shares, words, i, j, k, KZ, KY, KX, SZ, SY, SX, PZ, PY, PX, DZ, DY, DX, UZ, UY, UX, VZ, VY, VX
                    )
                    found = found + (total.to(gradient_ptr.dtype.element_ty),)
    place = (plane * SZ * height + row * SY) * width + column * SX
    if PAIRS:  # entries of a row are written two at once, as threads lie two entries apart
        space = tl.multiple_of(space, 2)
        place = _offset(tl.multiple_of(place, 2), lane, lanes, space, LAST, INDEX) + tl.arange(0, 2)[None, :]
    else:
        place = _offset(place, lane, lanes, space, LAST, INDEX)
    for turn in tl.static_range(TURNS):
        is_lane = (first + turn * L + lane < lanes)[None, :]
        gradients = _start(gradient_ptr, image, first + turn * L, lanes, space, LAST) + place
        for i in tl.static_range(SZ):
            for j in tl.static_range(SY):
                for k in tl.static_range(1 if PAIRS else SX):
                    exists = (plane * SZ + i < depth) & (row * SY + j < height) & (column * SX + k < width)
                    exists = exists & (position < cells)
                    exists = exists[:, None] if WHOLE else exists[:, None] & is_lane
                    apart = _apart(i, j, k, height, width, lanes, LAST, INDEX)
                    one = found[((turn * SZ + i) * SY + j) * SX + k]
                    if PAIRS:
                        one = tl.interleave(one, found[((turn * SZ + i) * SY + j) * SX + 1])
                    tl.store(gradients + apart, one, mask=exists)


@triton.jit
def _cell(cell, size, outputs, C: tl.constexpr, W: tl.constexpr, COUNTS: tl.constexpr):
    """Where along one dimension a cell of adaptive pooling begins and ends, and the first window that reaches it.

    There are as many cells as windows, or as entries where those are fewer.
    """
    cells, wide = tl.minimum(size, outputs), cell.to(COUNTS)
    begin, end = (wide * size // cells).to(tl.int32), ((wide + 1) * size // cells).to(tl.int32)
    if C == 1 and W > 1:
        return begin, end, (wide * outputs // size).to(tl.int32)
    else:  # that which begins with the cell and, where sizes differ, the one before, which may have its first entry
        return begin, end, cell + 1 - W


@triton.jit
def _number(at, first, size, outputs, i: tl.constexpr, w: tl.constexpr, C: tl.constexpr, K: tl.constexpr,
            W: tl.constexpr, COUNTS: tl.constexpr):  # fmt: skip
    """Which entry of window ``w`` along one dimension a cell's entry ``i`` is, and whether it is one of its."""
    window = first + w
    begin = at if C > 1 and w == W - 1 else (window.to(COUNTS) * size // outputs).to(tl.int32)
    number = at + i - begin
    return number, (number >= 0) & (number < K)


@triton.jit
def adaptive_max_pool_backward(
    cotangent_ptr, words_ptr, gradient_ptr, lanes, depth, height, width, out_depth, out_height, out_width,
    KZ: tl.constexpr, KY: tl.constexpr, KX: tl.constexpr, CZ: tl.constexpr, CY: tl.constexpr, CX: tl.constexpr,
    WZ: tl.constexpr, WY: tl.constexpr, WX: tl.constexpr, COUNTS: tl.constexpr,
    LAST: tl.constexpr, WHOLE: tl.constexpr, INDEX: tl.constexpr, WORD: tl.constexpr, P: tl.constexpr,
    L: tl.constexpr, TURNS: tl.constexpr,
):  # fmt: skip
    """The same where windows differ in size: cells of ``C`` entries at most, which ``W`` windows reach."""
    across, down = tl.minimum(width, out_width), tl.minimum(height, out_height)
    cells = tl.minimum(depth, out_depth) * down * across
    windows, space = out_depth * out_height * out_width, depth * height * width
    position, lane, first, image = _tile(cells, lanes, P, L, TURNS)
    x, x_end, column = _cell(position % across, width, out_width, CX, WX, COUNTS)
    y, y_end, row = _cell(position // across % down, height, out_height, CY, WY, COUNTS)
    z, z_end, plane = _cell(position // across // down, depth, out_depth, CZ, WZ, COUNTS)
    window = _offset((plane * out_height + row) * out_width + column, lane, lanes, windows, LAST, INDEX)
    place = _offset((z * height + y) * width + x, lane, lanes, space, LAST, INDEX)
    for turn in tl.static_range(TURNS):
        start = first + turn * L
        inside = (position < cells)[:, None] & (start + lane < lanes)[None, :]
        cotangents = _start(cotangent_ptr, image, start, lanes, windows, LAST) + window
        of_windows = _start(words_ptr, image, start, lanes, windows, LAST) + window
        gradients = _start(gradient_ptr, image, start, lanes, space, LAST) + place
        shares, words = (), ()
        for w in tl.static_range(WZ):
            for v in tl.static_range(WY):
                for u in tl.static_range(WX):
                    exists = (plane + w >= 0) & (plane + w < out_depth) & (row + v >= 0) & (row + v < out_height)
                    exists = (exists & (column + u >= 0) & (column + u < out_width))[:, None] & inside
                    apart = _apart(w, v, u, out_height, out_width, lanes, LAST, INDEX)
                    word = tl.load(of_windows + apart, mask=exists, other=0).to(WORD)
                    cotangent = tl.load(cotangents + apart, mask=exists, other=0.0)
                    shares, words = shares + (_share(cotangent, word, KZ * KY * KX),), words + (word,)
        for i in tl.static_range(CZ):
            for j in tl.static_range(CY):
                for k in tl.static_range(CX):
                    total = tl.zeros_like(shares[0])
                    # A cell of several entries has at most its first in the window before.
                    for w in tl.static_range(WZ - 1 if i > 0 else 0, WZ):
                        deep, has_z = _number(z, plane, depth, out_depth, i, w, CZ, KZ, WZ, COUNTS)
                        for v in tl.static_range(WY - 1 if j > 0 else 0, WY):
                            down_it, has_y = _number(y, row, height, out_height, j, v, CY, KY, WY, COUNTS)
                            for u in tl.static_range(WX - 1 if k > 0 else 0, WX):
                                along, has_x = _number(x, column, width, out_width, k, u, CX, KX, WX, COUNTS)
                                has = has_z & has_y & has_x
                                number = tl.where(has, (deep * KY + down_it) * KX + along, 0).to(WORD)[:, None]
                                bit = (words[(w * WY + v) * WX + u] >> number) & 1
                                share = shares[(w * WY + v) * WX + u]
                                total += tl.where((bit != 0) & has[:, None], share, 0.0)
                    exists = ((z + i < z_end) & (y + j < y_end) & (x + k < x_end))[:, None] & inside
                    apart = _apart(i, j, k, height, width, lanes, LAST, INDEX)
                    tl.store(gradients + apart, total.to(gradient_ptr.dtype.element_ty), mask=exists)


@triton.jit
def large_windows_forward(
    x_ptr, found_ptr, values_ptr, words_ptr, total, size, outputs, inner, below,
    K: tl.constexpr, S: tl.constexpr, PAD: tl.constexpr, D: tl.constexpr, EVEN: tl.constexpr, FIRST: tl.constexpr,
    INDEX: tl.constexpr, P: tl.constexpr, E: tl.constexpr,
):  # fmt: skip
    """Along one dimension the largest entry of each window, with the word of what was found along dimensions before.

    ``inner`` entries lie between two neighbours along it, and ``below`` positions. ``E`` entries are looked at at once.
    """
    output = tl.program_id(0).to(INDEX) * P + tl.arange(0, P)
    base = output // inner // outputs * size * inner + output % inner
    begin, end = _begin(output // inner % outputs, size, outputs, S, PAD, EVEN, INDEX)
    end += tl.zeros_like(begin)  # the input's is a number
    value = tl.full([P], float("-inf"), dtype=x_ptr.dtype.element_ty)
    word = tl.zeros([P], dtype=tl.int64)
    for start in range(0, K, E):
        if E == 1:
            place = begin + start * D
            is_some = (place >= 0) & (place < end) & (output < total)
            at = base + place.to(INDEX) * inner
            best = tl.load(x_ptr + at, mask=is_some, other=float("-inf"))
            found = tl.load(found_ptr + at, mask=is_some & ((best >= value) | (best != best)), other=0)
            found = place.to(tl.int64) * below + (1 << 32 if FIRST else found)
        else:
            number = start + tl.arange(0, E)[None, :]
            place = begin[:, None] + number * D
            exists = (place >= 0) & (place < end[:, None]) & (number < K) & (output < total)[:, None]
            at = base[:, None] + place.to(INDEX) * inner
            entry = _wide(tl.load(x_ptr + at, mask=exists, other=float("-inf")))
            before = tl.zeros([P, E], dtype=tl.int64) + (1 << 32)
            if not FIRST:
                before = tl.load(found_ptr + at, mask=exists, other=0)
            index = place.to(tl.int64) * below + (before & POSITION)
            level = exists & (entry == tl.max(tl.where(entry != entry, float("-inf"), entry), axis=1)[:, None])
            of_nan = tl.max(tl.where(entry != entry, index, -1), axis=1)
            of_best = tl.where(of_nan >= 0, of_nan, tl.min(tl.where(level, index, POSITION), axis=1))
            chosen = tl.max(tl.where(exists & (index == of_best[:, None]), number, -1), axis=1)
            is_some = chosen >= 0
            at_best = base + (begin + chosen * D).to(INDEX) * inner
            best = tl.load(x_ptr + at_best, mask=is_some, other=float("-inf"))
            count = tl.where(of_nan >= 0, 1, tl.sum(tl.where(level, before >> 32, 0), axis=1))
            found = count << 32 | of_best
        # The first of the largest, or the last that is nan, as they lie in the input.
        index, of_value = found & POSITION, word & POSITION
        leads = (best > value) | (word == 0) | ((best != best) & ((value == value) | (index > of_value)))
        leads = is_some & leads
        level_too = is_some & (best == value)
        both = (word >> 32) + (found >> 32) << 32 | tl.minimum(index, of_value)
        word = tl.where(leads, found, tl.where(level_too, both, word))
        value = tl.where(leads | (level_too & (index < of_value)), best, value)
    tl.store(values_ptr + output, value, mask=output < total)
    tl.store(words_ptr + output, word, mask=output < total)


@triton.jit
def _windows_with(place, size, outputs, K: tl.constexpr, S: tl.constexpr, PAD: tl.constexpr, D: tl.constexpr,
                  EVEN: tl.constexpr, COUNTS: tl.constexpr):  # fmt: skip
    """The first and the last window along one dimension that reach over a place."""
    if EVEN:
        first = tl.maximum(place + PAD - (K - 1) * D + S - 1, 0) // S
        return first, tl.minimum((place + PAD) // S, outputs - 1)
    else:
        wide = place.to(COUNTS)
        return (wide * outputs // size).to(tl.int32), (((wide + 1) * outputs - 1) // size).to(tl.int32)


@triton.jit
def _has(window, last, place, S: tl.constexpr, PAD: tl.constexpr, D: tl.constexpr):
    """Whether a window, no later than the last that reaches over a place, has it."""
    if D == 1:
        return window <= last
    else:
        return (window <= last) & ((place + PAD - window * S) % D == 0)


@triton.jit
def large_windows_backward(
    x_ptr, shares_ptr, largest_ptr, words_ptr, gradient_ptr,
    lanes, depth, height, width, out_depth, out_height, out_width,
    KZ: tl.constexpr, KY: tl.constexpr, KX: tl.constexpr, SZ: tl.constexpr, SY: tl.constexpr, SX: tl.constexpr,
    PZ: tl.constexpr, PY: tl.constexpr, PX: tl.constexpr, DZ: tl.constexpr, DY: tl.constexpr, DX: tl.constexpr,
    WZ: tl.constexpr, WY: tl.constexpr, WX: tl.constexpr, EVEN: tl.constexpr, COUNTS: tl.constexpr,
    LAST: tl.constexpr, INDEX: tl.constexpr, P: tl.constexpr, L: tl.constexpr,
):  # fmt: skip
    """For each entry the shares of those of ``W`` windows whose largest entry is as large, summed in their order."""
    windows, space = out_depth * out_height * out_width, depth * height * width
    position, lane, first, image = _tile(space, lanes, P, L, 1)
    inside = (position < space)[:, None] & (first + lane < lanes)[None, :]
    x, y, z = position % width, position // width % height, position // width // height
    plane, last_plane = _windows_with(z, depth, out_depth, KZ, SZ, PZ, DZ, EVEN, COUNTS)
    row, last_row = _windows_with(y, height, out_height, KY, SY, PY, DY, EVEN, COUNTS)
    column, last_column = _windows_with(x, width, out_width, KX, SX, PX, DX, EVEN, COUNTS)
    offset = _offset(position, lane, lanes, space, LAST, INDEX)
    window = _offset((plane * out_height + row) * out_width + column, lane, lanes, windows, LAST, INDEX)
    shares = _start(shares_ptr, image, first, lanes, windows, LAST) + window
    largest = _start(largest_ptr, image, first, lanes, windows, LAST) + window
    words = _start(words_ptr, image, first, lanes, windows, LAST) + window
    entry = tl.load(_start(x_ptr, image, first, lanes, space, LAST) + offset, mask=inside)
    total = tl.zeros([P, L], dtype=shares_ptr.dtype.element_ty)
    for w in range(WZ):
        has_z = _has(plane + w, last_plane, z, SZ, PZ, DZ)
        for v in range(WY):
            has_y = has_z & _has(row + v, last_row, y, SY, PY, DY)
            for u in range(WX):
                has = (has_y & _has(column + u, last_column, x, SX, PX, DX))[:, None] & inside
                apart = _apart(w, v, u, out_height, out_width, lanes, LAST, INDEX)
                most = tl.load(largest + apart, mask=has, other=0.0)
                # Of those that are nan, which no entry equals, the word tells the place.
                word = tl.load(words + apart, mask=has & (most != most), other=-1)
                hits = has & ((most == entry) | ((word & POSITION) == position[:, None]))
                total += tl.load(shares + apart, mask=hits, other=0.0)
    gradients = _start(gradient_ptr, image, first, lanes, space, LAST)
    tl.store(gradients + offset, total.to(gradient_ptr.dtype.element_ty), mask=inside)
