// The door of the library: picks the build for this processor and passes calls on.
#include "kernels.h"
#include "look.h"

#if defined(__x86_64__)
#include <cpuid.h>
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif
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
  int64_t halves;  // RegardCall::halves
  bool (*runs)();  // whether this processor has the instructions, and its system keeps their registers
};

// A compiler's own question asks the system too, by XGETBV, wherever registers grew: AVX, AVX-512.
#if defined(__x86_64__)
bool has_avx2() {
  unsigned a, b, c, d;
  constexpr unsigned FLOAT16 = 1u << 29;  // F16C, which Clang 14 cannot ask for
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("popcnt") &&
         __get_cpuid(1, &a, &b, &c, &d) && (c & FLOAT16);
}

bool has_avx512() {
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
}

bool has_halves() { return has_avx512() && __builtin_cpu_supports("avx512bf16"); }

#if defined(REGARD_IMITATE_AMX)
bool has_amx() { return has_halves(); }
#elif defined(__linux__)
// Linux gives the tiles' registers to a process that asks for them, for all its threads, and a fork inherits them.
bool has_amx() {
  constexpr unsigned TILES = 1u << 24, BFLOAT16 = 1u << 22, ENABLED = 3u << 17;  // ENABLED: XTILECFG, XTILEDATA
  constexpr long ASK = 0x1023, TILE_DATA = 18;                                // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  unsigned a, b, c, d, high;
  if (!has_halves() || !__get_cpuid_count(7, 0, &a, &b, &c, &d) || (d & TILES) == 0 || (d & BFLOAT16) == 0) return false;
  __asm__ volatile("xgetbv" : "=a"(a), "=d"(high) : "c"(0));
  return (a & ENABLED) == ENABLED && syscall(SYS_arch_prctl, ASK, TILE_DATA) == 0;
}
#else
bool has_amx() { return false; }
#endif
#endif

// Best first. The first three are one build, which takes its products of bfloat16 numbers from RegardCall::halves.
#if defined(__x86_64__)
constexpr Build builds[] = {
    {"amx", &regard_kernels_avx512, 2, has_amx},
    {"avx512_bf16", &regard_kernels_avx512, 1, has_halves},
    {"avx512", &regard_kernels_avx512, 0, has_avx512},
    {"avx2", &regard_kernels_avx2, 0, has_avx2},
    {"baseline", &regard_kernels_baseline, 0, [] { return true; }},
};
#else
constexpr Build builds[] = {{"baseline", &regard_kernels_baseline, 0, [] { return true; }}};
#endif
constexpr int BUILDS = sizeof(builds) / sizeof(builds[0]);

// Asked once: CPUID takes microseconds in a virtual machine, and a process that later may not ask for tiles still has them.
bool runs(int build) {
  enum { UNKNOWN, NO, YES };
  static int known[BUILDS];
  int answer = __atomic_load_n(&known[build], __ATOMIC_RELAXED);
  if (answer == UNKNOWN) {
    answer = builds[build].runs() ? YES : NO;
    __atomic_store_n(&known[build], answer, __ATOMIC_RELAXED);
  }
  return answer == YES;
}

}  // namespace

// Name of the i-th build, best first; null past the last one. `here` says whether this processor can run it.
REGARD_DOOR const char* regard_build(int i, int* here) {
  if (i < 0 || i >= BUILDS) return nullptr;
  *here = runs(i);
  return builds[i].name;
}

// Bytes of the i-th structure of abi.h, 0 past the last one: Python refuses a library of another age.
REGARD_DOOR int64_t regard_size(int i) {
  constexpr int64_t sizes[] = {sizeof(RegardView),  sizeof(RegardMask),    sizeof(RegardCall),    sizeof(RegardWant),
                               sizeof(RegardState), sizeof(RegardColumns), sizeof(RegardGradient), sizeof(RegardLook)};
  return i >= 0 && i < (int)(sizeof(sizes) / sizeof(sizes[0])) ? sizes[i] : 0;
}

static const RegardKernels* kernels(int build) {
  return build >= 0 && build < BUILDS && runs(build) ? builds[build].kernels : nullptr;
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

REGARD_DOOR int regard_look(int build, const RegardCall* call, const RegardWant* want, const RegardState* state,
                            const RegardColumns* columns, const RegardLook* look) {
  const RegardKernels* k = kernels(build);
  return k ? regard_look_with(*k, call, want, state, columns, look) : 2;
}

REGARD_DOOR int regard_gradients(int build, const RegardCall* call, const RegardWant* want, const RegardGradient* gradient) {
  const RegardKernels* k = kernels(build);
  return k ? k->gradients(call, want, gradient) : 2;
}

// Whether a build computes right here, on small calls: 0, or 3 where it does not. To be called in a process that may die.
REGARD_DOOR int regard_prove(int build) {
  const RegardKernels* k = kernels(build);
  return k ? regard_proof(*k, builds[build].halves) : 2;
}
