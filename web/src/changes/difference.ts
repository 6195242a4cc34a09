// What became of each head of a run with changes: differences of its statistics, and how far its weights are.
import type { Call, Description, Difference, HeadSetting } from "../api/types";
import { valuesOf } from "../model/arrange";

/** The distance of a head's weights, beside the statistics. */
export const WEIGHTS = "weights";

export interface Cell {
  call: Call;
  head: number;
  before: number | null;
  after: number | null;
  /** The difference, or the distance; null where one of them is not known. */
  value: number | null;
  /** What was done to it, in words; "" for the others. */
  change: string;
}

/** One line for each call: what a measure became of each head. */
export function cellsOf(
  before: Description,
  after: Description,
  measure: string,
  difference: Difference | null,
  changes: HeadSetting[],
): Cell[][] {
  return after.calls.map((call, index) => {
    const other = before.calls[index];
    const [old, now] = [other ? valuesOf(other, measure) : [], valuesOf(call, measure)];
    return Array.from({ length: call.heads }, (_, head) => {
      const change = changes.find((one) => one.call === index && one.head === head);
      const cell = { call, head, before: old[head] ?? null, after: now[head] ?? null, value: null as number | null };
      if (measure === WEIGHTS) cell.value = difference?.distance[index]?.[head] ?? null;
      else if (cell.before !== null && cell.after !== null) cell.value = cell.after - cell.before;
      return { ...cell, change: change ? inWords(change) : "" };
    });
  });
}

export function inWords(change: HeadSetting): string {
  const words = [];
  if (change.off) words.push("off");
  if (change.temperature != null) words.push(`temperature ${change.temperature}`);
  if (change.near != null) words.push(`within ${change.near} tokens`);
  if (change.top != null) words.push(`${change.top} largest weights`);
  if (change.uniform) words.push("equal weights");
  return words.join(", ");
}

/** The largest size among values, by which all of them are colored. */
export function mostOf(lines: Cell[][]): number {
  return Math.max(0, ...lines.flat().map(({ value }) => Math.abs(value ?? 0)));
}
