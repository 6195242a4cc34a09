// Stretches of positions, and the words whose bits stand for them. Knows no masks.
// Positions are absolute, may be negative and lie within ±2^61.
#pragma once
#include <stdint.h>

namespace REGARD_ISA {

// What holds for all pairs of a tile. NONE and ALL are promises, SOME is always a safe answer.
enum Tile { NONE, SOME, ALL };

// The positions first, first + step, …: `count` of them, at least one.
struct Span {
  int64_t first, step, count;
};

namespace mask_program {

constexpr int64_t WORD = 64;  // the most lanes, and the most rows, of one question

// The first and last position of a span, both within it.
struct Range {
  int64_t low, high;
};

static inline Range range_of(const Span& span) { return {span.first, span.first + span.step * (span.count - 1)}; }
static inline Range clipped(Range range, int64_t size) {
  return {range.low < 0 ? 0 : range.low, range.high < size ? range.high : size - 1};
}
static inline bool inside(Range range, int64_t start, int64_t stop) { return range.low >= start && range.high < stop; }
static inline bool outside(Range range, int64_t start, int64_t stop) { return range.high < start || range.low >= stop; }

static inline int64_t floor_division(int64_t a, int64_t b) { return a / b - (a % b < 0); }
static inline int64_t modulo(int64_t a, int64_t b) { return a % b + (a % b < 0 ? b : 0); }

// The lowest `count` bits.
static inline uint64_t below(int64_t count) {
  return count <= 0 ? 0 : ~(uint64_t)0 >> (WORD - (count < WORD ? count : WORD));
}
static inline uint64_t between(int64_t from, int64_t to) { return below(to) & ~below(from); }

// The index in a span of the first position at or after `position`, as if the span had no ends.
static inline int64_t index_from(const Span& span, int64_t position) {
  int64_t away = position - span.first;
  return span.step == 1 ? away : -floor_division(-away, span.step);
}

// The bits of the positions in [start, stop).
static inline uint64_t stretch(const Span& span, int64_t start, int64_t stop) {
  return between(index_from(span, start), index_from(span, stop));
}

// Bit l of word r becomes bit r of word l, for 64 words.
static inline void transpose(uint64_t* words) {
  uint64_t low = 0xffffffff;  // of each pair of squares, the lower half of the columns
  for (int size = 32; size; size /= 2, low ^= low << size)
    for (int from = 0; from < WORD; from += 2 * size)
      for (int r = from; r < from + size; r++) {
        uint64_t swapped = ((words[r] >> size) ^ words[r + size]) & low;
        words[r + size] ^= swapped;
        words[r] ^= swapped << size;
      }
}

}  // namespace mask_program

}  // namespace REGARD_ISA
