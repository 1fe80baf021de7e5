// Max-pooling on the CPU whose tied entries share: the largest entry of every window and a word, as in
// triton_max_pool.py, and the gradient from words and cotangents, window after window as torch's own kernels sum it.
//
// Sixteen planes are pooled at once, side by side in memory, so that every step is an instruction or two. Channels that
// come last lie so already, where sixteen divides them; other planes are copied, which takes little beside the rest.

#pragma once

#include <ATen/ATen.h>
#include <ATen/Dispatch.h>
#include <ATen/OpMathType.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <type_traits>
#include <vector>

#include "cpu_clamp.h"

#define INLINED __attribute__((always_inline))  // of what is done in a loop for several instruction sets
// All lanes at once: none writes what another reads, and a loop that is unrolled would do one after the other.
#define FOR_LANES _Pragma("GCC ivdep") _Pragma("GCC unroll 1") for (int64_t lane = 0; lane < LANES; ++lane)

namespace pooling {
namespace {

using at::Tensor;

// The windows along one dimension: where each begins, and which of its entries exist.
struct Line {
  std::vector<int64_t> start, first, end;

  Line(int64_t size, int64_t outputs, int64_t entries, int64_t step, int64_t padding, int64_t dilation, bool even) {
    for (int64_t window = 0; window < outputs; ++window) {
      const int64_t from = even ? window * step - padding : window * size / outputs;
      const int64_t past = even ? size : ((window + 1) * size + outputs - 1) / outputs;
      start.push_back(from);
      first.push_back(from < 0 ? (-from + dilation - 1) / dilation : 0);
      end.push_back(std::min(entries, (past - from + dilation - 1) / dilation));
    }
  }

  bool has(int64_t window, int64_t entry) const { return first[window] <= entry && entry < end[window]; }
};

// One call, in three dimensions.
struct Windows {
  int64_t channels, planes;  // channels that come last in memory, else 1; planes are those of all channels
  std::array<int64_t, 3> sizes, outputs, kernel, dilation;
  std::vector<Line> lines;
  std::vector<int64_t> offsets;  // of a window's entries from its start
  int64_t step;  // between windows in a row; 0 if it differs

  // As `Geometry` in max_pool.py gives them.
  explicit Windows(const std::vector<int64_t>& given)
      : channels(given[0]), planes(given[1]), step(given[20] ? given[13] : 0) {
    const auto three = [&](int64_t at) { return std::array<int64_t, 3>{given[at], given[at + 1], given[at + 2]}; };
    sizes = three(2), outputs = three(5), kernel = three(8), dilation = three(17);
    const auto steps = three(11), padding = three(14);
    for (int64_t dim = 0; dim < 3; ++dim)
      lines.emplace_back(sizes[dim], outputs[dim], kernel[dim], steps[dim], padding[dim], dilation[dim], given[20]);
    for (int64_t i = 0; i < kernel[0]; ++i)
      for (int64_t j = 0; j < kernel[1]; ++j)
        for (int64_t k = 0; k < kernel[2]; ++k)
          offsets.push_back(place(i * dilation[0], j * dilation[1], k * dilation[2]));
  }

  int64_t place(int64_t z, int64_t y, int64_t x) const { return (z * sizes[1] + y) * sizes[2] + x; }
  int64_t start(int64_t oz, int64_t oy, int64_t ox) const {
    return place(lines[0].start[oz], lines[1].start[oy], lines[2].start[ox]);
  }
  // Where a window has its first entry, or would, as torch's own kernels say, if it has none: spread out, it may not.
  int64_t first(int64_t oz, int64_t oy, int64_t ox) const {
    const auto at = [&](int64_t dim, int64_t out) { return lines[dim].start[out] + lines[dim].first[out] * dilation[dim]; };
    return place(at(0, oz), at(1, oy), at(2, ox));
  }
  int64_t entries() const { return kernel[0] * kernel[1] * kernel[2]; }
  int64_t space() const { return sizes[0] * sizes[1] * sizes[2]; }
  int64_t windows() const { return outputs[0] * outputs[1] * outputs[2]; }

