// Mask programs: what a mask of the algebra allows on a tile, read from flat integers.
// Knows the operators and asks the leaves; nothing of scores. engines/native/mask_program.py writes the programs.
#pragma once
#include "mask_leaves.h"

namespace REGARD_ISA {

// A program and the tensors that it names by number; without code everything is allowed.
struct Mask {
  const int64_t* code;
  const void* const* tables;
};

namespace mask_program {

// A node is: kind, number of its words, then its arguments or the nodes below it.
enum Kind { AND, OR, NOT, BAND, STRIDED, TOKENS, RECTANGLE, DOCUMENTS, RANDOM, DENSE };

static inline Tile classify_node(const int64_t* node, const void* const* tables, int64_t batch, const Span& queries,
                                 const Span& keys) {
  Leaf leaf = {node + 2, tables};
  Range q = range_of(queries), k = range_of(keys);
  switch (node[0]) {
    case BAND: return classify_band(leaf, q, k);
    case STRIDED: return classify_strided(leaf, queries, keys);
    case TOKENS: return classify_tokens(leaf, q, k);
    case RECTANGLE: return classify_rectangle(leaf, batch, q, k);
    case DOCUMENTS: return classify_documents(leaf, batch, q, k);
    case RANDOM: return classify_random(leaf, q, k);
    case DENSE: return classify_dense(leaf, q, k);
  }
  if (node[0] == NOT) return (Tile)(ALL - classify_node(node + 2, tables, batch, queries, keys));
  Tile neutral = node[0] == AND ? ALL : NONE, answer = neutral;
  for (const int64_t* child = node + 2; child != node + node[1]; child += child[1]) {
    Tile tile = classify_node(child, tables, batch, queries, keys);
    if (tile == ALL - neutral) return tile;
    if (tile == SOME) answer = SOME;
  }
  return answer;
}

static inline void allowed_node(const int64_t* node, const void* const* tables, const Place& place, uint64_t* out);

// AND and OR: a node that decides the tile, or that cannot change it, is not evaluated pair by pair.
static inline void allowed_join(const int64_t* node, const void* const* tables, const Place& place, uint64_t* out) {
  Tile neutral = node[0] == AND ? ALL : NONE;
  uint64_t flip = neutral == ALL ? 0 : ~(uint64_t)0;  // a | b is ~(~a & ~b)
  for (int64_t r = 0; r < place.rows.count; r++) out[r] = ~flip;
  for (const int64_t* child = node + 2; child != node + node[1]; child += child[1]) {
    Tile tile = classify_node(child, tables, place.batch, place.queries(), place.keys());
    if (tile == neutral) continue;
    uint64_t part[WORD], open = 0;  // the pairs that a later node can still change
    if (tile == SOME) allowed_node(child, tables, place, part);
    for (int64_t r = 0; r < place.rows.count; r++) {
      uint64_t undecided = tile == SOME ? (out[r] ^ flip) & (part[r] ^ flip) : 0;
      out[r] = undecided ^ flip;
      open |= undecided & below(place.lanes.count);
    }
    if (!open) return;
  }
}

// Leaves whose keys are found query by query, transposed where the lanes are queries.
static inline void allowed_by_query(const int64_t* node, const void* const* tables, const Place& place, uint64_t* out) {
  uint64_t words[WORD] = {};
  Leaf leaf = {node + 2, tables};
  if (node[0] == RANDOM) random_keys(leaf, place, words);
  else dense_keys(leaf, place, words);
  if (place.lanes_are_queries) transpose(words);
  for (int64_t r = 0; r < place.rows.count; r++) out[r] = words[r];
}

// Bits past the last lane may be anything.
static inline void allowed_node(const int64_t* node, const void* const* tables, const Place& place, uint64_t* out) {
  Leaf leaf = {node + 2, tables};
  switch (node[0]) {
    case BAND: return allowed_band(leaf, place, out);
    case STRIDED: return allowed_strided(leaf, place, out);
    case TOKENS: return allowed_tokens(leaf, place, out);
    case RECTANGLE: return allowed_rectangle(leaf, place, out);
    case DOCUMENTS: return allowed_documents(leaf, place, out);
    case RANDOM: case DENSE: return allowed_by_query(node, tables, place, out);
    case AND: case OR: return allowed_join(node, tables, place, out);
  }
  allowed_node(node + 2, tables, place, out);
  for (int64_t r = 0; r < place.rows.count; r++) out[r] = ~out[r];
}

}  // namespace mask_program

// What holds for these queries and keys, in one batch row and all heads.
static inline Tile classify(const Mask& mask, int64_t batch, int64_t head, const Span& queries, const Span& keys) {
  (void)head;  // only dense bits differ by head, and their table of cells speaks of all of them
  return mask.code ? mask_program::classify_node(mask.code, mask.tables, batch, queries, keys) : ALL;
}

// One word for each position of `rows`: bit l says whether its pair with position l of `lanes` is allowed. Lanes are
// queries and rows keys, or the other way round; at most 64 of either. Bits past the last lane are 0.
static inline void allowed(const Mask& mask, int64_t batch, int64_t head, const Span& lanes, const Span& rows,
                           bool lanes_are_queries, uint64_t* out) {
  mask_program::Place place = {batch, head, lanes, rows, lanes_are_queries};
  for (int64_t r = 0; r < rows.count; r++) out[r] = ~(uint64_t)0;
  if (mask.code) mask_program::allowed_node(mask.code, mask.tables, place, out);
  for (int64_t r = 0; r < rows.count; r++) out[r] &= mask_program::below(lanes.count);
}

}  // namespace REGARD_ISA
