// Small cases of attention, drawn at random, and their definition in double precision. Knows nothing of the folds.
// Every array is as long as it must be and no longer, so that a sanitizer sees the first element beyond it.
#pragma once
#include <math.h>
#include <stdint.h>
#include <string.h>

#include <vector>

#include "abi.h"

template <class T>
using Array = std::vector<T>;

constexpr double INFINITE = HUGE_VAL;

// xorshift64* (Vigna 2016): the same cases on every machine.
struct Random {
  uint64_t state;
  uint64_t next() {
    state ^= state >> 12, state ^= state << 25, state ^= state >> 27;
    return state * 0x2545f4914f6cdd1dull;
  }
  int64_t below(int64_t bound) { return (int64_t)((next() >> 33) % (uint64_t)bound); }
  template <int COUNT>
  int64_t one_of(const int64_t (&choices)[COUNT]) { return choices[below(COUNT)]; }
  float number() { return (float)(below(65) - 32) / 16; }  // a float16 and a bfloat16 hold it exactly
};

// A tensor (batch, heads, tokens, width) of one of the three types, with room between its rows.
struct Tensor {
  RegardView view;
  Array<float> plain;
  Array<uint16_t> half;

  Tensor(Random& random, int64_t type, int64_t batch, int64_t heads, int64_t tokens, int64_t width) {
    int64_t row = width + random.below(4), head = tokens * row + random.below(4);
    bool turned = random.below(2);  // heads beside each other within a token, as a linear layer leaves them
    if (turned) head = width, row = heads * width;
    view = {nullptr, turned ? tokens * row : heads * head, head, row};
    int64_t size = (batch - 1) * view.batch + (heads - 1) * head + (tokens - 1) * row + width;
    for (int64_t i = 0; i < size; i++) plain.push_back(random.number());
    if (type != REGARD_FLOAT32)
      for (float x : plain) half.push_back(type == REGARD_BFLOAT16 ? (uint16_t)(bits(x) >> 16) : float16(x));
    view.data = type == REGARD_FLOAT32 ? (void*)plain.data() : (void*)half.data();
  }
  double at(int64_t batch, int64_t head, int64_t token, int64_t d) const {
    return plain[batch * view.batch + head * view.head + token * view.row + d];
  }
  static uint32_t bits(float x) {
    uint32_t word;
    memcpy(&word, &x, 4);
    return word;
  }
  static uint16_t float16(float x) {
    uint32_t word = bits(x);
    return (uint16_t)((word >> 16 & 0x8000) | (x == 0 ? 0 : ((word >> 13 & 0x3ffff) - (112 << 10))));
  }
};

enum { NO_MASK, CAUSAL, WINDOW, STRIDES, MASKS };  // what the call's mask is
enum { AND, OR, NOT, BAND, STRIDED };              // kinds of nodes, as in native/mask.h
constexpr int64_t FAR = (int64_t)1 << 62, STEP = 3, REACH = 5;

// A call, the memory it points to, and what it means.
struct Case {
  RegardCall call = {};
  int64_t mask_kind;
  bool broken;  // some values are infinite
  Array<int64_t> code, other_code;
  Array<RegardMask> parts;
  Array<float> bias;
  Array<Tensor> tensors;

  explicit Case(Random& random) {
    call.batch = random.one_of({1, 2}), call.kv_heads = random.one_of({1, 2, 3});
    call.heads = call.kv_heads * random.one_of({1, 2});
    call.queries = random.one_of({1, 2, 5, 23, 47, 48, 49, 101, 199});
    call.keys = random.one_of({1, 3, 41, 63, 64, 65, 131, 2053});
    call.dim = random.one_of({1, 3, 8, 17, 31, 64}), call.value_dim = random.one_of({1, 5, 16, 19, 33, 64});
    call.offset = random.one_of({call.keys - call.queries, 0, -3, 7});
    call.type = random.below(3), call.threads = 1 + random.below(3);
    call.scale = 0.25, call.softcap = random.one_of({0, 0, 3});
    tensors.emplace_back(random, call.type, call.batch, call.heads, call.queries, call.dim);
    tensors.emplace_back(random, call.type, call.batch, call.kv_heads, call.keys, call.dim);
    tensors.emplace_back(random, call.type, call.batch, call.kv_heads, call.keys, call.value_dim);
    call.query = tensors[0].view, call.key = tensors[1].view, call.value = tensors[2].view;
    broken = random.below(4) == 0;
    if (broken) break_value(random.below(call.keys));
    mask_kind = random.below(MASKS);
    draw_mask();
    draw_bias(random);
  }

