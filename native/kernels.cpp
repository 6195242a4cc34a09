// One build of the folds. CMake compiles this file once for each instruction set, with REGARD_ISA naming it.
#include "kernels.h"

#include "columns_plan.h"
#include "plan.h"
#include "vjp.h"

#define REGARD_JOIN_(a, b) a##b
#define REGARD_JOIN(a, b) REGARD_JOIN_(a, b)

extern "C" const RegardKernels REGARD_JOIN(regard_kernels_, REGARD_ISA) = {
    [](const RegardCall* call, const RegardWant* want, const RegardState* state) {
      return REGARD_ISA::all_rows(*call, *want, *state);
    },
    [](const RegardCall* call, const RegardColumns* columns) { return REGARD_ISA::all_columns(*call, *columns); },
    [](const RegardCall* call, const RegardWant* want, const RegardGradient* gradient) {
      return REGARD_ISA::all_gradients(*call, *want, *gradient);
    },
};
