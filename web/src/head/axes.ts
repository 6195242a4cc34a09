// What stands along the edges of a map: which tokens are written where, and the curves of statistics, as plain values.
import { scaleLinear } from "d3-scale";
import type { Series } from "../api/client";
import type { Region } from "../address/address";
import { whole } from "../text/numbers";

export interface Label {
  /** Pixels from the start of the edge to the middle of the token. */
  at: number;
  text: string;
}

// Pixels between two labels, so that lines of text do not touch; positions alone are a scale, which needs fewer.
const SPACING = 15;
const WIDE = 44;
// Where so many tokens lie between two labels, one of them says nothing of the others.
const FEW = 20;

/** The labels of one edge: every token where there is room, else positions at round steps with their tokens. */
export function labels(from: number, to: number, length: number, count: number, tokenOf: (index: number) => string): Label[] {
  const scale = length / (to - from);
  const place = (index: number) => (index + 0.5 - from) * scale;
  const [first, last] = [Math.max(0, Math.floor(from)), Math.min(count - 1, Math.ceil(to))];
  if (scale >= SPACING) {
    return range(first, last, 1)
      .map((index) => ({ at: place(index), text: tokenOf(index) }))
      .filter(({ at }) => at >= 0 && at <= length);
  }
  let step = roundStep(SPACING / scale);
  const isFar = step > FEW;
  if (isFar) step = roundStep(WIDE / scale);
  return range(Math.ceil(first / step) * step, last, step)
    .map((index) => ({ at: place(index), text: isFar ? whole(index) : `${tokenOf(index)} ${whole(index)}` }))
    .filter(({ at }) => at >= 0 && at <= length);
}

function range(first: number, last: number, step: number): number[] {
  return Array.from({ length: Math.max(0, Math.floor((last - first) / step) + 1) }, (_, i) => first + i * step);
}

/** The least of 1, 2, 5, 10, 20, … that is as large. */
export function roundStep(least: number): number {
  const power = 10 ** Math.floor(Math.log10(Math.max(least, 1)));
  return [1, 2, 5, 10].map((factor) => factor * power).find((step) => step >= least - 1e-9)!;
}

/** One head's line of a series: steps of pixels, 0 at the edge and 1 at the largest value. */
export interface Curve {
  points: { at: number; end: number; part: number }[];
}

export function curve(series: Series, head: number, from: number, to: number, length: number): Curve {
  const { mean, max, cells, cell } = series;
  const line = mean.subarray(head * cells, (head + 1) * cells);
  const top = topOf(series, head);
  const place = scaleLinear([from, to], [0, length]);
  const [first, last] = [Math.max(0, Math.floor(from / cell)), Math.min(cells - 1, Math.floor(to / cell))];
  // Several cells a pixel are drawn as their largest, as a peak must not be lost.
  const several = Math.max(1, Math.floor((last - first + 1) / Math.max(1, length)));
  const tops = max.subarray(head * cells, (head + 1) * cells);
  const points = [];
  for (let index = first; index <= last; index += several) {
    let value = line[index]!;
    if (several > 1) value = Math.max(...tops.subarray(index, index + several));
    const part = top > 0 && Number.isFinite(value) ? Math.min(1, Math.max(0, value / top)) : 0;
    points.push({ at: place(index * cell), end: place((index + several) * cell), part });
  }
  return { points };
}

export function topOf({ max, cells }: Series, head: number): number {
  return max.subarray(head * cells, (head + 1) * cells).reduce((top, value) => (value > top ? value : top), 0);
}

/** The value of a series at one token; where several share a cell, their mean. */
export function valueAt({ mean, cells, cell }: Series, head: number, index: number): number {
  return mean[head * cells + Math.floor(index / cell)] ?? NaN;
}

/** The pixels of a cell that holds a query and a key, in a view. */
export function boxOf(query: number, key: number, region: Region, width: number, height: number) {
  const [left, top, right, bottom] = region;
  const [x, y] = [width / (right - left), height / (bottom - top)];
  return { left: (key - left) * x, top: (query - top) * y, width: x, height: y };
}