  // What is done gets the first place of each row of a window, and how many entries it has there.
  template <typename Work>
  ALWAYS_INLINE void for_rows(int64_t oz, int64_t oy, int64_t ox, Work work) const {
    const int64_t first = lines[2].first[ox], size = lines[2].end[ox] - first;
    for (int64_t i = lines[0].first[oz]; i < lines[0].end[oz]; ++i)
      for (int64_t j = lines[1].first[oy]; j < lines[1].end[oy]; ++j)
        work(start(oz, oy, ox) + place(i * dilation[0], j * dilation[1], first * dilation[2]), size);
  }

  // Whether columns are looked at once for several windows: worth it where these overlap by half, and have several rows.
  bool overlap() const { return kernel[0] * kernel[1] > 1 && 2 * outputs[2] * kernel[2] > 3 * sizes[2]; }
  // Whether a gradient of zeros is no longer so for some planes, or is a copy.
  template <int64_t LANES>
  bool must_be_cleared(int64_t plane) const {
    return !are_side_by_side<LANES>() || plane % channels % LANES != 0;
  }

  // Of one plane, whole in memory.
  static constexpr int64_t LONG = 16;
  bool has_long_rows() const {
    const auto& row = lines[2];
    for (size_t window = 0; window < row.start.size(); ++window)
      if (row.end[window] - row.first[window] < LONG) return false;
    return channels == 1 && !overlap() && dilation[2] == 1;
  }

  // Blocks of planes that lie side by side in memory: channels that come last. The last block of an image has some
  // planes of the one before once more, unless it comes out even, and so must follow it.
  template <int64_t LANES>
  bool are_side_by_side() const {
    return LANES == 1 || channels >= LANES;
  }
  template <int64_t LANES>
  int64_t blocks() const {
    if (!are_side_by_side<LANES>()) return (planes + LANES - 1) / LANES;
    return planes / channels * ((channels + LANES - 1) / LANES);
  }
  template <int64_t LANES>
  int64_t first_plane(int64_t block) const {
    if (!are_side_by_side<LANES>()) return block * LANES;
    const int64_t of_image = (channels + LANES - 1) / LANES;
    return block / of_image * channels + std::min(block % of_image * LANES, channels - LANES);
  }

  template <typename Work>
  ALWAYS_INLINE void for_rows_of_windows(Work work) const {
    for (int64_t oz = 0; oz < outputs[0]; ++oz)
      for (int64_t oy = 0; oy < outputs[1]; ++oy) work(oz, oy, (oz * outputs[1] + oy) * outputs[2]);
  }
};

// Some planes of a tensor: every place has an entry of each, side by side, and places lie a pitch apart. They are the
// tensor's own memory, or a copy.
template <typename Number, int64_t LANES>
class Planes {
 public:
  Planes(const Number* tensor, const Windows& windows, int64_t places)
      : tensor_(const_cast<Number*>(tensor)),
        channels_(windows.channels),
        planes_(windows.planes),
        places_(places),
        is_itself_(windows.are_side_by_side<LANES>()) {
    pitch = is_itself_ ? channels_ : LANES;
    if (!is_itself_) copy_.resize((places + TILE - 1) / TILE * TILE * LANES);
  }

  Number* data = nullptr;
  int64_t pitch;

  // The planes from this one on; `load` and `store` bring their entries here and back, if they are copied. Those two are
  // compiled once for a type, not once for every loop that needs them.
  ALWAYS_INLINE void take(int64_t plane) {
    plane_ = plane;
    data = is_itself_ ? start(plane) : copy_.data();
  }

  __attribute__((noinline)) void load() {
    in_tiles([&](Number* const* memory, Number* copy, int64_t step, int64_t lanes, int64_t places) INLINED {
      Number tile[LANES][TILE] = {};
      for (int64_t lane = 0; lane < lanes; ++lane)
        for (int64_t i = 0; i < places; ++i) tile[lane][i] = memory[lane][i * step];
      for (int64_t i = 0; i < TILE; ++i)
        for (int64_t lane = 0; lane < LANES; ++lane) copy[i * LANES + lane] = tile[lane][i];
    });
  }

