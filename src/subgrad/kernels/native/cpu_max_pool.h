// Max-pooling on the CPU whose tied entries share: the largest entry of every window and a word, as in
// triton_max_pool.py, and the gradient from words and cotangents, window after window as torch's own kernels sum it.

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
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "cpu_clamp.h"

namespace pooling {
namespace {

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
};

// One call, in three dimensions. Lanes are channels that come last in memory; else there is one.
struct Windows {
  int64_t lanes, planes;
  std::array<int64_t, 3> sizes, outputs, kernel, dilation;
  std::vector<Line> lines;
  std::vector<int64_t> offsets;  // of a window's entries from its start
  std::array<int64_t, 3> steps;  // between windows; 0 if they differ in size
  // For every place in a row the windows that have it, in turns: which, or -1, and as which entry in its row.
  std::vector<std::vector<std::pair<int32_t, int32_t>>> turns;
  std::vector<std::pair<int64_t, int64_t>> with_entry;  // the windows of a row that have an entry, by its number

  explicit Windows(const std::vector<int64_t>& given) : lanes(given[0]), planes(given[1]) {
    const auto three = [&](int64_t at) { return std::array<int64_t, 3>{given[at], given[at + 1], given[at + 2]}; };
    sizes = three(2), outputs = three(5), kernel = three(8), dilation = three(17);
    for (int64_t dim = 0; dim < 3; ++dim)
      lines.emplace_back(sizes[dim], outputs[dim], kernel[dim], given[11 + dim], given[14 + dim], dilation[dim], given[20]);
    for (int64_t i = 0; i < kernel[0]; ++i)
      for (int64_t j = 0; j < kernel[1]; ++j)
        for (int64_t k = 0; k < kernel[2]; ++k) offsets.push_back(place(i * dilation[0], j * dilation[1], k * dilation[2]));
    steps = given[20] ? three(11) : std::array<int64_t, 3>{0, 0, 0};
    const Line& row = lines[2];
    for (int64_t k = 0; k < kernel[2]; ++k) {
      int64_t begin = 0, end = outputs[2];
      while (begin < end && row.first[begin] > k) ++begin;
      while (begin < end && row.end[end - 1] <= k) --end;
      with_entry.emplace_back(begin, end);
    }
    if (lanes == 1 && dilation[2] == 1) take_turns(row);
  }

  void take_turns(const Line& row) {
    std::vector<size_t> found(sizes[2], 0);
    for (size_t window = 0; window < row.start.size(); ++window)
      for (int64_t k = row.first[window]; k < row.end[window]; ++k) {
        const int64_t place = row.start[window] + k;
        const size_t turn = found[place]++;
        if (turn == turns.size()) turns.emplace_back(sizes[2], std::pair<int32_t, int32_t>(-1, 0));
        turns[turn][place] = {static_cast<int32_t>(window), static_cast<int32_t>(k)};
      }
  }

  int64_t place(int64_t z, int64_t y, int64_t x) const { return (z * sizes[1] + y) * sizes[2] + x; }
  int64_t entries() const { return kernel[0] * kernel[1] * kernel[2]; }
  int64_t space() const { return sizes[0] * sizes[1] * sizes[2]; }
  int64_t windows() const { return outputs[0] * outputs[1] * outputs[2]; }

  template <typename Scalar, typename Number, typename Bits>
  void look_along(const Scalar* from, int64_t k, int64_t rows, Bits bit, Number* best, Bits* bits) const;

