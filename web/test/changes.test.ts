import { describe, expect, it } from "vitest";
import type { Call, Description, Difference } from "../src/api/types";
import { cellsOf, inWords, mostOf, WEIGHTS } from "../src/changes/difference";

function described(entropies: (number | null)[][]): Description {
  const calls = entropies.map((entropy, index) => ({ index, name: String(index), heads: entropy.length, means: { entropy }, scores: {} }) as unknown as Call);
  return { calls } as Description;
}

const BEFORE = described([[1, 2], [0.5, null]]);
const AFTER = described([[1, 1.25], [0.75, 3]]);
const CHANGES = [{ call: 0, head: 1, off: true, temperature: 2 }];

describe("differences of heads", () => {
  it("are after minus before, and unknown where one of them is", () => {
    const lines = cellsOf(BEFORE, AFTER, "entropy", null, CHANGES);
    expect(lines.map((line) => line.map(({ value }) => value))).toEqual([[0, -0.75], [0.25, null]]);
    expect(mostOf(lines)).toBe(0.75);
    expect(lines.flat().map(({ change }) => change)).toEqual(["", "off, temperature 2", "", ""]);
  });

  it("are distances for the weights, unknown where no vectors were kept", () => {
    const difference: Difference = { base: "r1", distance: [[0, 0.5], null] };
    const lines = cellsOf(BEFORE, AFTER, WEIGHTS, difference, []);
    expect(lines.flat().map(({ value }) => value)).toEqual([0, 0.5, null, null]);
    expect(cellsOf(BEFORE, AFTER, WEIGHTS, null, []).flat().every(({ value }) => value === null)).toBe(true);
  });

  it("says every change in words", () => {
    expect(inWords({ call: 0, head: 0, near: 3, top: 1, uniform: true })).toBe("within 3 tokens, 1 largest weights, equal weights");
    expect(inWords({ call: 0, head: 0, off: false, temperature: null })).toBe("");
  });
});