  __attribute__((noinline)) void store() {
    in_tiles([&](Number* const* memory, const Number* copy, int64_t step, int64_t lanes, int64_t places) INLINED {
      Number tile[LANES][TILE];
      for (int64_t i = 0; i < TILE; ++i)
        for (int64_t lane = 0; lane < LANES; ++lane) tile[lane][i] = copy[i * LANES + lane];
      for (int64_t lane = 0; lane < lanes; ++lane)
        for (int64_t i = 0; i < places; ++i) memory[lane][i * step] = tile[lane][i];
    });
  }

 private:
  static constexpr int64_t TILE = 16;

  Number* start(int64_t plane) const { return tensor_ + plane / channels_ * channels_ * places_ + plane % channels_; }

  // Square by square, most of them with numbers that are known when this is compiled.
  template <typename Work>
  ALWAYS_INLINE void in_tiles(Work work) const {
    const int64_t lanes = std::min(LANES, planes_ - plane_);
    Number* memory[LANES];
    for (int64_t lane = 0; lane < lanes; ++lane) memory[lane] = start(plane_ + lane);
    for (int64_t place = 0; !is_itself_ && place < places_; place += TILE) {
      Number* const copy = data + place * LANES;
      const int64_t places = std::min(TILE, places_ - place);
      if (lanes == LANES && places == TILE && channels_ == 1) work(memory, copy, 1, LANES, TILE);
      else work(memory, copy, channels_, lanes, places);
      for (int64_t lane = 0; lane < lanes; ++lane) memory[lane] += TILE * channels_;
    }
  }