  template <typename Scalar, typename Number, typename Bits>
  void look_through_row(const Scalar* x, int64_t oz, int64_t oy, Number* best, Bits* bits) const;
};

template <typename Bits>
ALWAYS_INLINE Bits counted(Bits bits) {  // instructions for it are not everywhere, and not for lanes
  constexpr Bits ones = ~Bits(0);
  bits -= (bits >> 1) & (ones / 3);
  bits = (bits & (ones / 5)) + ((bits >> 2) & (ones / 5));
  bits = (bits + (bits >> 4)) & (ones / 17);
  return (bits * (ones / 255)) >> (8 * sizeof(Bits) - 8);
}

template <typename Bits>
ALWAYS_INLINE Bits count_of(Bits word, int64_t entries) {
  return (word >> entries) & (entries <= 12 ? 15 : 31);
}

// The first of the largest, or the last that is nan, as torch's kernels; all are -inf at first. ``STEP`` between the
// entries that neighbouring windows look at; 0 if that is not known before.
template <typename Number, typename Bits>
ALWAYS_INLINE void look(Number entry, bool exists, Bits bit, Number& best, Bits& bits) {
  const Number most = best;
  const bool leads = exists & !(entry <= most) & !((most != most) & (entry == entry)), level = exists & (entry == most);
  const Bits with = bits | (level ? bit : Bits(0));
  bits = leads ? bit : with;
  best = leads ? entry : most;
}

template <int64_t STEP, typename Scalar, typename Number, typename Bits>
ALWAYS_INLINE void look(const Scalar* entries, int64_t step, Bits bit, Number* best, Bits* bits, int64_t lanes) {
  for (int64_t lane = 0; lane < lanes; ++lane)
    look(static_cast<Number>(entries[lane * (STEP ? STEP : step)]), true, bit, best[lane], bits[lane]);
}

// Where windows differ in size: all entries of one, for lanes that lie side by side.
template <typename Scalar, typename Number, typename Bits>
ALWAYS_INLINE void look_through_any(const Scalar* x, const int64_t* offsets, const std::array<int64_t, 3>& sizes,
                                    const std::array<int64_t, 3>& kernel, Number* best, Bits* bits, int64_t lanes) {
  for (int64_t i = 0; i < sizes[0]; ++i)
    for (int64_t j = 0; j < sizes[1]; ++j)
      for (int64_t k = 0; k < sizes[2]; ++k) {
        const int64_t number = (i * kernel[1] + j) * kernel[2] + k;
        look<1>(x + offsets[number] * lanes, 1, Bits(1) << number, best, bits, lanes);
      }
}

template <typename Scalar, typename Number, typename Bits>
void look_through(const Scalar* x, const int64_t* offsets, const std::array<int64_t, 3>& sizes,
                  const std::array<int64_t, 3>& kernel, Number* best, Bits* bits, int64_t lanes) {
  look_through_any(x, offsets, sizes, kernel, best, bits, lanes);
}

FOR_EACH_MACHINE void look_through(const float* x, const int64_t* offsets, const std::array<int64_t, 3>& sizes,
                                   const std::array<int64_t, 3>& kernel, float* best, uint32_t* bits, int64_t lanes) {
  look_through_any(x, offsets, sizes, kernel, best, bits, lanes);
}

// The bits of a window from its columns', which have theirs as they stand in the first. Without branches, which cannot be
// foreseen; of several that are nan the last in the window counts, whose bit is the highest.
template <typename Number, typename Bits>
ALWAYS_INLINE Bits look_across(const Number* best, const Bits* bits, int64_t size) {
  Number most = -std::numeric_limits<Number>::infinity();
  bool has_nan = false;
  for (int64_t k = 0; k < size; ++k) {
    most = most < best[k] ? best[k] : most;
    has_nan |= best[k] != best[k];
  }
  Bits found = 0;
  for (int64_t k = 0; k < size; ++k) found |= (Bits(0) - Bits(best[k] == most)) & bits[k] << k;
  if (has_nan) {
    found = 0;
    for (int64_t k = 0; k < size; ++k) found = std::max(found, best[k] != best[k] ? bits[k] << k : Bits(0));
  }
  return found;
}

// The entries of one number of many windows: groups of lanes, which are channels, or the windows of a row. Entries lie a
// step apart; groups a jump in the input, and a pitch in what is found.
struct Rows {
  int64_t groups, lanes, step, jump, pitch;
};

template <typename Scalar, typename Number, typename Bits>
ALWAYS_INLINE void look_any(const Scalar* entries, Rows row, Bits bit, Number* best, Bits* bits) {
  for (int64_t group = 0; group < row.groups; ++group) {
    if (row.step == 1) {
      look<1>(entries, 1, bit, best, bits, row.lanes);
    } else if (row.step == 2) {
      look<2>(entries, 2, bit, best, bits, row.lanes);
    } else {
      look<0>(entries, row.step, bit, best, bits, row.lanes);
    }
    entries += row.jump, best += row.pitch, bits += row.pitch;
  }
}

template <typename Scalar, typename Number, typename Bits>
void look_at(const Scalar* entries, Rows row, Bits bit, Number* best, Bits* bits) {
  look_any(entries, row, bit, best, bits);
}

FOR_EACH_MACHINE void look_at(const float* entries, Rows row, uint32_t bit, float* best, uint32_t* bits) {
  look_any(entries, row, bit, best, bits);
}

template <typename Scalar, typename Number, typename Bits, typename Word>
ALWAYS_INLINE void write_any(const Number* best, const Bits* bits, int64_t entries, Scalar* values, Word* words,
                             int64_t lanes) {
  for (int64_t lane = 0; lane < lanes; ++lane) values[lane] = static_cast<Scalar>(best[lane]);
  for (int64_t lane = 0; lane < lanes; ++lane)
    words[lane] = static_cast<Word>(bits[lane] | counted(bits[lane]) << entries);
}

template <typename Scalar, typename Number, typename Bits, typename Word>
void write(const Number* best, const Bits* bits, int64_t entries, Scalar* values, Word* words, int64_t lanes) {
  write_any(best, bits, entries, values, words, lanes);
}

FOR_EACH_MACHINE void write(const float* best, const uint32_t* bits, int64_t entries, float* values, int16_t* words,
                            int64_t lanes) {
  write_any(best, bits, entries, values, words, lanes);
}

// Each lane's share of a cotangent, its word as wide as bits are, and the bits that some lane has.
template <typename Scalar, typename Word, typename Number, typename Bits>
ALWAYS_INLINE Bits share_any(const Scalar* cotangents, const Word* words, int64_t entries, Number* shares, Bits* wide,
                             int64_t lanes) {
  Bits some = 0;
  for (int64_t lane = 0; lane < lanes; ++lane) {
    const Bits word = static_cast<Bits>(words[lane]);
    wide[lane] = word;
    some |= word;
    const auto count = static_cast<std::make_signed_t<Bits>>(count_of(word, entries));
    shares[lane] = static_cast<Number>(cotangents[lane]) / static_cast<Number>(count);
  }
  return some;
}

template <typename Scalar, typename Word, typename Number, typename Bits>
Bits share(const Scalar* cotangents, const Word* words, int64_t entries, Number* shares, Bits* wide, int64_t lanes) {
  return share_any(cotangents, words, entries, shares, wide, lanes);
}

FOR_EACH_MACHINE uint32_t share(const float* cotangents, const int16_t* words, int64_t entries, float* shares,
                                uint32_t* wide, int64_t lanes) {
  return share_any(cotangents, words, entries, shares, wide, lanes);
}

// Sums of 16 bits are rounded every time, as torch's own on the CPU.
template <typename Number, typename Bits, typename Scalar>
ALWAYS_INLINE void add_any(const Number* shares, const Bits* words, int64_t number, Scalar* sums, int64_t lanes) {
  for (int64_t lane = 0; lane < lanes; ++lane) {
    const Number share = (words[lane] >> number) & 1 ? shares[lane] : Number(0);
    sums[lane] = static_cast<Scalar>(static_cast<Number>(sums[lane]) + static_cast<Number>(static_cast<Scalar>(share)));
  }
}

template <typename Number, typename Bits, typename Scalar>
void add(const Number* shares, const Bits* words, int64_t number, Scalar* sums, int64_t lanes) {
  add_any(shares, words, number, sums, lanes);
}

FOR_EACH_MACHINE void add(const float* shares, const uint32_t* words, int64_t number, float* sums, int64_t lanes) {
  add_any(shares, words, number, sums, lanes);
}

// All lanes of one window.
template <typename Number, typename Bits, typename Scalar>
ALWAYS_INLINE void add_window_any(const Number* shares, const Bits* words, Bits some, const int64_t* offsets,
                                  Scalar* sums, int64_t lanes) {
  for (; some; some &= some - 1) {
    const int64_t number = __builtin_ctzll(some);
    add_any(shares, words, number, sums + offsets[number] * lanes, lanes);
  }
}

template <typename Number, typename Bits, typename Scalar>
void add_window(const Number* shares, const Bits* words, Bits some, const int64_t* offsets, Scalar* sums,
                int64_t lanes) {
  add_window_any(shares, words, some, offsets, sums, lanes);
}

FOR_EACH_MACHINE void add_window(const float* shares, const uint32_t* words, uint32_t some, const int64_t* offsets,
                                 float* sums, int64_t lanes) {
  add_window_any(shares, words, some, offsets, sums, lanes);
}

// Values and words of one plane, or of one image with all its channels: some rows of windows at once.
template <typename Scalar, typename Word, typename Bits>
void pool_plane(const Windows& windows, const Scalar* x, Scalar* values, Word* words, int64_t* indices) {
  using Number = at::opmath_type<Scalar>;
  const Line &planes = windows.lines[0], &rows = windows.lines[1], &columns = windows.lines[2];
  const int64_t lanes = windows.lanes, height = windows.outputs[1], across = windows.outputs[2] * lanes;
  const int64_t at_once = lanes > 1 || !windows.steps[1] ? 1 : std::clamp<int64_t>(2048 / across, 1, height);
  std::vector<Number> best(at_once * across);
  std::vector<Bits> bits(at_once * across);
  int64_t window = 0;
  for (int64_t oz = 0; oz < windows.outputs[0]; ++oz)
    for (int64_t oy = 0; oy < height; oy += at_once) {
      int64_t past = std::min(oy + at_once, height);
      std::fill(best.begin(), best.end(), -std::numeric_limits<Number>::infinity());
      std::fill(bits.begin(), bits.end(), Bits(0));
      if (!windows.steps[2]) {
        windows.look_through_row(x, oz, oy, best.data(), bits.data());
      }
      for (int64_t i = planes.first[oz]; windows.steps[2] && i < planes.end[oz]; ++i)
        for (int64_t j = 0; j < windows.kernel[1]; ++j) {
          int64_t row = oy, last = past;
          while (row < last && rows.first[row] > j) ++row;
          while (row < last && rows.end[last - 1] <= j) --last;
          if (row == last) continue;
          const int64_t at = windows.place(planes.start[oz], rows.start[row], 0), found = (row - oy) * across;
          for (int64_t k = 0; k < windows.kernel[2]; ++k) {
            const int64_t number = (i * windows.kernel[1] + j) * windows.kernel[2] + k;
            windows.look_along(x + (at + windows.offsets[number]) * lanes, k, last - row, Bits(1) << number,
                               best.data() + found, bits.data() + found);
          }
        }
      const int64_t size = (past - oy) * across;
      write(best.data(), bits.data(), windows.entries(), values + window, words + window, size);
      const Bits* found = bits.data();
      for (int64_t row = oy; indices && row < past; ++row)
        for (int64_t column = 0; column < windows.outputs[2]; ++column) {
          const int64_t at = windows.place(planes.start[oz], rows.start[row], columns.start[column]);
          for (int64_t lane = 0; lane < lanes; ++lane, ++found)
            *indices++ = at + windows.offsets[*found ? __builtin_ctzll(*found) : 0];
        }
      window += size;
    }
}

// The entries of number ``k`` along a row, in the windows of several rows.
template <typename Scalar, typename Number, typename Bits>
void Windows::look_along(const Scalar* from, int64_t k, int64_t rows, Bits bit, Number* best, Bits* bits) const {
  const auto [begin, end] = with_entry[k];
  if (begin == end) return;
  const int64_t step = steps[2];
  const Rows some = lanes > 1 ? Rows{end - begin, lanes, 1, step * lanes, lanes}
                              : Rows{rows, end - begin, step, steps[1] * sizes[2], outputs[2]};
  look_at(from + lines[2].start[begin] * lanes, some, bit, best + begin * lanes, bits + begin * lanes);
}

// The windows of a row, which differ in size. Where channels do not come last, columns are looked at first.
template <typename Scalar, typename Number, typename Bits>
void Windows::look_through_row(const Scalar* x, int64_t oz, int64_t oy, Number* best, Bits* bits) const {
  const Line& columns = lines[2];
  const std::array<int64_t, 2> size{lines[0].end[oz], lines[1].end[oy]};
  const Scalar* row = x + place(lines[0].start[oz], lines[1].start[oy], 0) * lanes;
  if (lanes > 1) {
    for (int64_t ox = 0; ox < outputs[2]; ++ox)
      look_through(row + columns.start[ox] * lanes, offsets.data(), {size[0], size[1], columns.end[ox]}, kernel,
                   best + ox * lanes, bits + ox * lanes, lanes);
    return;
  }
  std::vector<Number> best_of_columns(sizes[2], -std::numeric_limits<Number>::infinity());
  std::vector<Bits> bits_of_columns(sizes[2], Bits(0));
  for (int64_t i = 0; i < size[0]; ++i)
    for (int64_t j = 0; j < size[1]; ++j)
      look_at(row + place(i, j, 0), Rows{1, sizes[2], 1, 0, 0}, Bits(1) << (i * kernel[1] + j) * kernel[2],
              best_of_columns.data(), bits_of_columns.data());
  for (int64_t ox = 0; ox < outputs[2]; ++ox) {
    const int64_t start = columns.start[ox];
    bits[ox] = look_across(best_of_columns.data() + start, bits_of_columns.data() + start, columns.end[ox]);
    if (bits[ox]) best[ox] = static_cast<Number>(row[start + offsets[__builtin_ctzll(bits[ox])]]);
  }
}

constexpr int64_t MANY = 3;  // largest entries of a window

template <typename Scalar, typename Word, typename Bits>
void spread_plane(const Windows& windows, const Scalar* cotangents, const Word* words, Scalar* gradient) {
  using Number = at::opmath_type<Scalar>;
  const Line &planes = windows.lines[0], &rows = windows.lines[1], &columns = windows.lines[2];
  const int64_t lanes = windows.lanes, width = windows.outputs[2], across = width * lanes;
  const int64_t entries = windows.entries();
  const Bits all = (Bits(1) << entries) - 1;
  std::vector<Number> shares(across);
  std::vector<Number> share_of_place(windows.sizes[2]);
  std::vector<Bits> bits_of_place(windows.sizes[2]);
  std::vector<Bits> wide(across), exist(width);  // the entries that a window has in its row
  for (int64_t number = 0; number < entries; ++number)
    for (int64_t ox = 0, k = number % windows.kernel[2]; ox < width; ++ox)
      exist[ox] |= Bits(k >= columns.first[ox] && k < columns.end[ox]) << number;
  std::fill(gradient, gradient + windows.space() * lanes, Scalar(0));
  int64_t window = 0;
  for (int64_t oz = 0; oz < windows.outputs[0]; ++oz)
    for (int64_t oy = 0; oy < windows.outputs[1]; ++oy, window += across) {
      const int64_t at = windows.place(planes.start[oz], rows.start[oy], 0);
      const Bits some = all & share(cotangents + window, words + window, entries, shares.data(), wide.data(), across);
      if (lanes == 1 && windows.steps[2] == 1) {
        // From the last entry to the first, so that what an entry is given comes in the order of the windows.
        for (int64_t number = entries - 1; number >= 0; --number) {
          const auto [begin, end] = windows.with_entry[number % windows.kernel[2]];
          if (some >> number & 1 && begin < end)
            add(shares.data() + begin, wide.data() + begin, number,
                gradient + at + columns.start[begin] + windows.offsets[number], end - begin);
        }
        continue;
      }
      // Where many tie, place after place, in as many turns as windows overlap: no entry waits for the one before.
      int64_t largest = 0;
      for (int64_t ox = 0; lanes == 1 && ox < width; ++ox) largest += count_of(wide[ox], entries);
      if (lanes == 1 && largest > MANY * width && !windows.turns.empty()) {
        for (const auto& turn : windows.turns) {
          for (int64_t place = 0; place < windows.sizes[2]; ++place) {
            const auto [window, k] = turn[place];
            share_of_place[place] = window < 0 ? Number(0) : shares[window];
            bits_of_place[place] = window < 0 ? Bits(0) : wide[window] >> k;
          }
          for (int64_t number = 0; number < entries; number += windows.kernel[2])
            if (some >> number & ((Bits(1) << windows.kernel[2]) - 1))
              add(share_of_place.data(), bits_of_place.data(), number,
                  gradient + at + windows.offsets[number], windows.sizes[2]);
        }
        continue;
      }
      for (int64_t ox = 0; ox < width; ++ox) {
        const int64_t start = at + columns.start[ox];
        if (lanes == 1) {
          for (Bits bits = wide[ox] & all; bits; bits &= bits - 1)
            add_any(&shares[ox], &bits, __builtin_ctzll(bits), gradient + start + windows.offsets[__builtin_ctzll(bits)], 1);
        } else {
          add_window(shares.data() + ox * lanes, wide.data() + ox * lanes, some & exist[ox], windows.offsets.data(),
                     gradient + start * lanes, lanes);
        }
      }
    }
}

template <typename Work>
void with_words(const at::Tensor& words, Work work) {
  if (words.scalar_type() == at::kShort) return work(int16_t(), uint32_t());
  work(int32_t(), uint32_t());
}

// Large windows have words of a position, the first of the largest entries or the last that is nan, and above it how many
// are as large. Rows of a window are looked at whole, once for the largest and once for their number.
constexpr int64_t POSITION = (int64_t(1) << 31) - 1, BLOCK = 256;
constexpr int64_t SIDE_BY_SIDE = 64;  // so many that the loop over them is not unrolled, but done in vectors

template <typename Number>
ALWAYS_INLINE Number larger(Number one, Number other) {  // nan, if either is
  return (other > one) | (other != other) ? other : one;
}

template <typename Scalar, typename Number>
ALWAYS_INLINE Number largest_any(const Scalar* row, int64_t size, int64_t step, Number most) {
  Number several[SIDE_BY_SIDE];
  std::fill(several, several + SIDE_BY_SIDE, most);
  int64_t at = 0;
  for (; step == 1 && at + SIDE_BY_SIDE <= size; at += SIDE_BY_SIDE)
    for (int64_t i = 0; i < SIDE_BY_SIDE; ++i) several[i] = larger(several[i], static_cast<Number>(row[at + i]));
  for (; at < size; ++at) several[0] = larger(several[0], static_cast<Number>(row[at * step]));
  for (const Number each : several) most = larger(most, each);
  return most;
}

template <typename Scalar, typename Number>
ALWAYS_INLINE int64_t count_any(const Scalar* row, int64_t size, int64_t step, Number most) {
  int32_t count = 0;
  if (step == 1)
    for (int64_t at = 0; at < size; ++at) count += static_cast<Number>(row[at]) == most;
  else
    for (int64_t at = 0; at < size; ++at) count += static_cast<Number>(row[at * step]) == most;
  return count;
}

template <typename Scalar, typename Number>
ALWAYS_INLINE void add_to_largest_any(const Scalar* row, int64_t size, int64_t step, Scalar most, Number share,
                                      Scalar* sums) {
  const Number added = static_cast<Number>(static_cast<Scalar>(share));
  for (int64_t at = 0; at < size; ++at) {
    const int64_t place = step == 1 ? at : at * step;
    const Number sum = static_cast<Number>(sums[place]);
    sums[place] = static_cast<Scalar>(sum + (row[place] == most ? added : Number(0)));
  }
}

template <typename Scalar, typename Number>
Number largest_of(const Scalar* row, int64_t size, int64_t step, Number most) {
  return largest_any(row, size, step, most);
}
template <typename Scalar, typename Number>
int64_t count_of(const Scalar* row, int64_t size, int64_t step, Number most) {
  return count_any(row, size, step, most);
}
template <typename Scalar, typename Number>
void add_to_largest(const Scalar* row, int64_t size, int64_t step, Scalar most, Number share, Scalar* sums) {
  add_to_largest_any(row, size, step, most, share, sums);
}
FOR_EACH_MACHINE float largest_of(const float* row, int64_t size, int64_t step, float most) {
  return largest_any(row, size, step, most);
}
FOR_EACH_MACHINE int64_t count_of(const float* row, int64_t size, int64_t step, float most) {
  return count_any(row, size, step, most);
}
FOR_EACH_MACHINE void add_to_largest(const float* row, int64_t size, int64_t step, float most, float share,
                                     float* sums) {
  add_to_largest_any(row, size, step, most, share, sums);
}

// The rows of a window: what is done gets the position of each row's first entry, and how many entries it has.
template <typename Work>
ALWAYS_INLINE void for_rows(const Windows& windows, int64_t oz, int64_t oy, int64_t ox, Work work) {
  const Line &planes = windows.lines[0], &rows = windows.lines[1], &columns = windows.lines[2];
  const auto& dilation = windows.dilation;
  int64_t size = columns.end[ox] - columns.first[ox], height = rows.end[oy] - rows.first[oy];
  if (size <= 0) return;
  if (size == windows.sizes[2] && dilation[1] == 1 && dilation[2] == 1) size *= height, height = height > 0;
  for (int64_t i = planes.first[oz]; i < planes.end[oz]; ++i)
    for (int64_t j = 0; j < height; ++j)
      work(windows.place(planes.start[oz] + i * dilation[0], rows.start[oy] + (rows.first[oy] + j) * dilation[1],
                         columns.start[ox] + columns.first[ox] * dilation[2]), size);
}

template <typename Scalar>
int64_t word_of(const Windows& windows, const Scalar* x, int64_t oz, int64_t oy, int64_t ox, Scalar* value) {
  using Number = at::opmath_type<Scalar>;
  const int64_t step = windows.dilation[2];
  Number most = -std::numeric_limits<Number>::infinity();
  for_rows(windows, oz, oy, ox, [&](int64_t at, int64_t size) { most = largest_of(x + at, size, step, most); });
  int64_t count = 0, position = -1;
  for_rows(windows, oz, oy, ox, [&](int64_t at, int64_t size) {
    if (most != most) {
      for (int64_t i = 0; i < size; ++i)
        if (x[at + i * step] != x[at + i * step]) count = 1, position = at + i * step;
      return;
    }
    for (int64_t begin = 0; begin < size; begin += BLOCK) {
      const Scalar* block = x + at + begin * step;
      const int64_t more = count_of(block, std::min(BLOCK, size - begin), step, most);
      for (int64_t i = 0; more && position < 0; ++i)
        if (static_cast<Number>(block[i * step]) == most) position = at + (begin + i) * step;
      count += more;
    }
  });
  *value = position < 0 ? static_cast<Scalar>(most) : x[position];
  return count << 32 | std::max<int64_t>(position, 0);
}

// Entries of one row, against the largest in their columns.
template <typename Scalar, typename Number>
ALWAYS_INLINE void look_down_any(const Scalar* x, Number* best, int32_t* counts, int32_t* positions, int32_t position,
                                 int64_t size) {
  for (int64_t i = 0; i < size; ++i) {
    const Number entry = static_cast<Number>(x[i]), most = best[i];
    const bool leads = (entry > most) | (entry != entry) | (counts[i] == 0), level = entry == most;
    counts[i] = leads ? 1 : counts[i] + level;
    positions[i] = leads ? position : positions[i];
    best[i] = leads ? entry : most;
  }
}
template <typename Scalar, typename Number>
void look_down(const Scalar* x, Number* best, int32_t* counts, int32_t* positions, int32_t position, int64_t size) {
  look_down_any(x, best, counts, positions, position, size);
}
FOR_EACH_MACHINE void look_down(const float* x, float* best, int32_t* counts, int32_t* positions, int32_t position,
                                int64_t size) {
  look_down_any(x, best, counts, positions, position, size);
}

// The columns of one window, in all lanes: of entries that are as large the first position counts, of nan the last.
template <typename Number>
ALWAYS_INLINE void join_any(const Number* best, const int32_t* counts, const int32_t* positions, int64_t start,
                            int64_t size, int64_t step, Number* most, int32_t* total, int32_t* first, int64_t lanes) {
  for (int64_t k = 0; k < size; ++k) {
    const int32_t column = static_cast<int32_t>(start + k * step);
    for (int64_t lane = 0; lane < lanes; ++lane) {
      const int64_t at = column * lanes + lane;
      const Number one = best[at], other = most[lane];
      const int32_t position = positions[at] + column, before = first[lane];
      const bool level = one == other, later = position > before;
      const bool leads = (one > other) | (total[lane] == 0) | ((one != one) & ((other == other) | later));
      total[lane] = leads ? counts[at] : total[lane] + (level ? counts[at] : 0);
      first[lane] = leads | (level & !later) ? position : before;
      most[lane] = leads ? one : other;
    }
  }
}
template <typename Number>
void join(const Number* best, const int32_t* counts, const int32_t* positions, int64_t start, int64_t size,
          int64_t step, Number* most, int32_t* total, int32_t* first, int64_t lanes) {
  join_any(best, counts, positions, start, size, step, most, total, first, lanes);
}
FOR_EACH_MACHINE void join(const float* best, const int32_t* counts, const int32_t* positions, int64_t start,
                           int64_t size, int64_t step, float* most, int32_t* total, int32_t* first, int64_t lanes) {
  join_any(best, counts, positions, start, size, step, most, total, first, lanes);
}

// The same of one lane, without branches that cannot be foreseen.
template <typename Number>
int64_t joined(const Number* best, const int32_t* counts, const int32_t* positions, int64_t start, int64_t size,
               int64_t step) {
  Number most = -std::numeric_limits<Number>::infinity();
  bool has_nan = false;
  for (int64_t k = 0, at = start; k < size; ++k, at += step) {
    most = most < best[at] ? best[at] : most;
    has_nan |= best[at] != best[at];
  }
  int32_t total = 0, first = std::numeric_limits<int32_t>::max(), last = 0;
  for (int64_t k = 0, at = start; k < size; ++k, at += step) {
    const int32_t level = -static_cast<int32_t>(best[at] == most), position = positions[at] + static_cast<int32_t>(at);
    total += counts[at] & level;
    first = std::min(first, position | (~level & std::numeric_limits<int32_t>::max()));
  }
  for (int64_t k = 0, at = start; has_nan && k < size; ++k, at += step)
    if (best[at] != best[at]) last = std::max(last, positions[at] + static_cast<int32_t>(at));
  return has_nan ? int64_t(1) << 32 | last : static_cast<int64_t>(total) << 32 | (total ? first : 0);
}

template <typename Scalar>
void pool_large_plane(const Windows& windows, const Scalar* x, Scalar* values, int64_t* words) {
  using Number = at::opmath_type<Scalar>;
  const Line &planes = windows.lines[0], &rows = windows.lines[1], &columns = windows.lines[2];
  const int64_t lanes = windows.lanes, across = windows.sizes[2] * lanes, step = windows.dilation[2];
  const Number none = -std::numeric_limits<Number>::infinity();
  std::vector<Number> best(across), most(lanes);
  std::vector<int32_t> counts(across), positions(across), total(lanes), first(lanes);
  for (int64_t oz = 0; oz < windows.outputs[0]; ++oz)
    for (int64_t oy = 0; oy < windows.outputs[1]; ++oy) {
      const bool is_line = lanes == 1 && windows.kernel[0] * windows.kernel[1] == 1;
      std::fill(best.begin(), best.end(), none), std::fill(counts.begin(), counts.end(), 0);
      for (int64_t i = planes.first[oz]; !is_line && i < planes.end[oz]; ++i)
        for (int64_t j = rows.first[oy]; j < rows.end[oy]; ++j) {
          const int64_t at = windows.place(planes.start[oz] + i * windows.dilation[0],
                                           rows.start[oy] + j * windows.dilation[1], 0);
          look_down(x + at * lanes, best.data(), counts.data(), positions.data(), static_cast<int32_t>(at), across);
        }
      for (int64_t ox = 0; ox < windows.outputs[2]; ++ox, values += lanes, words += lanes) {
        const int64_t start = columns.start[ox] + columns.first[ox] * step, size = columns.end[ox] - columns.first[ox];
        if (is_line) {
          *words = word_of(windows, x, oz, oy, ox, values);
        } else if (lanes == 1) {
          *words = joined(best.data(), counts.data(), positions.data(), start, size, step);
          *values = *words ? x[*words & POSITION] : static_cast<Scalar>(none);
        } else {
          std::fill(most.begin(), most.end(), none), std::fill(total.begin(), total.end(), 0);
          join(best.data(), counts.data(), positions.data(), start, size, step, most.data(), total.data(), first.data(),
               lanes);
          for (int64_t lane = 0; lane < lanes; ++lane) {
            words[lane] = total[lane] ? static_cast<int64_t>(total[lane]) << 32 | first[lane] : 0;
            values[lane] = total[lane] ? x[first[lane] * lanes + lane] : static_cast<Scalar>(none);
          }
        }
      }
    }
}

template <typename Scalar, typename Number>
ALWAYS_INLINE void add_lanes_any(const Scalar* x, const Scalar* most, const Number* shares, Scalar* sums,
                                 int64_t lanes) {
  for (int64_t lane = 0; lane < lanes; ++lane) {
    const Number share = static_cast<Number>(static_cast<Scalar>(shares[lane]));
    sums[lane] = static_cast<Scalar>(static_cast<Number>(sums[lane]) + (x[lane] == most[lane] ? share : Number(0)));
  }
}
template <typename Scalar, typename Number>
void add_lanes(const Scalar* x, const Scalar* most, const Number* shares, Scalar* sums, int64_t lanes) {
  add_lanes_any(x, most, shares, sums, lanes);
}
FOR_EACH_MACHINE void add_lanes(const float* x, const float* most, const float* shares, float* sums, int64_t lanes) {
  add_lanes_any(x, most, shares, sums, lanes);
}

template <typename Scalar>
void spread_large_plane(const Windows& windows, const Scalar* x, const Scalar* cotangents, const int64_t* words,
                        Scalar* gradient) {
  using Number = at::opmath_type<Scalar>;
  const int64_t lanes = windows.lanes, step = windows.dilation[2];
  std::vector<Scalar> largest(lanes);
  std::vector<Number> shares(lanes);
  std::fill(gradient, gradient + windows.space() * lanes, Scalar(0));
  for (int64_t oz = 0; oz < windows.outputs[0]; ++oz)
    for (int64_t oy = 0; oy < windows.outputs[1]; ++oy)
      for (int64_t ox = 0; ox < windows.outputs[2]; ++ox) {
        bool some_tie = false;
        for (int64_t lane = 0; lane < lanes; ++lane, ++words, ++cotangents) {
          const int64_t count = *words >> 32, position = (*words & POSITION) * lanes + lane;
          shares[lane] = count > 1 ? static_cast<Number>(*cotangents) / static_cast<Number>(count) : Number(0);
          largest[lane] = x[position];
          some_tie |= count > 1;
          if (count == 1)
            gradient[position] =
                static_cast<Scalar>(static_cast<Number>(gradient[position]) + static_cast<Number>(*cotangents));
        }
        for_rows(windows, oz, oy, ox, [&](int64_t at, int64_t size) {
          if (some_tie && lanes == 1) add_to_largest(x + at, size, step, largest[0], shares[0], gradient + at);
          for (int64_t i = 0; some_tie && lanes > 1 && i < size; ++i, at += step)
            add_lanes(x + at * lanes, largest.data(), shares.data(), gradient + at * lanes, lanes);
        });
      }
}

template <typename Work>
void for_planes(const Windows& windows, c10::ScalarType dtype, Work work) {
  const int64_t in = windows.space() * windows.lanes, out = windows.windows() * windows.lanes;
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, dtype, "max_pool of large windows", [&] {
    at::parallel_for(0, windows.planes, 1 + (1 << 14) / in, [&](int64_t begin, int64_t end) {
      for (int64_t plane = begin; plane < end; ++plane) work(scalar_t(), plane * in, plane * out);
    });
  });
}

