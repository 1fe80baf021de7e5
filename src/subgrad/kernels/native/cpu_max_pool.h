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

constexpr int64_t COUNTED = 58;  // entries, for which a word of 64 bits still has room for their count

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
  }

  int64_t place(int64_t z, int64_t y, int64_t x) const { return (z * sizes[1] + y) * sizes[2] + x; }
  int64_t entries() const { return kernel[0] * kernel[1] * kernel[2]; }
  int64_t space() const { return sizes[0] * sizes[1] * sizes[2]; }
  int64_t windows() const { return outputs[0] * outputs[1] * outputs[2]; }

  template <typename Scalar, typename Number, typename Bits>
  void look_along(const Scalar* from, int64_t k, int64_t rows, Bits bit, Number* best, Bits* bits) const;
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
  return entries > COUNTED ? counted(word) : (word >> entries) & (entries <= 12 ? 15 : entries <= 27 ? 31 : 63);
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

// Where windows differ in size: some have no entry of number ``k``, and their first is looked at in its place.
template <typename Scalar, typename Number, typename Bits>
ALWAYS_INLINE void look_any(const Scalar* first, const Line& line, int64_t k, Bits bit, Number* best, Bits* bits) {
  const int64_t size = line.start.size(), *start = line.start.data(), *end = line.end.data();
  for (int64_t window = 0; window < size; ++window) {
    const bool exists = k < end[window];
    const Number entry = static_cast<Number>(first[start[window] + (exists ? k : 0)]);
    look(entry, exists, bit, best[window], bits[window]);
  }
}

template <typename Scalar, typename Number, typename Bits>
void look_at(const Scalar* first, const Line& line, int64_t k, Bits bit, Number* best, Bits* bits) {
  look_any(first, line, k, bit, best, bits);
}

FOR_EACH_MACHINE void look_at(const float* first, const Line& line, int64_t k, uint32_t bit, float* best,
                              uint32_t* bits) {
  look_any(first, line, k, bit, best, bits);
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
  if (entries > COUNTED)
    for (int64_t lane = 0; lane < lanes; ++lane) words[lane] = static_cast<Word>(bits[lane]);
  else
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
      const int64_t past = std::min(oy + at_once, height);
      std::fill(best.begin(), best.end(), -std::numeric_limits<Number>::infinity());
      std::fill(bits.begin(), bits.end(), Bits(0));
      for (int64_t i = planes.first[oz]; i < planes.end[oz]; ++i)
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
      for (int64_t lane = 0; indices && lane < size; ++lane) {
        const int64_t number = bits[lane] ? __builtin_ctzll(bits[lane]) : 0, column = lane % across / lanes;
        const int64_t at = windows.place(planes.start[oz], rows.start[oy + lane / across], columns.start[column]);
        indices[window + lane] = at + windows.offsets[number];
      }
      window += size;
    }
}

// The entries of number ``k`` along a row, in the windows of several rows.
template <typename Scalar, typename Number, typename Bits>
void Windows::look_along(const Scalar* from, int64_t k, int64_t rows, Bits bit, Number* best, Bits* bits) const {
  const Line& line = lines[2];
  const int64_t width = outputs[2], step = steps[2];
  if (step) {
    const auto [begin, end] = with_entry[k];
    if (begin == end) return;
    const Rows some = lanes > 1 ? Rows{end - begin, lanes, 1, step * lanes, lanes}
                                : Rows{rows, end - begin, step, steps[1] * sizes[2], width};
    look_at(from + line.start[begin] * lanes, some, bit, best + begin * lanes, bits + begin * lanes);
  } else if (lanes > 1) {
    for (int64_t ox = 0; ox < width; ++ox)
      if (k < line.end[ox])
        look_at(from + line.start[ox] * lanes, Rows{1, lanes, 1, 0, 0}, bit, best + ox * lanes, bits + ox * lanes);
  } else {
    look_at(from - k, line, k, bit, best, bits);
  }
}

template <typename Scalar, typename Word, typename Bits>
void spread_plane(const Windows& windows, const Scalar* cotangents, const Word* words, Scalar* gradient) {
  using Number = at::opmath_type<Scalar>;
  const Line &planes = windows.lines[0], &rows = windows.lines[1], &columns = windows.lines[2];
  const int64_t lanes = windows.lanes, width = windows.outputs[2], across = width * lanes;
  const int64_t entries = windows.entries();
  const Bits all = entries == 8 * sizeof(Bits) ? ~Bits(0) : (Bits(1) << entries) - 1;
  std::vector<Number> shares(across);
  std::vector<Bits> wide(across);
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
      for (int64_t ox = 0; ox < width; ++ox) {
        const int64_t start = at + columns.start[ox];
        if (lanes == 1) {
          for (Bits bits = wide[ox] & all; bits; bits &= bits - 1)
            add_any(&shares[ox], &bits, __builtin_ctzll(bits), gradient + start + windows.offsets[__builtin_ctzll(bits)], 1);
        } else {
          for (Bits bits = some; bits; bits &= bits - 1) {
            const int64_t number = __builtin_ctzll(bits), k = number % windows.kernel[2];
            if (k >= columns.first[ox] && k < columns.end[ox])
              add(shares.data() + ox * lanes, wide.data() + ox * lanes, number,
                  gradient + (start + windows.offsets[number]) * lanes, lanes);
          }
        }
      }
    }
}

template <typename Work>
void with_words(const at::Tensor& words, Work work) {
  if (words.scalar_type() == at::kShort) return work(int16_t(), uint32_t());
  if (words.scalar_type() == at::kInt) return work(int32_t(), uint32_t());
  work(int64_t(), uint64_t());
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