  // One infinite value in every head, which may reach only those who may attend its key.
  void break_value(int64_t key) {
    Tensor& value = tensors[2];
    for (int64_t row = 0; row < call.batch * call.kv_heads; row++) {
      int64_t at = row / call.kv_heads * value.view.batch + row % call.kv_heads * value.view.head + key * value.view.row;
      value.plain[at] = HUGE_VALF;
      if (call.type != REGARD_FLOAT32) value.half[at] = call.type == REGARD_BFLOAT16 ? 0x7f80 : 0x7c00;
    }
  }

  void draw_mask() {
    if (mask_kind == CAUSAL) code = {BAND, 4, -FAR, 0};
    if (mask_kind == WINDOW) code = {AND, 11, BAND, 4, -13, 2, NOT, 5, STRIDED, 3, 7};
    if (mask_kind == STRIDES) code = {}, other_code = {AND, 11, BAND, 4, -FAR, 0, NOT, 5, STRIDED, 3, STEP};
    if (mask_kind == STRIDES) parts = {{nullptr, nullptr, STEP}, {other_code.data(), nullptr, 1}};
    else parts = {{code.empty() ? nullptr : code.data(), nullptr, 1}};
    call.masks = (int64_t)parts.size(), call.mask = parts.data();
  }

  void draw_bias(Random& random) {
    call.bias_kind = random.below(4);
    int64_t size = call.bias_kind == REGARD_ALIBI ? call.heads : call.heads * (2 * REACH + 1);
    if (call.bias_kind == REGARD_DENSE) {
      call.bias_stride[3] = 1, call.bias_stride[2] = random.below(2) ? call.keys : 0;
      call.bias_stride[1] = random.below(2) ? call.keys * (call.bias_stride[2] ? call.queries : 1) : 0;
      size = 1 + (call.heads - 1) * call.bias_stride[1] + (call.queries - 1) * call.bias_stride[2] + call.keys - 1;
      call.bias_blocks = random.below(2);
    } else if (call.bias_kind == REGARD_RELATIVE) {
      call.bias_reach = REACH, call.bias_stride[1] = 2 * REACH + 1;
    }
    if (call.bias_kind == REGARD_NO_BIAS) return;
    for (int64_t i = 0; i < size; i++) bias.push_back(call.bias_kind == REGARD_ALIBI ? 0.125f : random.number());
    if (call.bias_blocks)
      for (float& x : bias) x = random.below(5) ? x : -HUGE_VALF;
    call.bias = bias.data();
  }

  bool allows(int64_t query, int64_t key) const {
    int64_t away = key - call.offset - query;
    switch (mask_kind) {
      case CAUSAL: return away <= 0;
      case WINDOW: return -13 <= away && away <= 2 && away % 7 != 0;
      case STRIDES: return away <= 0 || away % STEP == 0;
    }
    return true;
  }

  // scale · q·k
  double product(int64_t batch, int64_t head, int64_t query, int64_t key) const {
    int64_t kv_head = head / (call.heads / call.kv_heads);
    double total = 0;
    for (int64_t d = 0; d < call.dim; d++)
      total += tensors[0].at(batch, head, query, d) * tensors[1].at(batch, kv_head, key, d);
    return total * call.scale;
  }

  // The derivative of what the softcap makes of the product: 1 − tanh².
  double softcap_grad(int64_t batch, int64_t head, int64_t query, int64_t key) const {
    if (call.softcap == 0) return 1;
    double bent = tanh(product(batch, head, query, key) / call.softcap);
    return 1 - bent * bent;
  }

  // −inf where the pair is blocked.
  double score(int64_t batch, int64_t head, int64_t query, int64_t key) const {
    if (!allows(query, key)) return -INFINITE;
    double total = product(batch, head, query, key);
    if (call.softcap != 0) total = call.softcap * tanh(total / call.softcap);
    return bias.empty() ? total : total + bias[bias_at(head, query, key)] * bias_factor(query, key);
  }

  // Which number of the bias a pair gets, and what it is multiplied with.
  int64_t bias_at(int64_t head, int64_t query, int64_t key) const {
    int64_t away = key - call.offset - query, held = away < -REACH ? -REACH : away > REACH ? REACH : away;
    if (call.bias_kind == REGARD_ALIBI) return head;
    if (call.bias_kind == REGARD_RELATIVE) return head * (2 * REACH + 1) + held + REACH;
    return head * call.bias_stride[1] + query * call.bias_stride[2] + key;
  }
  double bias_factor(int64_t query, int64_t key) const {
    return call.bias_kind == REGARD_ALIBI ? -fabs((double)(key - call.offset - query)) : 1;
  }

  double value(int64_t batch, int64_t head, int64_t key, int64_t d) const {
    return tensors[2].at(batch, head / (call.heads / call.kv_heads), key, d);
  }
};
