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
#include <vector>

#include "loops.h"

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

  explicit Windows(const std::vector<int64_t>& given) : lanes(given[0]), planes(given[1]) {
    const auto three = [&](int64_t at) { return std::array<int64_t, 3>{given[at], given[at + 1], given[at + 2]}; };
    sizes = three(2), outputs = three(5), kernel = three(8), dilation = three(17);
    for (int64_t dim = 0; dim < 3; ++dim)
      lines.emplace_back(sizes[dim], outputs[dim], kernel[dim], given[11 + dim], given[14 + dim], dilation[dim], given[20]);
    for (int64_t i = 0; i < kernel[0]; ++i)
      for (int64_t j = 0; j < kernel[1]; ++j)
        for (int64_t k = 0; k < kernel[2]; ++k) offsets.push_back(place(i * dilation[0], j * dilation[1], k * dilation[2]));
  }

  int64_t place(int64_t z, int64_t y, int64_t x) const { return (z * sizes[1] + y) * sizes[2] + x; }
  int64_t entries() const { return kernel[0] * kernel[1] * kernel[2]; }
  int64_t space() const { return sizes[0] * sizes[1] * sizes[2]; }
  int64_t windows() const { return outputs[0] * outputs[1] * outputs[2]; }

  // For every window of a plane its number, where it starts, and for every one of its entries the number of that.
  template <typename Begin, typename Entry, typename End>
  ALWAYS_INLINE void each(Begin begin, Entry entry, End end) const {
    int64_t window = 0;
    for (int64_t oz = 0; oz < outputs[0]; ++oz)
      for (int64_t oy = 0; oy < outputs[1]; ++oy)
        for (int64_t ox = 0; ox < outputs[2]; ++ox, ++window) {
          const int64_t at = place(lines[0].start[oz], lines[1].start[oy], lines[2].start[ox]);
          begin();
          for (int64_t i = lines[0].first[oz]; i < lines[0].end[oz]; ++i)
            for (int64_t j = lines[1].first[oy]; j < lines[1].end[oy]; ++j) {
              const int64_t row = (i * kernel[1] + j) * kernel[2];
              for (int64_t k = lines[2].first[ox]; k < lines[2].end[ox]; ++k) entry(at + offsets[row + k], row + k);
            }
          end(window, at);
        }
  }
};

template <typename Bits>
ALWAYS_INLINE int64_t count_of(Bits word, int64_t entries) {
  if (entries > COUNTED) return __builtin_popcountll(static_cast<uint64_t>(word));
  return (static_cast<int64_t>(word) >> entries) & (entries <= 12 ? 15 : entries <= 27 ? 31 : 63);
}

template <typename Bits>
ALWAYS_INLINE Bits counted(Bits bits, int64_t entries) {
  return entries > COUNTED ? bits : bits | static_cast<Bits>(__builtin_popcountll(bits)) << entries;
}

// The first of the largest, or the last that is nan, as torch's kernels; all are -inf at first.
template <typename Number, typename Bits>
ALWAYS_INLINE void look(Number entry, Bits bit, Number& best, Bits& bits) {
  const bool leads = (entry > best) | (entry != entry), level = entry == best;
  bits = leads ? bit : (level ? bits | bit : bits);
  best = leads ? entry : best;
}

FOR_EACH_MACHINE void look_at(const float* entries, uint32_t bit, float* best, uint32_t* bits, int64_t lanes) {
  for (int64_t lane = 0; lane < lanes; ++lane) look(entries[lane], bit, best[lane], bits[lane]);
}

template <typename Scalar, typename Number, typename Bits>
void look_at(const Scalar* entries, Bits bit, Number* best, Bits* bits, int64_t lanes) {
  for (int64_t lane = 0; lane < lanes; ++lane) look(static_cast<Number>(entries[lane]), bit, best[lane], bits[lane]);
}

FOR_EACH_MACHINE void add(const float* shares, const uint32_t* words, int64_t number, float* sums, int64_t lanes) {
  for (int64_t lane = 0; lane < lanes; ++lane) sums[lane] += (words[lane] >> number) & 1 ? shares[lane] : 0.0f;
}

template <typename Number, typename Bits>
void add(const Number* shares, const Bits* words, int64_t number, Number* sums, int64_t lanes) {
  for (int64_t lane = 0; lane < lanes; ++lane) sums[lane] += (words[lane] >> number) & 1 ? shares[lane] : Number(0);
}

// Values and words of one plane, or of one image with all its channels.
template <typename Scalar, typename Word, typename Bits>
void pool_plane(const Windows& windows, const Scalar* x, Scalar* values, Word* words, int64_t* indices) {
  using Number = at::opmath_type<Scalar>;
  const int64_t entries = windows.entries();
  Number best;
  Bits bits;
  int64_t index;
  windows.each(
      [&] { best = -std::numeric_limits<Number>::infinity(), bits = 0, index = 0; },
      [&](int64_t at, int64_t number) {
        look(static_cast<Number>(x[at]), Bits(1) << number, best, bits);
        // Alone, or the first: either way its place is the one that torch returns.
        index = bits == Bits(1) << number ? at : index;
      },
      [&](int64_t window, int64_t) {
        values[window] = static_cast<Scalar>(best);
        words[window] = static_cast<Word>(counted(bits, entries));
        if (indices) indices[window] = index;
      });
}

