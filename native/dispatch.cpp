// The door of the library: picks the build for this processor and passes calls on.
#include "kernels.h"

#if defined(__x86_64__) && defined(__linux__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#define REGARD_DOOR extern "C" __attribute__((visibility("default")))

#if defined(__x86_64__)
extern "C" const RegardKernels regard_kernels_avx512, regard_kernels_avx2, regard_kernels_baseline;
#else
extern "C" const RegardKernels regard_kernels_baseline;
#endif

namespace {

struct Build {
  const char* name;
  const RegardKernels* kernels;
  bool (*runs)();  // whether this processor has the instructions, and its system keeps their registers
};

#if defined(__x86_64__)
bool has_avx512() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl");
}

bool has_halves() { return has_avx512() && __builtin_cpu_supports("avx512bf16"); }

// Linux gives the tiles' registers to a process that asks for them.
bool has_amx() {
#if defined(REGARD_IMITATE_AMX)
  return has_halves();
#elif defined(__linux__)
  constexpr unsigned TILES = 1u << 24, BFLOAT16 = 1u << 22;
  constexpr long ASK = 0x1023, TILE_DATA = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  unsigned a, b, c, d;
  if (!has_halves() || !__get_cpuid_count(7, 0, &a, &b, &c, &d) || (d & TILES) == 0 || (d & BFLOAT16) == 0) return false;
  return syscall(SYS_arch_prctl, ASK, TILE_DATA) == 0;
#else
  return false;
#endif
}
#endif

// Best first. The first three are one build, which takes its products of bfloat16 numbers from RegardCall::halves.
#if defined(__x86_64__)
constexpr Build builds[] = {
    {"amx", &regard_kernels_avx512, has_amx},
    {"avx512_bf16", &regard_kernels_avx512, has_halves},
    {"avx512", &regard_kernels_avx512, has_avx512},
    {"avx2", &regard_kernels_avx2, [] { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }},
    {"baseline", &regard_kernels_baseline, [] { return true; }},
};
#else
constexpr Build builds[] = {{"baseline", &regard_kernels_baseline, [] { return true; }}};
#endif
constexpr int BUILDS = sizeof(builds) / sizeof(builds[0]);

}  // namespace

// Name of the i-th build, best first; null past the last one. `runs` says whether this processor can run it.
REGARD_DOOR const char* regard_build(int i, int* runs) {
  if (i < 0 || i >= BUILDS) return nullptr;
  *runs = builds[i].runs();
  return builds[i].name;
}

// Bytes of the i-th structure of abi.h, 0 past the last one: Python refuses a library of another age.
REGARD_DOOR int64_t regard_size(int i) {
  constexpr int64_t sizes[] = {sizeof(RegardView),  sizeof(RegardMask),    sizeof(RegardCall),    sizeof(RegardWant),
                               sizeof(RegardState), sizeof(RegardColumns), sizeof(RegardGradient)};
  return i >= 0 && i < (int)(sizeof(sizes) / sizeof(sizes[0])) ? sizes[i] : 0;
}

static const RegardKernels* kernels(int build) {
  return build >= 0 && build < BUILDS && builds[build].runs() ? builds[build].kernels : nullptr;
}

// Each returns 0, 1 where memory ran out, 2 where there is no such build.
REGARD_DOOR int regard_rows(int build, const RegardCall* call, const RegardWant* want, const RegardState* state) {
  const RegardKernels* k = kernels(build);
  return k ? k->rows(call, want, state) : 2;
}

REGARD_DOOR int regard_columns(int build, const RegardCall* call, const RegardColumns* columns) {
  const RegardKernels* k = kernels(build);
  return k ? k->columns(call, columns) : 2;
}

REGARD_DOOR int regard_gradients(int build, const RegardCall* call, const RegardWant* want, const RegardGradient* gradient) {
  const RegardKernels* k = kernels(build);
  return k ? k->gradients(call, want, gradient) : 2;
}