  Number* tensor_;
  int64_t channels_, planes_, places_, plane_ = 0;
  bool is_itself_;
  std::vector<Number> copy_;
};

// Windows of few entries: a word has a bit for each, and above the bits how many there are of them.
using Bits = uint32_t;

ALWAYS_INLINE Bits counted(Bits bits) {  // instructions for it are not everywhere, and not for lanes
  bits -= (bits >> 1) & 0x55555555;
  bits = (bits & 0x33333333) + ((bits >> 2) & 0x33333333);
  return (((bits + (bits >> 4)) & 0x0f0f0f0f) * 0x01010101) >> 24;
}

// The first of the largest, or the last that is nan, as torch's kernels; all are -inf at first.
template <typename Number>
ALWAYS_INLINE void look(Number entry, Bits bit, Number& best, Bits& bits) {
  const Number most = best;
  const bool leads = !(entry <= most) & !((most != most) & (entry == entry)), level = entry == most;
  const Bits with = bits | (level ? bit : 0);
  bits = leads ? bit : with;
  best = leads ? entry : most;
}

// One plane has no lanes: windows of a row are looked at together, if they lie evenly apart.
template <typename Scalar, typename Number>
ALWAYS_INLINE void look_along(const Windows& windows, const Planes<Scalar, 1>& x, int64_t oz, int64_t oy, int64_t k,
                              int64_t number, Number* best, Bits* bits) {
  const Line& row = windows.lines[2];
  int64_t begin = 0, end = windows.outputs[2];
  while (begin < end && !row.has(begin, k)) ++begin;
  while (begin < end && !row.has(end - 1, k)) --end;
  if (begin == end) return;
  const Scalar* entries = x.data + (windows.start(oz, oy, begin) + windows.offsets[number]) * x.pitch;
#pragma GCC ivdep
  for (int64_t ox = begin; ox < end; ++ox)
    look(static_cast<Number>(entries[(ox - begin) * windows.step * x.pitch]), Bits(1) << number, best[ox], bits[ox]);
}

template <int64_t LANES, typename Scalar, typename Word>
ALWAYS_INLINE void pool_small(const Windows& windows, const Planes<Scalar, LANES>& x,
                              const Planes<Scalar, LANES>& values, const Planes<Word, LANES>& words,
                              const Planes<int64_t, LANES>* indices, std::vector<at::opmath_type<Scalar>>& best,
                              std::vector<Bits>& bits) {
  using Number = at::opmath_type<Scalar>;
  const Line &planes = windows.lines[0], &rows = windows.lines[1], &row = windows.lines[2];
  const auto &kernel = windows.kernel, &outputs = windows.outputs;
  const int64_t entries = windows.entries();
  windows.for_rows_of_windows([&](int64_t oz, int64_t oy, int64_t window) INLINED {
    std::fill(best.begin(), best.end(), -std::numeric_limits<Number>::infinity());
    std::fill(bits.begin(), bits.end(), Bits(0));
    for (int64_t i = planes.first[oz]; i < planes.end[oz]; ++i)
      for (int64_t j = rows.first[oy]; j < rows.end[oy]; ++j)
        for (int64_t k = 0; k < kernel[2]; ++k) {
          const int64_t number = (i * kernel[1] + j) * kernel[2] + k;
          if constexpr (LANES == 1)
            if (windows.step) {
              look_along(windows, x, oz, oy, k, number, best.data(), bits.data());
              continue;
            }
          const int64_t line = windows.place(planes.start[oz], rows.start[oy], windows.offsets[number]);
          for (int64_t ox = 0; ox < outputs[2]; ++ox) {
            if (!row.has(ox, k)) continue;
            const Scalar* at = x.data + (line + row.start[ox]) * x.pitch;
            FOR_LANES look(static_cast<Number>(at[lane]), Bits(1) << number, best[ox * LANES + lane],
                           bits[ox * LANES + lane]);
          }
        }
    for (int64_t ox = 0; ox < outputs[2]; ++ox, ++window) {
      const Bits* const found = bits.data() + ox * LANES;
      for (int64_t lane = 0; lane < LANES; ++lane)
        values.data[window * values.pitch + lane] = static_cast<Scalar>(best[ox * LANES + lane]);
      FOR_LANES
        words.data[window * words.pitch + lane] = static_cast<Word>(found[lane] | counted(found[lane]) << entries);
      for (int64_t lane = 0; indices != nullptr && lane < LANES; ++lane)
        indices->data[window * indices->pitch + lane] =
            found[lane] ? windows.start(oz, oy, ox) + windows.offsets[__builtin_ctz(found[lane])]
                        : windows.first(oz, oy, ox);
    }
  });
}

// Sums of 16 bits are rounded every time, as torch's own on the CPU. No branch, so that lanes are added at once.
template <typename Number, typename Scalar>
ALWAYS_INLINE void add(Number share, bool is_added, Scalar& sum) {
  const Number added = is_added ? static_cast<Number>(static_cast<Scalar>(share)) : Number(0);
  sum = static_cast<Scalar>(static_cast<Number>(sum) + added);
}

template <int64_t LANES, typename Scalar, typename Word>
ALWAYS_INLINE void spread_small(const Windows& windows, const Planes<Scalar, LANES>& cotangents,
                                const Planes<Word, LANES>& words, const Planes<Scalar, LANES>& gradient) {
  using Number = at::opmath_type<Scalar>;
  const int64_t entries = windows.entries();
  const Bits all = (Bits(1) << entries) - 1, most = entries <= 12 ? 15 : 31;
  windows.for_rows_of_windows([&](int64_t oz, int64_t oy, int64_t window) INLINED {
    for (int64_t ox = 0; ox < windows.outputs[2]; ++ox, ++window) {
      Number shares[LANES];
      Bits wide[LANES], some = 0;
      for (int64_t lane = 0; lane < LANES; ++lane) {
        wide[lane] = static_cast<Bits>(words.data[window * words.pitch + lane]);
        some |= wide[lane];
        const auto count = static_cast<Number>(static_cast<int32_t>((wide[lane] >> entries) & most));
        shares[lane] = static_cast<Number>(cotangents.data[window * cotangents.pitch + lane]) / count;
      }
      Scalar* const sums = gradient.data + windows.start(oz, oy, ox) * gradient.pitch;
      for (some &= all; some; some &= some - 1) {
        const int64_t number = __builtin_ctz(some);
        Scalar* const sum = sums + windows.offsets[number] * gradient.pitch;
        FOR_LANES add(shares[lane], (wide[lane] >> number) & 1, sum[lane]);
      }
    }
  });
}

// Windows of many entries: a word has the position of the first that is largest, or the last that is nan, and above it
// how many are as large.
constexpr int64_t POSITION = (int64_t(1) << 31) - 1;

// The largest of some entries, how many there are of it, and where.
template <typename Number, int64_t LANES>
struct Largest {
  Number most[LANES];
  int32_t count[LANES], position[LANES];

