// A build proves itself: small calls in every type, with many queries and with few, against plain arithmetic in double
// precision. Compiled for any processor of the family, and without anything of the C++ library, as dispatch.cpp is.
#include <math.h>
#include <stdlib.h>

#include "kernels.h"

namespace {

// Keys: two tiles and a rest. Dimensions: whole tiles of AMX, and a rest.
constexpr int64_t HEADS = 2, MANY = 61, FEW_QUERIES = 2, KEYS = 133, DIM = 32, VALUE_DIM = 35;
constexpr int64_t ROWS = HEADS * MANY;
constexpr int64_t BAND = 3, FAR = (int64_t)1 << 62;  // of native/mask.h
constexpr double EXACT = 1e-4, ROUNDED = 1e-2;       // of float32, and of weights that were rounded to bfloat16
enum { RIGHT = 0, NO_MEMORY = 1, WRONG = 3 };

// A tensor of numbers that all three types hold exactly: sixteenths from −2 to 2, the same on every machine.
template <int64_t COUNT>
struct Numbers {
  float plain[COUNT];
  uint16_t half[COUNT];

  void draw(uint64_t* state, int64_t type) {
    for (int64_t i = 0; i < COUNT; i++) {
      *state = *state * 6364136223846793005u + 1442695040888963407u;  // Knuth's
      plain[i] = (float)((int64_t)(*state >> 33) % 65 - 32) / 16;
      uint32_t bits = __builtin_bit_cast(uint32_t, plain[i]);
      uint32_t float16 = (bits >> 16 & 0x8000) | (plain[i] == 0 ? 0 : (bits >> 13 & 0x3ffff) - (112 << 10));
      half[i] = (uint16_t)(type == REGARD_FLOAT16 ? float16 : bits >> 16);
    }
  }
  void* data(int64_t type) { return type == REGARD_FLOAT32 ? (void*)plain : (void*)half; }
};

// One call, what it gives, and what it should; all of it lies in one allocation.
struct Proof {
  int64_t queries, type;
  RegardCall call;
  RegardMask mask;
  int64_t code[4];
  Numbers<ROWS * DIM> query;
  Numbers<KEYS * DIM> key;
  Numbers<KEYS * VALUE_DIM> value;
  double weights[ROWS * KEYS], lse[ROWS];
  // the state
  double m[ROWS], l[ROWS], u[ROWS], r[ROWS], c[ROWS];
  float o[ROWS * VALUE_DIM];
  int64_t count[ROWS];
  double least[ROWS];
  // the second fold, and the gradients for `grads` on the sums of the output
  float received[HEADS * KEYS], received_max[HEADS * KEYS], by_offset[HEADS * (ROWS / HEADS + KEYS)], weighted[HEADS * KEYS];
  float given[ROWS];
  float grads[ROWS * VALUE_DIM], d_query[ROWS * DIM], d_key[KEYS * DIM], d_value[KEYS * VALUE_DIM];
  double want_query[ROWS * DIM], want_key[KEYS * DIM], want_value[KEYS * VALUE_DIM];

  int64_t rows() const { return HEADS * queries; }
  int64_t allowed(int64_t row) const { return KEYS - queries + row % queries + 1; }  // causal

  void draw(int64_t queries_, int64_t type_, int64_t halves) {
    queries = queries_, type = type_;
    uint64_t state = (uint64_t)(7 * queries + type);
    query.draw(&state, type), key.draw(&state, type), value.draw(&state, type);
    for (float& grad : grads) grad = value.plain[(&grad - grads) % (KEYS * VALUE_DIM)];
    code[0] = BAND, code[1] = 4, code[2] = -FAR, code[3] = 0;
    mask = {code, nullptr, 1};
    call.batch = 1, call.heads = HEADS, call.kv_heads = 1, call.queries = queries, call.keys = KEYS;
    call.dim = DIM, call.value_dim = VALUE_DIM, call.offset = KEYS - queries;
    call.type = type, call.threads = 2, call.halves = halves, call.scale = 0.125;
    call.query = {query.data(type), 0, queries * DIM, DIM};
    call.key = {key.data(type), 0, 0, DIM};
    call.value = {value.data(type), 0, 0, VALUE_DIM};
    call.masks = 1, call.mask = &mask;
  }