void pool_large(const at::Tensor& x, at::Tensor values, at::Tensor words, const Windows& windows) {
  for_planes(windows, x.scalar_type(), [&](auto kind, int64_t in, int64_t out) {
    using Scalar = decltype(kind);
    pool_large_plane(windows, x.const_data_ptr<Scalar>() + in, values.mutable_data_ptr<Scalar>() + out,
                     words.mutable_data_ptr<int64_t>() + out);
  });
}

void spread_large(const at::Tensor& x, const at::Tensor& cotangents, const at::Tensor& words, at::Tensor gradient,
                  const Windows& windows) {
  for_planes(windows, x.scalar_type(), [&](auto kind, int64_t in, int64_t out) {
    using Scalar = decltype(kind);
    spread_large_plane(windows, x.const_data_ptr<Scalar>() + in, cotangents.const_data_ptr<Scalar>() + out,
                       words.const_data_ptr<int64_t>() + out, gradient.mutable_data_ptr<Scalar>() + in);
  });
}

void pool(const at::Tensor& x, at::Tensor values, at::Tensor words, const std::optional<at::Tensor>& indices,
          const Windows& windows) {
  const int64_t in = windows.space() * windows.lanes, out = windows.windows() * windows.lanes;
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, x.scalar_type(), "max_pool", [&] {
    with_words(words, [&](auto word, auto bits) {
      using Word = decltype(word);
      using Bits = decltype(bits);
      at::parallel_for(0, windows.planes, 1 + (1 << 14) / in, [&](int64_t begin, int64_t end) {
        for (int64_t plane = begin; plane < end; ++plane) {
          pool_plane<scalar_t, Word, Bits>(
               windows, x.const_data_ptr<scalar_t>() + plane * in, values.mutable_data_ptr<scalar_t>() + plane * out,
               words.mutable_data_ptr<Word>() + plane * out,
               indices ? indices->mutable_data_ptr<int64_t>() + plane * out : nullptr);
        }
      });
    });
  });
}

void spread(const at::Tensor& cotangents, const at::Tensor& words, at::Tensor gradient, const Windows& windows) {
  const int64_t in = windows.space() * windows.lanes, out = windows.windows() * windows.lanes;
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, gradient.scalar_type(), "max_pool_backward", [&] {
    with_words(words, [&](auto word, auto bits) {
      using Word = decltype(word);
      using Bits = decltype(bits);
      at::parallel_for(0, windows.planes, 1 + (1 << 14) / in, [&](int64_t begin, int64_t end) {
        for (int64_t plane = begin; plane < end; ++plane) {
          spread_plane<scalar_t, Word, Bits>(
               windows, cotangents.const_data_ptr<scalar_t>() + plane * out,
               words.const_data_ptr<Word>() + plane * out, gradient.mutable_data_ptr<scalar_t>() + plane * in);
        }
      });
    });
  });
}

}  // namespace
}  // namespace pooling
