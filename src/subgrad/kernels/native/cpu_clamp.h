// What is done to every entry on the CPU. Loops alone, of which compilers make lanes.

#pragma once

#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#define ALWAYS_INLINE __attribute__((always_inline)) inline

// One body for several instruction sets, of which the machine's best is taken when the library is loaded.
#if defined(__x86_64__) && defined(__linux__) && defined(__GNUC__) && !defined(__clang__)
#define FOR_EACH_MACHINE __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define FOR_EACH_MACHINE
#endif

namespace loops {
namespace {

// Those who pass: entries between two places.
template <typename Number>
struct Range {
  using Word = std::conditional_t<sizeof(Number) == 4, uint32_t, uint64_t>;  // as wide as an entry

  Number low, high;  // infinite where there is none
  Number blocked_low, blocked_high;  // the same where an entry on it is blocked; else nan, which equals nothing
  bool nan;

  Range(double from, double to, bool on_low, bool on_high, bool with_nan)
      : low(static_cast<Number>(from)),
        high(static_cast<Number>(to)),
        blocked_low(on_low ? std::numeric_limits<Number>::quiet_NaN() : low),
        blocked_high(on_high ? std::numeric_limits<Number>::quiet_NaN() : high),
        nan(with_nan) {}

  // An entry itself unless it lies beyond; of zeros and nan too, as the instructions for it have it that torch uses.
  ALWAYS_INLINE Number value(Number at) const {
    const Number raised = at < low ? low : at;
    return raised > high ? high : raised;
  }

  // All bits, or none. That nan passes is known when this is compiled: a comparison less.
  template <bool NAN_PASSES>
  ALWAYS_INLINE Word passes(Number at) const {
    const Number held = value(at);
    const bool is_within = NAN_PASSES ? bits_of(held) == bits_of(at) : held == at;
    return whole(is_within & (at != blocked_low) & (at != blocked_high));
  }

  ALWAYS_INLINE static Word whole(bool is) { return -static_cast<Word>(is); }

  ALWAYS_INLINE static Number selected(Number cotangent, Word passes) {
    const Word bits = bits_of(cotangent) & passes;
    Number out;
    std::memcpy(&out, &bits, sizeof out);
    return out;
  }

 private:
  ALWAYS_INLINE static Word bits_of(Number number) {
    Word bits;
    std::memcpy(&bits, &number, sizeof bits);
    return bits;
  }
};

// A bit an entry. A block of entries has a word in each lane, and a row of entries a bit in each word: no bit crosses
// lanes. What is read and written may be the same memory.
template <typename Number>
struct Bits {
  using Word = typename Range<Number>::Word;
  static constexpr int64_t LANES = 16, ROWS = 8 * sizeof(Word), BLOCK = LANES * ROWS;

  static constexpr int64_t blocks(int64_t entries) { return (entries + BLOCK - 1) / BLOCK; }

  // Of the last block only the lanes that it has: never more than the entries themselves.
  static constexpr int64_t words(int64_t entries) { return entries / BLOCK * LANES + lanes(entries % BLOCK); }

  // The bits of entries that pass; what is asked gets the number of each entry.
  template <typename Passes>
  ALWAYS_INLINE static void fill(Word* words, int64_t size, const Passes& passes) {
    for (int64_t begin = 0; begin < size; begin += BLOCK, words += LANES) {
      Word found[LANES] = {};
      by_rows(size - begin, [&](int64_t row, int64_t lane) {
        found[lane] |= passes(begin + row * LANES + lane) & Word(1) << row;
      });
      std::memcpy(words, found, lanes(size - begin) * sizeof(Word));
    }
  }

  ALWAYS_INLINE static void weigh(const Word* words, const Number* cotangent, Number* out, int64_t size) {
    for (; size > 0; size -= BLOCK, cotangent += BLOCK, out += BLOCK, words += LANES) {
      Word found[LANES] = {};
      std::memcpy(found, words, lanes(size) * sizeof(Word));
      by_rows(size, [&](int64_t row, int64_t lane) {
        const Word passes = Range<Number>::whole(found[lane] >> row & 1);
        out[row * LANES + lane] = Range<Number>::selected(cotangent[row * LANES + lane], passes);
      });
    }
  }

 private:
  static constexpr int64_t lanes(int64_t entries) { return entries < LANES ? entries : LANES; }

  // Of one block, or of what there is of it.
  template <typename Do>
  ALWAYS_INLINE static void by_rows(int64_t size, const Do& each) {
    const int64_t rows = size < BLOCK ? size / LANES : ROWS, rest = size < BLOCK ? size % LANES : 0;
    for (int64_t row = 0; row < rows; ++row) {
#pragma GCC ivdep
      for (int64_t lane = 0; lane < LANES; ++lane) each(row, lane);
    }
    for (int64_t lane = 0; lane < rest; ++lane) each(rows, lane);
  }
};

// Who passes, of entries that lie below, on and above a place each, or are nan, as the place may be.
struct Sides {
  bool below, on, above, nan;
};

template <typename Number>
ALWAYS_INLINE void compare_any(const Number* x, const Number* places, typename Range<Number>::Word* words, int64_t size,
                               Sides sides) {
  Bits<Number>::fill(words, size, [=](int64_t i) {
    const bool below = x[i] < places[i], on = x[i] == places[i], above = x[i] > places[i];
    return Range<Number>::whole((below & sides.below) | (on & sides.on) | (above & sides.above) |
                                (!(below | on | above) & sides.nan));
  });
}

template <bool NAN_PASSES, typename Number>
ALWAYS_INLINE void clamp_any(const Number* x, Number* out, typename Range<Number>::Word* words, int64_t size,
                             Range<Number> range) {
  Bits<Number>::fill(words, size, [=](int64_t i) {
    const Number at = x[i];
    if (out != nullptr) out[i] = range.value(at);
    return range.template passes<NAN_PASSES>(at);
  });
}

// The bits of entries that pass, by their places, or by the range.
FOR_EACH_MACHINE void compare(const float* x, const float* places, uint32_t* words, int64_t size, Sides sides) {
  compare_any(x, places, words, size, sides);
}

FOR_EACH_MACHINE void compare(const double* x, const double* places, uint64_t* words, int64_t size, Sides sides) {
  compare_any(x, places, words, size, sides);
}

// And the entries held within the range, unless they are not wanted.
FOR_EACH_MACHINE void clamp(const float* x, float* out, uint32_t* words, int64_t size, Range<float> range) {
  range.nan ? clamp_any<true>(x, out, words, size, range) : clamp_any<false>(x, out, words, size, range);
}

FOR_EACH_MACHINE void clamp(const double* x, double* out, uint64_t* words, int64_t size, Range<double> range) {
  range.nan ? clamp_any<true>(x, out, words, size, range) : clamp_any<false>(x, out, words, size, range);
}

// The cotangent where bits are set.
FOR_EACH_MACHINE void weigh(const uint32_t* words, const float* cotangent, float* out, int64_t size) {
  Bits<float>::weigh(words, cotangent, out, size);
}

FOR_EACH_MACHINE void weigh(const uint64_t* words, const double* cotangent, double* out, int64_t size) {
  Bits<double>::weigh(words, cotangent, out, size);
}

}  // namespace
}  // namespace loops