  void compute_weights() {
    for (int64_t i = 0; i < rows(); i++) {
      double* w = weights + i * KEYS;
      double most = -HUGE_VAL, total = 0;
      for (int64_t k = 0; k < allowed(i); k++) {
        w[k] = 0;
        for (int64_t d = 0; d < DIM; d++) w[k] += (double)query.plain[i * DIM + d] * key.plain[k * DIM + d];
        w[k] *= call.scale;
        most = w[k] > most ? w[k] : most;
      }
      for (int64_t k = 0; k < allowed(i); k++) total += w[k] = exp(w[k] - most);
      for (int64_t k = 0; k < KEYS; k++) w[k] = k < allowed(i) ? w[k] / total : 0;
      lse[i] = most + log(total);
    }
  }

  // Of Σ grads · o, where o is the sum over keys of e^(score − m) · value with m held fixed.
  void compute_gradients() {
    for (int64_t i = 0; i < rows(); i++)
      for (int64_t k = 0; k < allowed(i); k++) {
        double p = weights[i * KEYS + k] * exp(lse[i] - m[i]), grad = 0;
        for (int64_t d = 0; d < VALUE_DIM; d++) {
          grad += p * grads[i * VALUE_DIM + d] * value.plain[k * VALUE_DIM + d];
          want_value[k * VALUE_DIM + d] += p * grads[i * VALUE_DIM + d];
        }
        for (int64_t d = 0; d < DIM; d++) {
          want_query[i * DIM + d] += grad * call.scale * key.plain[k * DIM + d];
          want_key[k * DIM + d] += grad * call.scale * query.plain[i * DIM + d];
        }
      }
  }
};

// NaN is far from everything.
bool near(double got, double wanted, double bound) { return fabs(got - wanted) <= bound * (1 + fabs(wanted)); }

bool near_all(const float* got, const double* wanted, int64_t count) {
  double size = 1;
  for (int64_t i = 0; i < count; i++) size = fabs(wanted[i]) > size ? fabs(wanted[i]) : size;
  for (int64_t i = 0; i < count; i++)
    if (!(fabs(got[i] - wanted[i]) <= EXACT * size)) return false;
  return true;
}

int prove_rows(const RegardKernels& kernels, const RegardWant& want, Proof& proof) {
  RegardState state = {proof.m, proof.l, proof.u, proof.r, proof.c, proof.o, proof.count, proof.least, nullptr, nullptr};
  if (kernels.rows(&proof.call, &want, &state)) return NO_MEMORY;
  double rounding = proof.call.halves && proof.type == REGARD_BFLOAT16 ? ROUNDED : EXACT;
  for (int64_t i = 0; i < proof.rows(); i++) {
    double entropy = 0, squares = 0, distance = 0, least = 1, l = proof.l[i];
    const double* w = proof.weights + i * KEYS;
    for (int64_t k = 0; k < proof.allowed(i); k++) {
      entropy -= w[k] > 0 ? w[k] * log(w[k]) : 0;
      squares += w[k] * w[k];
      least = w[k] < least ? w[k] : least;
      distance += w[k] * (double)(proof.allowed(i) - 1 - k);
    }
    bool good = proof.count[i] == proof.allowed(i) && near(proof.m[i] + log(l), proof.lse[i], EXACT) &&
                near(log(l) - proof.u[i] / l, entropy, EXACT) && near(proof.r[i] / (l * l), squares, EXACT) &&
                near(proof.c[i] / l, distance, EXACT) && near(proof.least[i], log(least) + proof.lse[i], EXACT);
    for (int64_t d = 0; d < VALUE_DIM && good; d++) {
      double output = 0;
      for (int64_t k = 0; k < KEYS; k++) output += w[k] * proof.value.plain[k * VALUE_DIM + d];
      good = near(proof.o[i * VALUE_DIM + d] / l, output, rounding);
    }
    if (!good) return WRONG;
  }
  return RIGHT;
}

int prove_columns(const RegardKernels& kernels, Proof& proof) {
  double log_l[ROWS];
  for (int64_t row = 0; row < proof.rows(); row++) log_l[row] = proof.lse[row] - proof.m[row];
  RegardColumns columns = {};
  columns.m = proof.m, columns.log_l = log_l;
  columns.received = proof.received, columns.received_max = proof.received_max;
  columns.by_offset = proof.by_offset, columns.weighted = proof.weighted;
  columns.vectors = 1, columns.given = proof.given;
  for (int64_t row = 0; row < proof.rows(); row++) proof.given[row] = (float)(row % 5) - 2;
  if (kernels.columns(&proof.call, &columns)) return NO_MEMORY;
  for (int64_t at = 0; at < HEADS * KEYS; at++) {
    double total = 0, most = 0, weighted = 0;
    for (int64_t q = 0; q < proof.queries; q++) {
      int64_t row = at / KEYS * proof.queries + q;
      double w = proof.weights[row * KEYS + at % KEYS];
      total += w;
      weighted += w * proof.given[row];
      most = w > most ? w : most;
    }
    if (!near(proof.received[at], total, EXACT) || !near(proof.received_max[at], most, EXACT)) return WRONG;
    if (!near(proof.weighted[at], weighted, EXACT)) return WRONG;
  }
  int64_t diagonals = proof.queries + KEYS - 1;
  for (int64_t at = 0; at < HEADS * diagonals; at++) {
    double total = 0;
    for (int64_t q = 0; q < proof.queries; q++) {
      int64_t k = q + KEYS - 1 - at % diagonals;
      if (k >= 0 && k < KEYS) total += proof.weights[(at / diagonals * proof.queries + q) * KEYS + k];
    }
    if (!near(proof.by_offset[at], total, EXACT)) return WRONG;
  }
  return RIGHT;
}

int prove_gradients(const RegardKernels& kernels, const RegardWant& want, Proof& proof) {
  RegardGradient gradient = {};
  gradient.m = proof.m, gradient.o = proof.grads;
  gradient.query = proof.d_query, gradient.key = proof.d_key, gradient.value = proof.d_value;
  if (kernels.gradients(&proof.call, &want, &gradient)) return NO_MEMORY;
  proof.compute_gradients();
  bool good = near_all(proof.d_query, proof.want_query, proof.rows() * DIM) &&
              near_all(proof.d_key, proof.want_key, KEYS * DIM) &&
              near_all(proof.d_value, proof.want_value, KEYS * VALUE_DIM);
  return good ? RIGHT : WRONG;
}

int prove_call(const RegardKernels& kernels, int64_t queries, int64_t type, int64_t halves) {
  Proof* proof = (Proof*)calloc(1, sizeof(Proof));
  if (!proof) return NO_MEMORY;
  proof->draw(queries, type, halves);
  proof->compute_weights();
  RegardWant want = {};
  want.output = want.entropy = want.squares = want.count = want.least = want.columns = 1;
  want.position = want.square = want.first = -1;  // distance is the column at place 0
  int answer = prove_rows(kernels, want, *proof);
  if (!answer) answer = prove_columns(kernels, *proof);
  if (!answer) answer = prove_gradients(kernels, want, *proof);
  free(proof);
  return answer;
}

}  // namespace

int regard_proof(const RegardKernels& kernels, int64_t halves) {
  int answer = RIGHT;
  for (int64_t type = REGARD_FLOAT32; type <= REGARD_FLOAT16 && !answer; type++) {
    answer = prove_call(kernels, MANY, type, halves);
    if (!answer) answer = prove_call(kernels, FEW_QUERIES, type, halves);
  }
  return answer;
}
