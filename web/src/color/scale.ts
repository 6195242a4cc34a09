// From a log-weight to a color: four scales, each a table of 65 536 colors that a float16 code is looked up in.
import { halfValues } from "../carrier/half";
import { short } from "../text/numbers";
import { BLOCKED, sequential, type Rgb, type Theme } from "./ramps";

export const SCALES = ["linear", "root", "log", "rank"] as const;
export type Scale = (typeof SCALES)[number];

export interface Shading {
  scale: Scale;
  /** Logarithm of the weight that has the darkest color. */
  top: number;
  /** How many powers of ten the scale `log` shows. */
  decades: number;
  /** For `rank`: how often each code occurs in what is seen. */
  counts?: Uint32Array;
}

/** Which part of the ramp a log-weight gets, from 0 to 1, for the scales that need no counts. */
export function partOf(log: number, shading: Shading): number {
  const below = Math.min(0, log - shading.top);
  if (shading.scale === "root") return Math.exp(below / 2);
  if (shading.scale === "log") return Math.max(0, 1 + below / (shading.decades * Math.LN10));
  return Math.exp(below);
}

/** The log-weight that a part of the ramp stands for: what the legend says. */
export function logOf(part: number, shading: Shading): number {
  if (shading.scale === "root") return shading.top + 2 * Math.log(part);
  if (shading.scale === "log") return shading.top + (part - 1) * shading.decades * Math.LN10;
  return shading.top + Math.log(part);
}

/** What a legend says at the ends and in the middle of the ramp. */
export function endsOf(shading: Shading): [string, string, string] {
  if (shading.scale === "rank") return ["smallest seen", "half", "largest seen"];
  const [low, middle, high] = [0, 0.5, 1].map((part) => short(Math.exp(logOf(part, shading)), 2));
  return [shading.scale === "log" ? `≤ ${low}` : "0", middle!, high!];
}

/** How many powers of ten are worth showing where `keys` share a weight of 1. */
export function decadesFor(keys: number): number {
  return Math.min(7, Math.max(3, Math.ceil(Math.log10(Math.max(keys, 1))) + 1));
}

/** For each code, the share of what is seen that is smaller, ties by half; codes of weight 0 get 0. */
function ranks(counts: Uint32Array): Float32Array {
  const values = halfValues();
  const present = [...counts.keys()].filter((code) => counts[code]! > 0 && values[code]! > -Infinity);
  present.sort((a, b) => values[a]! - values[b]!);
  const total = present.reduce((sum, code) => sum + counts[code]!, 0);
  const parts = new Float32Array(65536);
  const known = present.map((code) => values[code]!);
  let before = 0;
  const steps = present.map((code) => {
    const part = (before + counts[code]! / 2) / total;
    before += counts[code]!;
    return part;
  });
  // Other codes stand between those that were counted, so that a tile that comes later has colors too.
  for (let code = 0; code < 65536; code++) {
    const value = values[code]!;
    if (value > -Infinity && steps.length) parts[code] = steps[nearestBelow(known, value)]!;
  }
  return parts;
}

function nearestBelow(sorted: number[], value: number): number {
  let [low, high] = [0, sorted.length - 1];
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (sorted[middle]! <= value) low = middle;
    else high = middle - 1;
  }
  return low;
}

function pack([red, green, blue]: Rgb): number {
  // Little-endian RGBA, as an ImageData's bytes are read as 32 bits.
  return ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0;
}

/** The color of each code, packed as ImageData wants it. */
export function colorTable(shading: Shading, theme: Theme): Uint32Array {
  const ramp = sequential[theme].map(pack);
  const blocked = pack(BLOCKED[theme]);
  const values = halfValues();
  const table = new Uint32Array(65536);
  let parts: Float32Array | null = null;
  if (shading.scale === "rank" && shading.counts) parts = ranks(shading.counts);
  for (let code = 0; code < 65536; code++) {
    const log = values[code]!;
    if (Number.isNaN(log)) table[code] = blocked;
    else if (parts) table[code] = ramp[Math.round(255 * parts[code]!)]!;
    else table[code] = ramp[Math.round(255 * partOf(log, shading))]!;
  }
  return table;
}

/** Writes the colors of codes into an image of as many pixels. */
export function paint(codes: Uint16Array, table: Uint32Array, image: ImageData): void {
  const pixels = new Uint32Array(image.data.buffer);
  for (let index = 0; index < codes.length; index++) pixels[index] = table[codes[index]!]!;
}

/** The largest log-weight among codes; −∞ where there is none. */
export function largest(codes: Uint16Array): number {
  const values = halfValues();
  let top = -Infinity;
  for (const code of codes) {
    const value = values[code]!;
    if (value > top) top = value;
  }
  return top;
}
