// The colors of what is seen: the darkest is its largest weight, unless the reader wants 1.
import type { Range } from "../address/address";
import { decadesFor, type Scale, type Shading } from "../color/scale";
import type { Painted } from "./tileSource";

export function shadingOf(tiles: Painted[], scale: Scale, range: Range, keys: number): Shading {
  let top = 0;
  if (range === "seen" && tiles.length > 0) {
    const largest = Math.max(...tiles.map((tile) => tile.top));
    // Nothing but zeros: any top will do, as they have the palest color in all of them.
    if (Number.isFinite(largest)) top = Math.min(0, largest);
  }
  const shading: Shading = { scale, top, decades: decadesFor(keys) };
  if (scale === "rank") {
    shading.counts = new Uint32Array(65536);
    for (const { grid } of tiles) for (const code of grid.codes) shading.counts[code]!++;
  }
  return shading;
}
