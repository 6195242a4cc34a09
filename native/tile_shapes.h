// How the tiles are cut: the 64 bytes that ldtilecfg reads.
#pragma once
#include <stdint.h>

namespace REGARD_ISA {

struct TileShapes {
  uint8_t palette, start, reserved[14];
  uint16_t bytes[16];  // of a row of each tile
  uint8_t rows[16];
};
static_assert(sizeof(TileShapes) == 64, "ldtilecfg reads 64 bytes");

// All eight have 16 rows of 64 bytes. A constant lies in memory before anything runs, so no store to it can be lost.
alignas(64) static const TileShapes TILE_SHAPES = {1, 0, {}, {64, 64, 64, 64, 64, 64, 64, 64}, {16, 16, 16, 16, 16, 16, 16, 16}};

}  // namespace REGARD_ISA
