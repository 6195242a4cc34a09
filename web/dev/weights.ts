// Weights of made-up heads: each kind is a formula, so that any pair can be asked for at any length.
import { callOf, type Made } from "./made";

function noise(a: number, b: number, seed: number): number {
  let h = (Math.imul(a, 374761393) + Math.imul(b, 668265263) + Math.imul(seed, 2246822519)) | 0;
  h = Math.imul(h ^ (h >>> 13), 1274126177);
  return ((h ^ (h >>> 16)) >>> 0) / 4294967296;
}

/** NaN where the mask allows no pair. */
export function weightOf(made: Made, call: number, head: number, q: number, k: number): number {
  const { isCausal } = callOf(made, call);
  if (isCausal && k > q) return NaN;
  const reach = q + 1;
  const kind = (head + call) % 6;
  const rest = (0.3 * 2 * noise(q, k, head + 17 * call)) / reach;
  if (kind === 0) return k === q - 1 ? 0.8 : rest;
  if (kind === 1) return k === 0 ? 0.7 : rest;
  if (kind === 2) return k === q ? 0.6 : rest;
  if (kind === 3) return 0.1 * Math.exp(-Math.abs(q - k) / 5) + rest;
  if (kind === 4) return k === q - 19 ? 0.5 : rest;
  return (2 * noise(q >> 2, k >> 2, head)) / reach;
}