  ALWAYS_INLINE void clear() {
    std::fill(most, most + LANES, -std::numeric_limits<Number>::infinity());
    std::fill(count, count + LANES, 0);
    std::fill(position, position + LANES, 0);
  }

  // Those of other entries, in any order.
  ALWAYS_INLINE void join(const Largest& other) {
    FOR_LANES {
      const Number one = other.most[lane], before = most[lane];
      const bool some = other.count[lane] > 0, later = other.position[lane] > position[lane];
      const bool level = some & (one == before);
      const bool leads = some & ((one > before) | (count[lane] == 0) | ((one != one) & ((before == before) | later)));
      count[lane] = leads ? other.count[lane] : count[lane] + (level ? other.count[lane] : 0);
      position[lane] = leads | (level & !later) ? other.position[lane] : position[lane];
      most[lane] = leads ? one : before;
    }
  }

  // One entry of each lane, behind all that were looked at.
  template <typename Scalar>
  ALWAYS_INLINE void look(const Scalar* entries, int32_t at) {
    FOR_LANES {
      const Number entry = static_cast<Number>(entries[lane]), before = most[lane];
      const bool leads = (entry > before) | (entry != entry) | (count[lane] == 0);
      count[lane] = leads ? 1 : count[lane] + (entry == before);
      position[lane] = leads ? at : position[lane];
      most[lane] = leads ? entry : before;
    }
  }
};

constexpr int64_t AT_ONCE = 8;  // entries of a window, so that none has to wait for the one before

// Of one plane whose windows have long rows: they are looked at twice, sixteen entries at once.
template <typename Number, typename Scalar>
ALWAYS_INLINE auto in_rows(const Windows& windows, const Scalar* x, int64_t oz, int64_t oy, int64_t ox) {
  constexpr int64_t LANES = Windows::LONG;  // in one go
  Number best[LANES];
  int32_t nans[LANES] = {};
  std::fill(best, best + LANES, -std::numeric_limits<Number>::infinity());
  windows.for_rows(oz, oy, ox, [&](int64_t place, int64_t size) INLINED {
    for (int64_t at = 0; at < size; at += LANES) {
      const Scalar* const entries = x + place + std::min(at, size - LANES);  // some of them once more
      FOR_LANES {
        const Number entry = static_cast<Number>(entries[lane]);
        best[lane] = entry > best[lane] ? entry : best[lane];
        nans[lane] |= entry != entry;
      }
    }
  });
  const Number most = *std::max_element(best, best + LANES);
  const bool some_nan = *std::max_element(nans, nans + LANES) > 0;
  int32_t count = some_nan, found = -1;
  windows.for_rows(oz, oy, ox, [&](int64_t place, int64_t size) INLINED {
    int32_t level = 0;
    for (int64_t at = 0; at < size; ++at) {
      const Number entry = static_cast<Number>(x[place + at]);
      level += some_nan ? entry != entry : entry == most;
    }
    for (int64_t at = 0; level > 0 && (some_nan || found < 0) && at < size; ++at)
      if (some_nan ? x[place + at] != x[place + at] : static_cast<Number>(x[place + at]) == most)
        found = static_cast<int32_t>(place + at);
    count += some_nan ? 0 : level;
  });
  return Largest<Number, 1>{{most}, {count}, {found}};
}

template <int64_t LANES, typename Scalar>
ALWAYS_INLINE void pool_large(const Windows& windows, const Planes<Scalar, LANES>& x,
                              const Planes<Scalar, LANES>& values, const Planes<int64_t, LANES>& words,
                              const Planes<int64_t, LANES>* indices) {
  using Number = at::opmath_type<Scalar>;
  const Line &planes = windows.lines[0], &rows = windows.lines[1], &row = windows.lines[2];
  const bool overlap = windows.overlap(), in_long_rows = LANES == 1 && windows.has_long_rows();
  std::vector<Largest<Number, LANES>> columns(overlap ? windows.sizes[2] : 0);
  windows.for_rows_of_windows([&](int64_t oz, int64_t oy, int64_t window) INLINED {
    // Neighbouring windows that overlap share what is found in columns.
    for (auto& column : columns) column.clear();
    for (int64_t i = planes.first[oz]; overlap && i < planes.end[oz]; ++i)
      for (int64_t j = rows.first[oy]; j < rows.end[oy]; ++j) {
        const int64_t at = windows.place(planes.start[oz] + i * windows.dilation[0],
                                         rows.start[oy] + j * windows.dilation[1], 0);
        for (int64_t column = 0; column < windows.sizes[2]; ++column)
          columns[column].look(x.data + (at + column) * x.pitch, static_cast<int32_t>(at + column));
      }
    for (int64_t ox = 0; ox < windows.outputs[2]; ++ox, ++window) {
      Largest<Number, LANES> found[AT_ONCE];
      for (auto& each : found) each.clear();
      for (int64_t k = row.first[ox]; overlap && k < row.end[ox]; ++k)
        found[0].join(columns[row.start[ox] + k * windows.dilation[2]]);
      if constexpr (LANES == 1)
        if (in_long_rows) found[0] = in_rows<Number>(windows, x.data, oz, oy, ox);
      if (!overlap && !in_long_rows) windows.for_rows(oz, oy, ox, [&](int64_t place, int64_t size) INLINED {
        for (int64_t k = 0; k < size; ++k, place += windows.dilation[2])
          found[k % AT_ONCE].look(x.data + place * x.pitch, static_cast<int32_t>(place));
      });
      for (int64_t other = 1; !overlap && other < AT_ONCE; ++other) found[0].join(found[other]);
      for (int64_t lane = 0; lane < LANES; ++lane) {
        const bool is_empty = found[0].count[lane] == 0;
        const int64_t position = is_empty ? windows.first(oz, oy, ox) : found[0].position[lane];
        values.data[window * values.pitch + lane] =
            is_empty ? -std::numeric_limits<Scalar>::infinity() : x.data[position * x.pitch + lane];
        words.data[window * words.pitch + lane] = static_cast<int64_t>(found[0].count[lane]) << 32 | position;
        if (indices != nullptr) indices->data[window * indices->pitch + lane] = position;
      }
    }
  });
}

template <int64_t LANES>
ALWAYS_INLINE bool some_tie_in(const Planes<int64_t, LANES>& words, int64_t windows) {
  int64_t most = 0;
  for (int64_t window = 0; window < windows; ++window)
    for (int64_t lane = 0; lane < LANES; ++lane) most = std::max(most, words.data[window * words.pitch + lane] >> 32);
  return most > 1;
}

template <int64_t LANES, typename Scalar>
ALWAYS_INLINE void spread_large(const Windows& windows, const Planes<Scalar, LANES>& x,
                                const Planes<Scalar, LANES>& cotangents, const Planes<int64_t, LANES>& words,
                                const Planes<Scalar, LANES>& gradient) {
  using Number = at::opmath_type<Scalar>;
  windows.for_rows_of_windows([&](int64_t oz, int64_t oy, int64_t window) INLINED {
    for (int64_t ox = 0; ox < windows.outputs[2]; ++ox, ++window) {
      Number shares[LANES];
      bool some_tie = false;
      for (int64_t lane = 0; lane < LANES; ++lane) {
        const int64_t word = words.data[window * words.pitch + lane], count = word >> 32, position = word & POSITION;
        const auto cotangent = static_cast<Number>(cotangents.data[window * cotangents.pitch + lane]);
        shares[lane] = count > 1 ? cotangent / static_cast<Number>(count) : Number(0);
        some_tie |= count > 1;
        if (count == 1) add(cotangent, true, gradient.data[position * gradient.pitch + lane]);
      }
      if (!some_tie) continue;
      Scalar largest[LANES];
      for (int64_t lane = 0; lane < LANES; ++lane)
        largest[lane] = x.data[(words.data[window * words.pitch + lane] & POSITION) * x.pitch + lane];
      windows.for_rows(oz, oy, ox, [&](int64_t place, int64_t size) INLINED {
        const Scalar* const entries = x.data + place * x.pitch;
        Scalar* const sums = gradient.data + place * gradient.pitch;
        const int64_t step = windows.dilation[2] * x.pitch;
        if (LANES == 1 && step == 1) {
          for (int64_t at = 0; at < size; ++at) add(shares[0], entries[at] == largest[0], sums[at]);
          return;
        }
        for (int64_t at = 0; at < size * step; at += step)
          FOR_LANES add(shares[lane], entries[at + lane] == largest[lane], sums[at + lane]);
      });
    }
  });
}

// All planes, some at once.
template <typename Scalar, typename Word, int64_t LANES>
struct Forward {
  const Windows& windows;
  const Scalar* x;
  Scalar* values;
  Word* words;
  int64_t* indices;  // null where they are not wanted

