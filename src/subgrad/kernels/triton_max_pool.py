"""The two Triton kernels of max-pooling whose tied entries share. Imported only when a CUDA tensor is first met.

The forward writes the largest entry of every window and a *word*: a bit for each entry of the window that is as large
and, above those bits, how many there are. The backward reads the cotangent and the words alone, and writes every entry
of the gradient once: no atomics, so that the order of the sums, and with it every bit of them, is always the same.

A program does a tile of *positions* times *lanes*. Where channels come last in memory, lanes are channels, and threads
lie along them; else lanes are whole planes, which a program does in ``TURNS``, and threads lie along positions.
Positions are windows in the forward; in the backward they are *cells*: as many entries as windows
lie apart, so that what is read of a window serves all entries of the cell. All is in three dimensions: an image has one
plane of depth, a line also one row. Stores come last, so that no read waits for them.

``EVEN``: windows all have one size and lie ``S`` apart. Else they are those of adaptive pooling; cells are entries.
"""

from __future__ import annotations

import triton
import triton.language as tl

from subgrad.kernels.triton_bitmask import _divided, _wide

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
def _begin(window, size, outputs, S: tl.constexpr, PAD: tl.constexpr, EVEN: tl.constexpr):
    """Where along one dimension a window begins, and where it, or the input, ends."""
    if EVEN:
        return window * S - PAD, size
    else:
        wide = window.to(tl.int64) * size
        return (wide // outputs).to(tl.int32), ((wide + size + outputs - 1) // outputs).to(tl.int32)


@triton.jit
def max_pool_forward(
    x_ptr, values_ptr, words_ptr, indices_ptr, lanes, depth, height, width, out_depth, out_height, out_width,
    KZ: tl.constexpr, KY: tl.constexpr, KX: tl.constexpr, SZ: tl.constexpr, SY: tl.constexpr, SX: tl.constexpr,
    PZ: tl.constexpr, PY: tl.constexpr, PX: tl.constexpr, DZ: tl.constexpr, DY: tl.constexpr, DX: tl.constexpr,
    EVEN: tl.constexpr, INDICES: tl.constexpr, LAST: tl.constexpr, WHOLE: tl.constexpr, INDEX: tl.constexpr,
    WORD: tl.constexpr, P: tl.constexpr, L: tl.constexpr, TURNS: tl.constexpr,
):  # fmt: skip
    """Values, words and, with ``INDICES``, the positions that torch returns."""
    windows, space = out_depth * out_height * out_width, depth * height * width
    position, lane, first, image = _tile(windows, lanes, P, L, TURNS)
    column, row, plane = position % out_width, position // out_width % out_height, position // out_width // out_height
    z, z_end = _begin(plane, depth, out_depth, SZ, PZ, EVEN)
    y, y_end = _begin(row, height, out_height, SY, PY, EVEN)
    x, x_end = _begin(column, width, out_width, SX, PX, EVEN)
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
    LAST: tl.constexpr, WHOLE: tl.constexpr, INDEX: tl.constexpr, WORD: tl.constexpr, P: tl.constexpr,
    L: tl.constexpr, TURNS: tl.constexpr,
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
    place = _offset((plane * SZ * height + row * SY) * width + column * SX, lane, lanes, space, LAST, INDEX)
    for turn in tl.static_range(TURNS):
        is_lane = (first + turn * L + lane < lanes)[None, :]
        gradients = _start(gradient_ptr, image, first + turn * L, lanes, space, LAST) + place
        for i in tl.static_range(SZ):
            for j in tl.static_range(SY):
                for k in tl.static_range(SX):
                    exists = (plane * SZ + i < depth) & (row * SY + j < height) & (column * SX + k < width)
                    exists = exists & (position < cells)
                    exists = exists[:, None] if WHOLE else exists[:, None] & is_lane
                    apart = _apart(i, j, k, height, width, lanes, LAST, INDEX)
                    tl.store(gradients + apart, found[((turn * SZ + i) * SY + j) * SX + k], mask=exists)


@triton.jit
def _first(place, size, outputs):
    """The first of the windows of adaptive pooling that has a place in it."""
    return (place.to(tl.int64) * outputs // size).to(tl.int32)


@triton.jit
def _within(place, window, size, outputs):
    """How far from its start a window has that place; and whether it is one, and has it."""
    at = place - (window.to(tl.int64) * size // outputs).to(tl.int32)
    return at, (window < outputs) & (at >= 0)


@triton.jit
def adaptive_max_pool_backward(
    cotangent_ptr, words_ptr, gradient_ptr, lanes, depth, height, width, out_depth, out_height, out_width,
    KZ: tl.constexpr, KY: tl.constexpr, KX: tl.constexpr, WZ: tl.constexpr, WY: tl.constexpr, WX: tl.constexpr,
    LAST: tl.constexpr, WHOLE: tl.constexpr, INDEX: tl.constexpr, WORD: tl.constexpr, P: tl.constexpr,
    L: tl.constexpr, TURNS: tl.constexpr,
):  # fmt: skip
    """The same where windows differ in size, and an entry is in ``W`` of them at most."""
    windows, space = out_depth * out_height * out_width, depth * height * width
    position, lane, first, image = _tile(space, lanes, P, L, TURNS)
    x, y, z = position % width, position // width % height, position // width // height
    accurate: tl.constexpr = tl.float64 if cotangent_ptr.dtype.element_ty == tl.float64 else tl.float32
    for turn in tl.static_range(TURNS):
        start = first + turn * L
        inside = (position < space)[:, None] & (start + lane < lanes)[None, :]
        cotangents = _start(cotangent_ptr, image, start, lanes, windows, LAST)
        of_windows = _start(words_ptr, image, start, lanes, windows, LAST)
        total = tl.zeros([P, L], dtype=accurate)
        for w in tl.static_range(WZ):
            plane = _first(z, depth, out_depth) + w
            i, z_exists = _within(z, plane, depth, out_depth)
            for v in tl.static_range(WY):
                row = _first(y, height, out_height) + v
                j, y_exists = _within(y, row, height, out_height)
                for u in tl.static_range(WX):
                    column = _first(x, width, out_width) + u
                    k, x_exists = _within(x, column, width, out_width)
                    exists = (z_exists & y_exists & x_exists)[:, None] & inside
                    offset = _offset((plane * out_height + row) * out_width + column, lane, lanes, windows, LAST, INDEX)
                    word = tl.load(of_windows + offset, mask=exists, other=0).to(WORD)
                    cotangent = tl.load(cotangents + offset, mask=exists, other=0.0)
                    number = ((i * KY + j) * KX + k).to(WORD)[:, None]
                    is_largest = exists & (((word >> number) & 1) != 0)
                    total += tl.where(is_largest, _share(cotangent, word, KZ * KY * KX), 0.0)
        out = _start(gradient_ptr, image, start, lanes, space, LAST) + _offset(
            position, lane, lanes, space, LAST, INDEX
        )
        tl.store(out, total.to(gradient_ptr.dtype.element_ty), mask=inside)
