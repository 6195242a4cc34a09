import { describe, expect, it } from "vitest";
import { BLOCKED, diverging, sequential } from "../src/color/ramps";
import type { Shares } from "../src/flow/ask";
import { cellOf, colorOf, moved, rowName, showing, tokensOf, topOf, valueOf, zoomed } from "../src/flow/flow";

// Two rows of three cells of four tokens, the last of two: tokens 5 to 14.
const SHARES: Shares = {
  shares: Float32Array.of(0.25, 0.5, 0.25, 0, 1, 0),
  equal: null,
  rows: 2,
  cells: 3,
  cell: 4,
  first: 5,
  end: 15,
};

describe("the numbers of a flow", () => {
  it("belong to the tokens of their cell", () => {
    expect([4, 5, 8, 9, 14, 15].map((token) => cellOf(SHARES, token))).toEqual([-1, 0, 0, 1, 2, -1]);
    expect([0, 1, 2].map((cell) => tokensOf(SHARES, cell))).toEqual([[5, 9], [9, 13], [13, 15]]);
  });

  it("are shares, or quotients of them, unknown where no path leads", () => {
    const equal = Float32Array.of(0.5, 0.25, 0, 0, 1, 0);
    const ratios = [0, 1, 2].map((cell) => valueOf({ ...SHARES, equal }, 0, cell));
    expect(ratios).toEqual([0.5, 2, NaN]);
    expect(valueOf(SHARES, 0, 1)).toBe(0.5);
  });

  it("have the largest of another token as the darkest", () => {
    expect(topOf(SHARES, null)).toBe(1);
    expect(topOf(SHARES, 10)).toBe(0.25);
  });

  it("are colored by their root, and as multiples around 1", () => {
    expect(colorOf(0, 0.5, false, "light")).toEqual(sequential.light[0]);
    expect(colorOf(0.125, 0.5, false, "light")).toEqual(sequential.light[128]);
    expect(colorOf(9, 0.5, false, "dark")).toEqual(sequential.dark[255]);
    expect(colorOf(1, 0, true, "light")).toEqual(diverging.light[128]);
    expect(colorOf(0, 0, true, "light")).toEqual(diverging.light[0]);
    expect(colorOf(8, 0, true, "light")).toEqual(diverging.light[255]);
    expect(colorOf(NaN, 0, true, "light")).toEqual(BLOCKED.light);
  });

  it("have rows by the names of the layers", () => {
    const text = { name: "target" as const, tokens: 3, text: "tokens" as const, layers: ["0", "1"], calls: [0, 1] };
    expect([0, 1, 2].map((row) => rowName(text, row))).toEqual(["input", "after 0", "after 1"]);
  });
});

describe("the tokens that are seen", () => {
  it("grow and shrink around one that stays where it is", () => {
    expect(zoomed(null, 1000, 500, 4)).toEqual([375, 625]);
    expect(zoomed([375, 625], 1000, 400, 2)).toEqual([388, 513]);
    expect(zoomed([0, 10], 1000, 2, 100)).toEqual([0, 8]);
    expect(zoomed([375, 625], 1000, 500, 0.1)).toBeNull();
  });

  it("are moved within the text", () => {
    expect(moved([10, 20], 100, -50)).toEqual([0, 10]);
    expect(moved([10, 20], 100, 500)).toEqual([90, 100]);
    expect(moved(null, 100, 5)).toBeNull();
    expect(showing([10, 20], 100, 15)).toEqual([10, 20]);
    expect(showing([10, 20], 100, 60)).toEqual([55, 65]);
  });
});