  ALWAYS_INLINE void operator()(int64_t begin, int64_t end) const {
    const int64_t out = windows.windows();
    Planes<Scalar, LANES> from(x, windows, windows.space()), to(values, windows, out);
    Planes<Word, LANES> kept(words, windows, out);
    Planes<int64_t, LANES> chosen(indices, windows, indices == nullptr ? 0 : out);
    std::vector<at::opmath_type<Scalar>> best(windows.outputs[2] * LANES);  // of a row of windows
    std::vector<Bits> bits(windows.outputs[2] * LANES);
    for (int64_t block = begin; block < end; ++block) {
      const int64_t plane = windows.first_plane<LANES>(block);
      from.take(plane), to.take(plane), kept.take(plane), chosen.take(plane);
      from.load();
      if constexpr (sizeof(Word) == 8) pool_large<LANES>(windows, from, to, kept, indices ? &chosen : nullptr);
      else pool_small<LANES>(windows, from, to, kept, indices ? &chosen : nullptr, best, bits);
      to.store(), kept.store();
      if (indices != nullptr) chosen.store();
    }
  }
};

template <typename Scalar, typename Word, int64_t LANES>
struct Backward {
  const Windows& windows;
  const Scalar* x;  // null for small windows
  const Scalar* cotangents;
  const Word* words;
  Scalar* gradient;

