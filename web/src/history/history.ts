// Arithmetic of the view of histories: steps, the numbers of heads along them, and paths of lines.
import type { HistoryLayer, HistoryNumbers } from "./ask";

/** The place of the last of rising numbers that is not above a value; 0 where all are. */
export function lastUpTo(rising: readonly number[], value: number): number {
  let last = 0;
  rising.forEach((one, place) => {
    if (one <= value) last = place;
  });
  return last;
}

/** The place of the number that is nearest to a value on the scale of a chart. */
export function nearest(numbers: readonly number[], value: number, scale: (value: number) => number): number {
  let best = 0;
  numbers.forEach((one, place) => {
    if (Math.abs(scale(one) - value) < Math.abs(scale(numbers[best]!) - value)) best = place;
  });
  return best;
}

/** A statistic of one head of all, at one of the steps; NaN where no query counted or it means nothing. */
export function valueAt(history: HistoryNumbers, statistic: string, step: number, layer: HistoryLayer, head: number): number {
  const names = Object.keys(history.statistics);
  const place = names.indexOf(statistic);
  if (place < 0 || layer.without.includes(statistic)) return NaN;
  return history.values[(step * names.length + place) * history.heads + layer.first + head]!;
}

/** Layer and head of `layer.head`, or the nearest that there are. */
export function headAt(text: string, layers: readonly { heads: number }[]): [number, number] {
  const [layer = 0, head = 0] = text.split(".").map((part) => Math.max(0, Math.floor(Number(part)) || 0));
  const index = Math.min(layer, Math.max(0, layers.length - 1));
  return [index, Math.min(head, Math.max(0, (layers[index]?.heads ?? 1) - 1))];
}

export interface Line {
  layer: number;
  head: number;
  name: string;
  values: number[];
}

/** A statistic of every head along the steps. */
export function linesOf(history: HistoryNumbers, statistic: string): Line[] {
  return history.layers.flatMap((layer, index) =>
    Array.from({ length: layer.heads }, (_, head) => ({
      layer: index,
      head,
      name: `${layer.name}, head ${head}`,
      values: history.steps.map((_, step) => valueAt(history, statistic, step, layer, head)),
    })),
  );
}

/** The least and largest of all values, 0 among them; a step apart where all are one number. */
export function endsOf(lines: readonly { values: readonly number[] }[]): [number, number] {
  let [low, high] = [0, -Infinity];
  for (const { values } of lines) {
    for (const value of values) {
      if (!Number.isFinite(value)) continue;
      low = Math.min(low, value);
      high = Math.max(high, value);
    }
  }
  if (high === -Infinity) return [0, 1];
  return high > low ? [low, high] : [low, low + 1];
}

/** A line through the points that are known; it is broken where one is not. */
export function pathOf(values: readonly number[], x: (place: number) => number, y: (value: number) => number): string {
  let isBroken = true;
  return values
    .map((value, place) => {
      if (!Number.isFinite(value)) {
        isBroken = true;
        return "";
      }
      const letter = isBroken ? "M" : "L";
      isBroken = false;
      return `${letter}${round(x(place))} ${round(y(value))}`;
    })
    .join("");
}

const round = (value: number) => Math.round(100 * value) / 100;

/** The tokens of a cell of a map, from the first to the last; cells lie on the grid of absolute positions. */
export function tokensOf(place: number, cell: number, offset: number, count: number): [number, number] {
  const start = (place + Math.floor(offset / cell)) * cell - offset;
  return [Math.max(0, start), Math.min(count, start + cell) - 1];
}
