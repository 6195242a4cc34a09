import { describe, expect, it } from "vitest";
import type { HistoryLayer, HistoryNumbers } from "../src/history/ask";
import { endsOf, headAt, lastUpTo, linesOf, nearest, pathOf, tokensOf, valueAt } from "../src/history/history";

const layer = (name: string, heads: number, first: number, without: string[] = []) =>
  ({ name, heads, first, without }) as unknown as HistoryLayer;
// Two steps, two statistics, three heads: one layer of two, and one of one in which the second means nothing.
const HISTORY = {
  steps: [0, 10],
  statistics: { entropy: {}, distance: {} },
  layers: [layer("0", 2, 0), layer("1", 1, 2, ["distance"])],
  heads: 3,
  values: Float32Array.of(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12),
} as unknown as HistoryNumbers;

describe("steps", () => {
  it("are the last look up to one, and the nearest on a scale", () => {
    expect([0, 4, 5, 99].map((step) => lastUpTo([3, 5, 20], step))).toEqual([0, 0, 1, 2]);
    expect(nearest([1, 10, 100], 1.4, Math.log10)).toBe(1);
    expect(nearest([1, 10, 100], 1.6, Math.log10)).toBe(2);
  });
});

describe("numbers of heads", () => {
  it("are found by step, statistic and head", () => {
    expect(valueAt(HISTORY, "entropy", 0, HISTORY.layers[0]!, 1)).toBe(2);
    expect(valueAt(HISTORY, "distance", 1, HISTORY.layers[0]!, 0)).toBe(10);
    expect(valueAt(HISTORY, "distance", 1, HISTORY.layers[1]!, 0)).toBeNaN();
    expect(valueAt(HISTORY, "received", 1, HISTORY.layers[0]!, 0)).toBeNaN();
  });

  it("make a line for each head", () => {
    const lines = linesOf(HISTORY, "entropy");
    expect(lines.map(({ name, values }) => [name, values])).toEqual([
      ["0, head 0", [1, 7]],
      ["0, head 1", [2, 8]],
      ["1, head 0", [3, 9]],
    ]);
    expect(endsOf(lines)).toEqual([0, 9]);
    expect(endsOf(linesOf(HISTORY, "distance"))).toEqual([0, 11]);
    expect(endsOf([{ values: [NaN] }])).toEqual([0, 1]);
    expect(endsOf([{ values: [0, 0] }])).toEqual([0, 1]);
  });

  it("are drawn with a gap where one is not known", () => {
    expect(pathOf([1, 2, NaN, 4], (x) => 10 * x, (y) => y / 3)).toBe("M0 0.33L10 0.67M30 1.33");
  });

  it("belong to a head that there is", () => {
    expect(["0.1", "1.0", "7.7", "x", ""].map((text) => headAt(text, HISTORY.layers))).toEqual([[0, 1], [1, 0], [1, 0], [0, 0], [0, 0]]);
    expect(headAt("3.3", [])).toEqual([0, 0]);
  });
});

describe("cells of a map", () => {
  it("lie on the grid of absolute positions", () => {
    expect(tokensOf(0, 4, 0, 10)).toEqual([0, 3]);
    expect(tokensOf(2, 4, 0, 10)).toEqual([8, 9]);
    expect([0, 1].map((place) => tokensOf(place, 4, 6, 5))).toEqual([[0, 1], [2, 4]]);
  });
});
