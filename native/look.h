// Both folds and the reading of the rows in one call.
#pragma once
#include "kernels.h"

// Rows, what is read of them into `look`, then the second fold where `columns` wants something of it: it is given the
// state's m and the ln l that is read. The state's o becomes the output. Returns 0, or 1 where memory ran out.
int regard_look_with(const RegardKernels& kernels, const RegardCall* call, const RegardWant* want, const RegardState* state,
                  const RegardColumns* columns, const RegardLook* look);
