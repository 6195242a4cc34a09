// How the rows of a panel reach memory: written, or merged with what is there.
#pragma once
#include "fold.h"

namespace REGARD_ISA {

constexpr int64_t MOST_COLUMNS = 64;  // linear columns, groups included
constexpr int64_t MOST_TOP = 1024;    // largest scores

// Where the rows of a panel lie in the arrays of a state.
struct Places {
  int64_t first, step;
  int64_t operator()(int64_t x) const { return first + x * step; }
};

// The state of a panel's rows in natural units.
struct Finished {
  const Panel& panel;
  const RegardWant& want;
  double unit;             // of a score
  int64_t residue, step;   // keys of the panel's class
  double m(int64_t x) const { return panel.l[x] != panel.l[x] ? __builtin_nan("") : panel.m[x] * unit; }
  double l(int64_t x) const { return panel.l[x]; }
  double u(int64_t x) const { return panel.u[x] * LN2_EXACT; }
  double r(int64_t x) const { return panel.r[x]; }
  double c(int64_t x, int64_t i) const { return panel.c[i * PANEL + x]; }
  int64_t count(int64_t x) const { return panel.count[x]; }
  double least(int64_t x) const { return panel.least[x] * unit; }
  double best(int64_t x, int64_t i) const { return (want.top == 1 ? panel.best[x] : panel.top_scores[x * want.top + i]) * unit; }
  int64_t best_key(int64_t x, int64_t i) const {
    if (want.top != 1) return panel.top_keys[x * want.top + i];
    return panel.best[x] == -INF ? NO_KEY : residue + step * panel.best_row[x];
  }
};

// Number i of row x of an array becomes value(x, i).
template <class T, class Value>
static inline void put(T* array, Places at, int64_t rows, int64_t width, Value value) {
  for (int64_t i = 0; array && i < width; i++)
    for (int64_t x = 0; x < rows; x++) array[at(x) * width + i] = value(x, i);
}

// Writes every row, one array after the other.
static inline void write_rows(const Finished& from, const RegardState& to, Places at) {
  int64_t rows = from.panel.queries.count;
  put(to.m, at, rows, 1, [&](int64_t x, int64_t) { return from.m(x); });
  put(to.l, at, rows, 1, [&](int64_t x, int64_t) { return from.l(x); });
  put(to.u, at, rows, 1, [&](int64_t x, int64_t) { return from.u(x); });
  put(to.r, at, rows, 1, [&](int64_t x, int64_t) { return from.r(x); });
  put(to.c, at, rows, from.want.columns, [&](int64_t x, int64_t i) { return from.c(x, i); });
  put(to.count, at, rows, 1, [&](int64_t x, int64_t) { return from.count(x); });
  put(to.least, at, rows, 1, [&](int64_t x, int64_t) { return from.least(x); });
  put(to.top_scores, at, rows, from.want.top, [&](int64_t x, int64_t i) { return from.best(x, i); });
  put(to.top_keys, at, rows, from.want.top, [&](int64_t x, int64_t i) { return from.best_key(x, i); });
}

// Adds every row to what is there, and gets the factors of both outputs.
static inline void merge_rows(const Finished& from, const RegardState& to, Places at, int64_t value_dim, float* old_factor,
                              float* new_factor) {
  const RegardWant& want = from.want;
  double c[MOST_COLUMNS], best[MOST_TOP];
  int64_t keys[MOST_TOP];
  for (int64_t x = 0; x < from.panel.queries.count; x++) {
    double m = from.m(x), l = from.l(x), u = from.u(x), r = from.r(x), least = from.least(x);
    int64_t count = from.count(x);
    for (int64_t i = 0; i < want.columns; i++) c[i] = from.c(x, i);
    for (int64_t i = 0; i < want.top; i++) { best[i] = from.best(x, i); keys[i] = from.best_key(x, i); }
    Row row = row_of(to, at(x), want.columns, value_dim, want.top);
    merge(row, {&m, &l, &u, &r, c, nullptr, &count, &least, best, keys}, want.columns, want.top, &old_factor[x], &new_factor[x]);
  }
}

}  // namespace REGARD_ISA
