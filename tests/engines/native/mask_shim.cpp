// Lets the tests ask mask programs tile by tile. A span is given as its first position, step and count.
#define REGARD_ISA regard_test
#include "mask.h"

using namespace regard_test;

static Span span_of(const int64_t* numbers) { return {numbers[0], numbers[1], numbers[2]}; }

extern "C" int classify_tile(const int64_t* code, const void* const* tables, int64_t batch, int64_t head,
                             const int64_t* queries, const int64_t* keys) {
  return classify({code, tables}, batch, head, span_of(queries), span_of(keys));
}

extern "C" void allowed_pairs(const int64_t* code, const void* const* tables, int64_t batch, int64_t head,
                              const int64_t* lanes, const int64_t* rows, int lanes_are_queries, uint64_t* out) {
  allowed({code, tables}, batch, head, span_of(lanes), span_of(rows), lanes_are_queries != 0, out);
}