template <typename Scalar, typename Word, typename Bits>
void pool_channels(const Windows& windows, const Scalar* x, Scalar* values, Word* words, int64_t* indices) {
  using Number = at::opmath_type<Scalar>;
  const int64_t lanes = windows.lanes, entries = windows.entries();
  std::vector<Number> best(lanes);
  std::vector<Bits> bits(lanes);
  windows.each(
      [&] {
        std::fill(best.begin(), best.end(), -std::numeric_limits<Number>::infinity());
        std::fill(bits.begin(), bits.end(), 0);
      },
      [&](int64_t at, int64_t number) { look_at(x + at * lanes, Bits(1) << number, best.data(), bits.data(), lanes); },
      [&](int64_t window, int64_t start) {
        for (int64_t lane = 0; lane < lanes; ++lane) {
          values[window * lanes + lane] = static_cast<Scalar>(best[lane]);
          words[window * lanes + lane] = static_cast<Word>(counted(bits[lane], entries));
        }
        if (!indices) return;
        for (int64_t lane = 0; lane < lanes; ++lane) {
          const int64_t number = bits[lane] ? __builtin_ctzll(bits[lane]) : 0;
          indices[window * lanes + lane] = start + windows.offsets[number];
        }
      });
}

template <typename Scalar, typename Word, typename Bits>
void spread_plane(const Windows& windows, const Scalar* cotangents, const Word* words, Scalar* gradient) {
  using Number = at::opmath_type<Scalar>;
  const int64_t entries = windows.entries(), space = windows.space();
  const uint64_t all = entries == 64 ? ~uint64_t(0) : (uint64_t(1) << entries) - 1;
  std::vector<Number> sums(space, Number(0));
  windows.each([] {}, [](int64_t, int64_t) {},
               [&](int64_t window, int64_t start) {
                 uint64_t bits = static_cast<uint64_t>(words[window]) & all;
                 const int64_t count = count_of(words[window], entries);
                 const Number own = static_cast<Number>(cotangents[window]);
                 const Number share = count == 1 ? own : own / static_cast<Number>(count);
                 for (; bits; bits &= bits - 1) sums[start + windows.offsets[__builtin_ctzll(bits)]] += share;
               });
  for (int64_t at = 0; at < space; ++at) gradient[at] = static_cast<Scalar>(sums[at]);
}

template <typename Scalar, typename Word, typename Bits>
void spread_channels(const Windows& windows, const Scalar* cotangents, const Word* words, Scalar* gradient) {
  using Number = at::opmath_type<Scalar>;
  const int64_t lanes = windows.lanes, entries = windows.entries(), size = windows.space() * lanes;
  const uint64_t all = entries == 64 ? ~uint64_t(0) : (uint64_t(1) << entries) - 1;
  std::vector<Number> sums(size, Number(0)), shares(lanes);
  std::vector<Bits> wide(lanes);
  windows.each([] {}, [](int64_t, int64_t) {},
               [&](int64_t window, int64_t start) {
                 uint64_t some = 0;
                 for (int64_t lane = 0; lane < lanes; ++lane) {
                   const Word word = words[window * lanes + lane];
                   wide[lane] = static_cast<Bits>(word);
                   some |= static_cast<uint64_t>(word);
                   const Number count = static_cast<Number>(count_of(word, entries));
                   shares[lane] = static_cast<Number>(cotangents[window * lanes + lane]) / count;
                 }
                 for (some &= all; some; some &= some - 1) {
                   const int64_t number = __builtin_ctzll(some);
                   add(shares.data(), wide.data(), number, sums.data() + (start + windows.offsets[number]) * lanes, lanes);
                 }
               });
  for (int64_t at = 0; at < size; ++at) gradient[at] = static_cast<Scalar>(sums[at]);
}

template <typename Work>
void with_words(const at::Tensor& words, Work work) {
  if (words.scalar_type() == at::kShort) return work(int16_t(), uint32_t());
  if (words.scalar_type() == at::kInt) return work(int32_t(), uint32_t());
  work(int64_t(), uint64_t());
}

void pool(const at::Tensor& x, at::Tensor values, at::Tensor words, const std::optional<at::Tensor>& indices,
          const std::vector<int64_t>& given) {
  const Windows windows(given);
  const int64_t in = windows.space() * windows.lanes, out = windows.windows() * windows.lanes;
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, x.scalar_type(), "max_pool", [&] {
    with_words(words, [&](auto word, auto bits) {
      using Word = decltype(word);
      using Bits = decltype(bits);
      at::parallel_for(0, windows.planes, 1 + (1 << 14) / in, [&](int64_t begin, int64_t end) {
        for (int64_t plane = begin; plane < end; ++plane) {
          const auto work = windows.lanes > 1 ? pool_channels<scalar_t, Word, Bits> : pool_plane<scalar_t, Word, Bits>;
          work(windows, x.const_data_ptr<scalar_t>() + plane * in, values.mutable_data_ptr<scalar_t>() + plane * out,
               words.mutable_data_ptr<Word>() + plane * out,
               indices ? indices->mutable_data_ptr<int64_t>() + plane * out : nullptr);
        }
      });
    });
  });
}

void spread(const at::Tensor& cotangents, const at::Tensor& words, at::Tensor gradient,
            const std::vector<int64_t>& given) {
  const Windows windows(given);
  const int64_t in = windows.space() * windows.lanes, out = windows.windows() * windows.lanes;
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, gradient.scalar_type(), "max_pool_backward", [&] {
    with_words(words, [&](auto word, auto bits) {
      using Word = decltype(word);
      using Bits = decltype(bits);
      at::parallel_for(0, windows.planes, 1 + (1 << 14) / in, [&](int64_t begin, int64_t end) {
        for (int64_t plane = begin; plane < end; ++plane) {
          const auto work = windows.lanes > 1 ? spread_channels<scalar_t, Word, Bits> : spread_plane<scalar_t, Word, Bits>;
          work(windows, cotangents.const_data_ptr<scalar_t>() + plane * out,
               words.const_data_ptr<Word>() + plane * out, gradient.mutable_data_ptr<scalar_t>() + plane * in);
        }
      });
    });
  });
}

}  // namespace
}  // namespace pooling
