// The table of functions that each build of the folds offers.
#pragma once
#include "abi.h"

struct RegardKernels {
  int (*rows)(const RegardCall*, const RegardWant*, const RegardState*);
  int (*columns)(const RegardCall*, const RegardColumns*);
  int (*gradients)(const RegardCall*, const RegardWant*, const RegardGradient*);
};

// Calls the functions of a build on small cases and compares with plain arithmetic: 0, 1 where memory ran out, 3 where a
// number is wrong.
int regard_proof(const RegardKernels& kernels, int64_t halves);
