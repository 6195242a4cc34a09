// The table of functions that each build of the folds offers.
#pragma once
#include "abi.h"

struct RegardKernels {
  int (*rows)(const RegardCall*, const RegardWant*, const RegardState*);
  int (*columns)(const RegardCall*, const RegardColumns*);
  int (*gradients)(const RegardCall*, const RegardWant*, const RegardGradient*);
};