  ALWAYS_INLINE void operator()(int64_t begin, int64_t end) const {
    const int64_t in = windows.space(), out = windows.windows();
    Planes<Scalar, LANES> from(x, windows, x == nullptr ? 0 : in), given(cotangents, windows, out);
    Planes<Scalar, LANES> to(gradient, windows, in);
    Planes<Word, LANES> kept(words, windows, out);
    for (int64_t block = begin; block < end; ++block) {
      const int64_t plane = windows.first_plane<LANES>(block);
      from.take(plane), given.take(plane), kept.take(plane), to.take(plane);
      given.load(), kept.load();
      if (windows.must_be_cleared<LANES>(plane))
        for (int64_t place = 0; place < in; ++place) std::fill_n(to.data + place * to.pitch, LANES, Scalar(0));
      if constexpr (sizeof(Word) == 8) {
        if (some_tie_in<LANES>(kept, out)) from.load();  // else nothing asks for entries
        spread_large<LANES>(windows, from, given, kept, to);
      } else {
        spread_small<LANES>(windows, given, kept, to);
      }
      to.store();
    }
  }
};

template <typename Job>
void run(const Job& job, int64_t begin, int64_t end) {
  job(begin, end);
}

#define FOR_JOB(Job, Number, Word, LANES) \
  FOR_EACH_MACHINE void run(const Job<Number, Word, LANES>& job, int64_t begin, int64_t end) { job(begin, end); }
#define FOR_WORDS(Number, LANES)            \
  FOR_JOB(Forward, Number, int16_t, LANES)  \
  FOR_JOB(Forward, Number, int32_t, LANES)  \
  FOR_JOB(Forward, Number, int64_t, LANES)  \
  FOR_JOB(Backward, Number, int16_t, LANES) \
  FOR_JOB(Backward, Number, int32_t, LANES) \
  FOR_JOB(Backward, Number, int64_t, LANES)
#define FOR_ROWS(Number)               \
  FOR_JOB(Forward, Number, int64_t, 1) \
  FOR_JOB(Backward, Number, int64_t, 1)
FOR_WORDS(float, 16)
FOR_WORDS(float, 8)
FOR_WORDS(double, 8)
FOR_WORDS(at::BFloat16, 16)
FOR_WORDS(at::Half, 16)
FOR_ROWS(float)
FOR_ROWS(double)
FOR_ROWS(at::BFloat16)
FOR_ROWS(at::Half)
#undef FOR_ROWS
#undef FOR_WORDS
#undef FOR_JOB

// What is done gets the types of entries and of words, and how many planes are to be done at once: one, which is never
// copied, where there are so few, or they are so large, that copies would be larger than all the rest.
template <typename Work>
void with_types(const Windows& windows, const Tensor& entries, const Tensor& words, bool one_by_one, Work work) {
  const bool are_few = windows.planes < 4 || windows.space() > 1 << 20;
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, entries.scalar_type(), "max_pool", [&] {
    const auto with_word = [&](auto word) {
      if (one_by_one || are_few) return work(scalar_t(), word, std::integral_constant<int64_t, 1>());
      if constexpr (sizeof(scalar_t) == 8) return work(scalar_t(), word, std::integral_constant<int64_t, 8>());
      else if constexpr (sizeof(scalar_t) == 4)
        if ((windows.channels >= 8 && windows.channels < 16) || windows.planes <= 8)
          return work(scalar_t(), word, std::integral_constant<int64_t, 8>());
      if constexpr (sizeof(scalar_t) < 8) work(scalar_t(), word, std::integral_constant<int64_t, 16>());
    };
    if (words.scalar_type() == at::kShort) with_word(int16_t());
    else if (words.scalar_type() == at::kInt) with_word(int32_t());
    else with_word(int64_t());
  });
}

template <int64_t LANES, typename Job>
void in_parallel(const Windows& windows, const Job& job) {
  const bool is_even = !windows.are_side_by_side<LANES>() || windows.channels % LANES == 0;
  const int64_t together = is_even ? 1 : windows.channels / LANES + 1, groups = windows.blocks<LANES>() / together;
  const int64_t grain = 1 + (1 << 14) / (windows.space() * LANES * together);
  at::parallel_for(0, groups, grain, [&](int64_t begin, int64_t end) { run(job, begin * together, end * together); });
}

void pool(const Tensor& x, const Tensor& values, const Tensor& words, const std::optional<Tensor>& indices,
          const Windows& windows) {
  with_types(windows, x, words, words.scalar_type() == at::kLong && windows.has_long_rows(), [&](auto entry, auto word, auto lanes) {
    using Scalar = decltype(entry);
    using Word = decltype(word);
    int64_t* const chosen = indices ? indices->mutable_data_ptr<int64_t>() : nullptr;
    const Forward<Scalar, Word, lanes()> job{windows, x.const_data_ptr<Scalar>(), values.mutable_data_ptr<Scalar>(),
                                             words.mutable_data_ptr<Word>(), chosen};
    in_parallel<lanes()>(windows, job);
  });
}

// The input is needed for large windows alone.
void spread(const std::optional<Tensor>& x, const Tensor& cotangents, const Tensor& words, const Tensor& gradient,
            const Windows& windows) {
  const bool one_by_one = x && windows.channels == 1 && !windows.overlap() && windows.kernel[2] >= 8;
  with_types(windows, gradient, words, one_by_one, [&](auto entry, auto word, auto lanes) {
    using Scalar = decltype(entry);
    using Word = decltype(word);
    if (windows.are_side_by_side<lanes()>()) gradient.zero_();
    const Scalar* const entries = x ? x->const_data_ptr<Scalar>() : nullptr;
    const Backward<Scalar, Word, lanes()> job{windows, entries, cotangents.const_data_ptr<Scalar>(),
                                              words.const_data_ptr<Word>(), gradient.mutable_data_ptr<Scalar>()};
    in_parallel<lanes()>(windows, job);
  });
}

}  // namespace
}  // namespace pooling
