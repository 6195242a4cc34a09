// Which tokens of a call are patches of the record's picture, and what is laid over it.
import type { Call, PictureOf } from "../api/types";

export type Side = "query" | "key";

/** Whether the queries or the keys of a call hold all patches. */
export function arePatches(call: Call, picture: PictureOf, side: Side): boolean {
  const [text, count] = side === "query" ? [call.query_text, call.queries] : [call.key_text, call.keys];
  return text === picture.text && picture.start + picture.rows * picture.columns <= count;
}

/** The calls in which something of the picture can be seen. */
export function callsOf(calls: readonly Call[], picture: PictureOf): Call[] {
  return calls.filter((call) => call.vectors && (arePatches(call, picture, "key") || arePatches(call, picture, "query")));
}

/** The patch of a token; null for tokens that are none. */
export function patchOf(picture: PictureOf, token: number): number | null {
  const patch = token - picture.start;
  return patch >= 0 && patch < picture.rows * picture.columns ? patch : null;
}

/** The patch under a point, which is a fraction of the width and height. */
export function patchAt(picture: PictureOf, x: number, y: number): number | null {
  if (x < 0 || y < 0 || x >= 1 || y >= 1) return null;
  return Math.floor(y * picture.rows) * picture.columns + Math.floor(x * picture.columns);
}

/** Tokens that are no patches: a class token, registers, words around the picture. */
export function othersOf(picture: PictureOf, count: number): number[] {
  return Array.from({ length: count }, (_, token) => token).filter((token) => patchOf(picture, token) === null);
}

/** The weights of the patches among those of all tokens. */
export function ofPatches(picture: PictureOf, weights: Float32Array): Float32Array {
  return weights.subarray(picture.start, picture.start + picture.rows * picture.columns);
}

export function largestOf(weights: Float32Array): number {
  return weights.reduce((most, weight) => (weight > most ? weight : most), 0);
}

/** Where a patch is, counted from 1, as the tokens of the captioner are. */
export function placeOf(picture: PictureOf, patch: number): string {
  return `row ${Math.floor(patch / picture.columns) + 1}, column ${(patch % picture.columns) + 1}`;
}

/** The patch beside one, within the picture. */
export function stepped(picture: PictureOf, patch: number, key: string): number | null {
  const [row, column] = [Math.floor(patch / picture.columns), patch % picture.columns];
  const steps: Record<string, [number, number]> = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };
  const step = steps[key];
  if (!step) return null;
  const within = (value: number, count: number) => Math.max(0, Math.min(count - 1, value));
  return within(row + step[0], picture.rows) * picture.columns + within(column + step[1], picture.columns);
}
