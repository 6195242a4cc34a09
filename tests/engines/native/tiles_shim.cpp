// Lets the tests drive the tiles of native/amx.h one by one: `tiles_shim what [configuration as 128 hex digits]`.
// A mistake that a processor would not forgive ends the imitation with SIGABRT.
#include <stdio.h>
#include <string.h>

#define REGARD_ISA regard_test
#include "amx.h"

using namespace regard_test;

#if defined(REGARD_IMITATE_AMX)
static TileShapes shapes_of(const char* digits) {
  uint8_t bytes[64];
  for (int i = 0; i < 64; i++) {
    unsigned byte;
    sscanf(digits + 2 * i, "%2x", &byte);
    bytes[i] = (uint8_t)byte;
  }
  TileShapes shapes;
  memcpy(&shapes, bytes, 64);
  return shapes;
}
#endif

// As GCC 12 writes it: an object of the stack, and an operand that covers 8 of its bytes.
REGARD_AMX __attribute__((noinline)) void configure_by_8_bytes() {
  struct {
    uint8_t palette = 1, start = 0, reserved[14] = {};
    uint16_t bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
    uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
  } shapes;
  REGARD_CONFIGURE("m"(*(const void* const*)&shapes));
}

// Stores that nothing but the tile reads: they must be there, and before it.
REGARD_AMX __attribute__((noinline)) void load_what_was_just_written(uint32_t x) {
  alignas(64) uint32_t rows[16][16];
  for (int i = 0; i < 256; i++) rows[i / 16][i % 16] = x + 0x51ed;
  REGARD_TILE_LOAD(0, rows, 64);
}
REGARD_AMX __attribute__((noinline)) void load_without_saying_so(uint32_t x) {
  alignas(64) uint32_t rows[16][16];
  for (int i = 0; i < 256; i++) rows[i / 16][i % 16] = x + 0x51ed;
  const void* from = rows;
  __asm__ volatile(REGARD_HARDWARE("tileloadd (%0,%1,1), %%tmm0") ::"r"(from), "r"((int64_t)64));
}

// What a tile wrote is read again, not taken from what was known before.
REGARD_AMX __attribute__((noinline)) uint32_t read_what_a_tile_wrote() {
  alignas(64) uint32_t rows[16][16] = {};
  REGARD_TILE_ZERO(0);
  rows[3][5] = 7;
  REGARD_TILE_STORE(0, rows, 64);
  return rows[3][5];
}

REGARD_AMX static void print_product() {
  alignas(64) uint32_t a[16][16], b[16][16];
  alignas(64) float c[16][16];
  for (int i = 0; i < 256; i++) {
    a[i / 16][i % 16] = 0x40003f80;  // 1 and 2
    b[i / 16][i % 16] = 0x40403f80;  // 1 and 3
    c[i / 16][i % 16] = 0.5f;
  }
  REGARD_TILE_LOAD(0, c, 64); REGARD_TILE_LOAD(1, a, 64); REGARD_TILE_LOAD(2, b, 64);
  REGARD_TILE_PRODUCT(0, 1, 2);
  REGARD_TILE_STORE(0, c, 64);
  for (int i = 0; i < 256; i++) printf("%g ", c[i / 16][i % 16]);
}

int main(int count, char** arguments) {
  const char* what = count > 1 ? arguments[1] : "";
#if defined(REGARD_IMITATE_AMX)
  if (count > 2) amx_configure(shapes_of(arguments[2]));
#endif
  if (!strcmp(what, "begin")) amx_begin();
  if (!strcmp(what, "ended")) amx_begin(), amx_end();
  if (!strcmp(what, "8 bytes")) configure_by_8_bytes();
  if (!strcmp(what, "written")) amx_begin(), load_what_was_just_written(1), load_without_saying_so(1);
  if (!strcmp(what, "read")) {
    amx_begin();
    printf("%u ", read_what_a_tile_wrote());
  }
  print_product();
  printf("done\n");
}
