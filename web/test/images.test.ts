import { describe, expect, it } from "vitest";
import type { Call, PictureOf } from "../src/api/types";
import { arePatches, callsOf, largestOf, ofPatches, othersOf, patchAt, patchOf, placeOf, stepped } from "../src/images/images";

// A class token, then two rows of three patches.
const PICTURE: PictureOf = { rows: 2, columns: 3, start: 1, text: "source", words: [] };
const call = (index: number, query_text: string, queries: number, key_text: string, keys: number, vectors = true) =>
  ({ index, query_text, queries, key_text, keys, vectors }) as unknown as Call;
const ENCODER = call(0, "source", 7, "source", 7);
const DECODER = call(1, "tokens", 9, "tokens", 9);
const CROSS = call(2, "tokens", 9, "source", 7);

describe("patches of a picture", () => {
  it("are on both sides, on one, or on none", () => {
    const sides = [ENCODER, DECODER, CROSS].map((one) => [arePatches(one, PICTURE, "query"), arePatches(one, PICTURE, "key")]);
    expect(sides).toEqual([[true, true], [false, false], [false, true]]);
    expect(callsOf([ENCODER, DECODER, CROSS], PICTURE).map(({ index }) => index)).toEqual([0, 2]);
    expect(callsOf([call(0, "source", 6, "source", 6)], PICTURE)).toEqual([]);
    expect(callsOf([call(0, "source", 7, "source", 7, false)], PICTURE)).toEqual([]);
  });

  it("are told from other tokens", () => {
    expect([0, 1, 6, 7].map((token) => patchOf(PICTURE, token))).toEqual([null, 0, 5, null]);
    expect(othersOf(PICTURE, 9)).toEqual([0, 7, 8]);
  });

  it("lie row after row", () => {
    expect(patchAt(PICTURE, 0.5, 0.75)).toBe(4);
    expect(patchAt(PICTURE, 0, 0)).toBe(0);
    expect([[1, 0.5], [-0.1, 0], [0.5, 1]].map(([x, y]) => patchAt(PICTURE, x!, y!))).toEqual([null, null, null]);
    expect(placeOf(PICTURE, 4)).toBe("row 2, column 2");
  });

  it("are reached by arrow keys, and nobody leaves the picture", () => {
    expect(["ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown", "a"].map((key) => stepped(PICTURE, 0, key))).toEqual([0, 1, 0, 3, null]);
    expect(["ArrowRight", "ArrowDown"].map((key) => stepped(PICTURE, 5, key))).toEqual([5, 5]);
  });

  it("have their weights among those of all tokens", () => {
    const weights = Float32Array.of(0.5, 0.1, 0.2, 0, 0, 0.05, 0.15, 0);
    expect([...ofPatches(PICTURE, weights)]).toEqual([...weights.slice(1, 7)]);
    expect(largestOf(ofPatches(PICTURE, weights))).toBeCloseTo(0.2);
    expect(largestOf(new Float32Array())).toBe(0);
  });
});
