// The leaves of mask programs: for each, what holds on a tile (`classify_…`) and which pairs of it are allowed
// (`allowed_…`: a word for each row, a bit for each lane; bits past the last lane may be anything).
// Knows what the numbers of a leaf mean; engines/native/mask_program.py writes them. Knows no operators.
#pragma once
#include "span.h"

namespace REGARD_ISA {

namespace mask_program {

constexpr int64_t NOWHERE = INT64_MIN;  // the document of a query that has none; a key's is one more

// One question: where the tile lies, and which side of it lies along the bits of a word.
struct Place {
  int64_t batch, head;
  Span lanes, rows;
  bool lanes_are_queries;
  const Span& queries() const { return lanes_are_queries ? lanes : rows; }
  const Span& keys() const { return lanes_are_queries ? rows : lanes; }
};

// The arguments of a leaf.
struct Leaf {
  const int64_t* argument;
  const void* const* tables;
  int64_t number(int i) const { return argument[i]; }
  const int64_t* table(int i) const { return (const int64_t*)tables[argument[i]]; }
};

// The bits of the lanes whose label is that of the row. Rows mostly share a few labels: their words are cached.
static inline void equal(const int64_t* lane_labels, const int64_t* row_labels, int64_t rows, uint64_t* out) {
  int64_t labels[16];
  uint64_t words[16], cached = 0;
  for (int64_t r = 0; r < rows; r++) {
    int at = (int)((uint64_t)row_labels[r] * 0x9e3779b97f4a7c15 >> 60);  // 2^64 over the golden ratio spreads them
    if (!(cached >> at & 1) || labels[at] != row_labels[r]) {
      uint64_t bits = 0;
      for (int l = 0; l < WORD; l++) bits |= (uint64_t)(lane_labels[l] == row_labels[r]) << l;
      labels[at] = row_labels[r];
      words[at] = bits;
      cached |= (uint64_t)1 << at;
    }
    out[r] = words[at];
  }
}

// --- band: low ≤ k − q ≤ high; arguments low, high. Causal, near.

static inline Tile classify_band(const Leaf& leaf, Range q, Range k) {
  int64_t least = k.low - q.high, most = k.high - q.low;
  if (least > leaf.number(1) || most < leaf.number(0)) return NONE;
  return least >= leaf.number(0) && most <= leaf.number(1) ? ALL : SOME;
}

static inline void allowed_band(const Leaf& leaf, const Place& place, uint64_t* out) {
  const Span &lanes = place.lanes, &rows = place.rows;
  int64_t low = place.lanes_are_queries ? -leaf.number(1) : leaf.number(0);  // low ≤ lane − row ≤ high
  int64_t high = place.lanes_are_queries ? -leaf.number(0) : leaf.number(1);
  if (lanes.step == rows.step) {
    int64_t from = index_from(lanes, rows.first + low), to = index_from(lanes, rows.first + high + 1);
    for (int64_t r = 0; r < rows.count; r++) out[r] = between(from + r, to + r);
    return;
  }
  for (int64_t r = 0; r < rows.count; r++) {
    int64_t row = rows.first + r * rows.step;
    out[r] = stretch(lanes, row + low, row + high + 1);
  }
}

// --- strided: step divides q − k; argument step.

static inline Tile classify_strided(const Leaf& leaf, const Span& queries, const Span& keys) {
  int64_t step = leaf.number(0);
  bool one_class = (queries.count == 1 || queries.step % step == 0) && (keys.count == 1 || keys.step % step == 0);
  if (one_class) return (queries.first - keys.first) % step == 0 ? ALL : NONE;
  Range q = range_of(queries), k = range_of(keys);
  return floor_division(k.high - q.low, step) * step < k.low - q.high ? NONE : SOME;
}

// The residues of 64 positions from the span's first one on.
static inline void residues(const Span& span, int64_t step, int64_t* out) {
  int64_t residue = modulo(span.first, step), advance = span.step % step;
  for (int i = 0; i < WORD; i++) {
    out[i] = residue;
    residue += advance;
    residue -= residue >= step ? step : 0;
  }
}

static inline void allowed_strided(const Leaf& leaf, const Place& place, uint64_t* out) {
  int64_t step = leaf.number(0);
  const Span &lanes = place.lanes, &rows = place.rows;
  if (lanes.step == 1) {
    uint64_t every = 0;
    for (int64_t l = 0; l < WORD; l += step) every |= (uint64_t)1 << l;
    int64_t shift = modulo(rows.first - lanes.first, step), advance = rows.step % step;
    for (int64_t r = 0; r < rows.count; r++) {
      out[r] = shift < WORD ? every << shift : 0;
      shift += advance;
      shift -= shift >= step ? step : 0;
    }
    return;
  }
  int64_t lane_labels[WORD], row_labels[WORD];
  residues(lanes, step, lane_labels);
  residues(rows, step, row_labels);
  equal(lane_labels, row_labels, rows.count, out);
}

// --- tokens: k or q is one of them; arguments table (sorted positions), count.

// The number of tokens before a position.
static inline int64_t tokens_before(const Leaf& leaf, int64_t position) {
  const int64_t* sorted = leaf.table(0);
  int64_t from = 0, to = leaf.number(1);
  while (from < to) {
    int64_t middle = from + (to - from) / 2;
    if (sorted[middle] < position) from = middle + 1;
    else to = middle;
  }
  return from;
}

static inline Tile classify_tokens(const Leaf& leaf, Range q, Range k) {
  int64_t queries = tokens_before(leaf, q.high + 1) - tokens_before(leaf, q.low);
  int64_t keys = tokens_before(leaf, k.high + 1) - tokens_before(leaf, k.low);
  if (queries == q.high - q.low + 1 || keys == k.high - k.low + 1) return ALL;
  return queries || keys ? SOME : NONE;
}

static inline uint64_t token_bits(const Leaf& leaf, const Span& span) {
  const int64_t* sorted = leaf.table(0);
  int64_t end = tokens_before(leaf, range_of(span).high + 1);
  uint64_t bits = 0;
  for (int64_t i = tokens_before(leaf, span.first); i < end; i++) {
    int64_t away = sorted[i] - span.first;
    if (span.step == 1) bits |= (uint64_t)1 << away;
    else if (away % span.step == 0) bits |= (uint64_t)1 << away / span.step;
  }
  return bits;
}

static inline void allowed_tokens(const Leaf& leaf, const Place& place, uint64_t* out) {
  uint64_t lanes = token_bits(leaf, place.lanes), rows = token_bits(leaf, place.rows);
  for (int64_t r = 0; r < place.rows.count; r++) out[r] = rows >> r & 1 ? ~(uint64_t)0 : lanes;
}

// --- rectangle: q in [t0, t1) and k in [t2, t3); arguments table (batch rows, 4), batch rows. Prefix, padding.

static inline const int64_t* bounds_of(const Leaf& leaf, int64_t batch) {
  return leaf.table(0) + (leaf.number(1) == 1 ? 0 : 4 * batch);
}

static inline Tile classify_rectangle(const Leaf& leaf, int64_t batch, Range q, Range k) {
  const int64_t* bounds = bounds_of(leaf, batch);
  if (outside(q, bounds[0], bounds[1]) || outside(k, bounds[2], bounds[3])) return NONE;
  return inside(q, bounds[0], bounds[1]) && inside(k, bounds[2], bounds[3]) ? ALL : SOME;
}

static inline void allowed_rectangle(const Leaf& leaf, const Place& place, uint64_t* out) {
  const int64_t* bounds = bounds_of(leaf, place.batch);
  uint64_t queries = stretch(place.queries(), bounds[0], bounds[1]), keys = stretch(place.keys(), bounds[2], bounds[3]);
  uint64_t lanes = place.lanes_are_queries ? queries : keys, rows = place.lanes_are_queries ? keys : queries;
  for (int64_t r = 0; r < place.rows.count; r++) out[r] = rows >> r & 1 ? lanes : 0;
}

// --- documents: the same id; arguments table (batch rows, tokens), batch rows, tokens, then tables of the smallest and
// largest label of each block (batch rows, blocks), blocks, positions in a block: 1 where the labels are sorted.

static inline Range labels_of(const Leaf& leaf, int64_t batch, Range positions) {
  int64_t block = leaf.number(6), start = leaf.number(1) == 1 ? 0 : batch * leaf.number(5);
  const int64_t *lows = leaf.table(3) + start, *highs = leaf.table(4) + start;
  if (block == 1) return {lows[positions.low], highs[positions.high]};
  Range labels = {INT64_MAX, INT64_MIN};
  for (int64_t b = positions.low / block; b <= positions.high / block; b++) {
    labels.low = lows[b] < labels.low ? lows[b] : labels.low;
    labels.high = highs[b] > labels.high ? highs[b] : labels.high;
  }
  return labels;
}

static inline Tile classify_documents(const Leaf& leaf, int64_t batch, Range q, Range k) {
  int64_t tokens = leaf.number(2);
  if (outside(q, 0, tokens) || outside(k, 0, tokens)) return NONE;
  Range query = labels_of(leaf, batch, clipped(q, tokens)), key = labels_of(leaf, batch, clipped(k, tokens));
  if (query.high < key.low || key.high < query.low) return NONE;
  bool same = query.low == key.high && key.low == query.high;
  return same && inside(q, 0, tokens) && inside(k, 0, tokens) ? ALL : SOME;
}

static inline void allowed_documents(const Leaf& leaf, const Place& place, uint64_t* out) {
  int64_t tokens = leaf.number(2);
  const int64_t* ids = leaf.table(0) + (leaf.number(1) == 1 ? 0 : place.batch * tokens);
  int64_t labels[2][WORD];
  for (int side = 0; side < 2; side++) {
    const Span& span = side ? place.rows : place.lanes;
    int64_t none = NOWHERE + (place.lanes_are_queries == (side == 1));
    for (int64_t i = 0; i < span.count; i++) {
      int64_t position = span.first + i * span.step;
      labels[side][i] = position >= 0 && position < tokens ? ids[position] : none;
    }
  }
  for (int64_t l = place.lanes.count; l < WORD; l++) labels[0][l] = 0;
  equal(labels[0], labels[1], place.rows.count, out);
}

// --- random: k's block is drawn for q's; arguments table (query blocks, count), first query block, query blocks, count,
// positions in a block, stop of the keys. A draw below 0 is none.

// The draws of a block of queries; null where the table has none.
static inline const int64_t* draws_of(const Leaf& leaf, int64_t block) {
  int64_t at = block - leaf.number(1);
  return at >= 0 && at < leaf.number(2) ? leaf.table(0) + at * leaf.number(3) : nullptr;
}

static inline Tile classify_random(const Leaf& leaf, Range q, Range k) {
  int64_t size = leaf.number(4), first = floor_division(k.low, size), last = floor_division(k.high, size);
  bool some = false, every = k.high < leaf.number(5);
  for (int64_t block = floor_division(q.low, size); block <= floor_division(q.high, size); block++) {
    const int64_t* draws = draws_of(leaf, block);
    int64_t hits = 0;
    for (int64_t i = 0; draws && i < leaf.number(3); i++) hits += first <= draws[i] && draws[i] <= last;
    some = some || hits;
    every = every && hits == last - first + 1;
    if (some && !every) return SOME;
  }
  return every ? ALL : NONE;
}

// One word for each query, one bit for each key.
static inline void random_keys(const Leaf& leaf, const Place& place, uint64_t* out) {
  const Span &queries = place.queries(), &keys = place.keys();
  int64_t size = leaf.number(4), before = INT64_MIN;
  uint64_t existing = below(index_from(keys, leaf.number(5))), bits = 0;
  for (int64_t i = 0; i < queries.count; i++) {
    int64_t block = floor_division(queries.first + i * queries.step, size);
    if (block != before) {
      const int64_t* draws = draws_of(leaf, block);
      bits = 0;
      for (int64_t d = 0; draws && d < leaf.number(3); d++)
        if (draws[d] >= 0) bits |= stretch(keys, draws[d] * size, (draws[d] + 1) * size);
      before = block;
    }
    out[i] = bits & existing;
  }
}

// --- dense: a bit is set; arguments table (batch rows, heads, queries + 1, 64-bit words) of bits, most significant
// first in each byte, then its batch rows, heads, queries, words, its keys and the position of its first query; last
// tables of sums over the 64 × 64 cells that are NONE and ALL (cells + 1 down, cells + 1 across), and the latter.

static inline int64_t cells_in(const Leaf& leaf, int table, Range rows, Range columns) {
  const int64_t *sums = leaf.table(table), across = leaf.number(9);
  int64_t top = rows.low / WORD * across, bottom = (rows.high / WORD + 1) * across;
  int64_t left = columns.low / WORD, right = columns.high / WORD + 1;
  return sums[bottom + right] - sums[top + right] - sums[bottom + left] + sums[top + left];
}

static inline Tile classify_dense(const Leaf& leaf, Range q, Range k) {
  int64_t queries = leaf.number(3), keys = leaf.number(5);
  q = {q.low - leaf.number(6), q.high - leaf.number(6)};
  if (outside(q, 0, queries) || outside(k, 0, keys)) return NONE;
  Range rows = clipped(q, queries), columns = clipped(k, keys);
  int64_t cells = (rows.high / WORD - rows.low / WORD + 1) * (columns.high / WORD - columns.low / WORD + 1);
  if (cells_in(leaf, 7, rows, columns) == cells) return NONE;
  return inside(q, 0, queries) && inside(k, 0, keys) && cells_in(leaf, 8, rows, columns) == cells ? ALL : SOME;
}

// 64 keys from key 64 · `at` of a row of bits, the first one lowest.
static inline uint64_t dense_word(const uint8_t* row, int64_t words, int64_t at) {
  static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "bytes are read as a word, the first one lowest");
  if (at < 0 || at >= words) return 0;
  uint64_t word;
  __builtin_memcpy(&word, row + 8 * at, 8);
  word = (word >> 4 & 0x0f0f0f0f0f0f0f0f) | (word & 0x0f0f0f0f0f0f0f0f) << 4;
  word = (word >> 2 & 0x3333333333333333) | (word & 0x3333333333333333) << 2;
  return (word >> 1 & 0x5555555555555555) | (word & 0x5555555555555555) << 1;
}

// One word for each query, one bit for each key.
static inline void dense_keys(const Leaf& leaf, const Place& place, uint64_t* out) {
  const Span &queries = place.queries(), &keys = place.keys();
  int64_t rows = leaf.number(3), words = leaf.number(4);
  int64_t batch = leaf.number(1) == 1 ? 0 : place.batch, head = leaf.number(2) == 1 ? 0 : place.head;
  const uint8_t* bits = (const uint8_t*)leaf.table(0) + (batch * leaf.number(2) + head) * (rows + 1) * words * 8;
  for (int64_t i = 0; i < queries.count; i++) {
    int64_t row = queries.first + i * queries.step - leaf.number(6);
    const uint8_t* from = bits + row * words * 8;
    out[i] = 0;
    if (row < 0 || row >= rows) continue;
    if (keys.step == 1) {
      int64_t at = floor_division(keys.first, WORD), shift = modulo(keys.first, WORD);
      out[i] = dense_word(from, words, at) >> shift;
      if (shift) out[i] |= dense_word(from, words, at + 1) << (WORD - shift);
      continue;
    }
    for (int64_t j = 0; j < keys.count; j++) {
      int64_t key = keys.first + j * keys.step;
      bool known = key >= 0 && key < leaf.number(5);
      out[i] |= (uint64_t)(known && from[key / 8] >> (7 - key % 8) & 1) << j;
    }
  }
}

}  // namespace mask_program

}  // namespace REGARD_ISA
