import { describe, expect, it } from "vitest";
import { cellOf, isSame, pyramidOf, TILE, tileSize } from "../src/head/pyramid";

const call = (queries: number, keys: number, vectors = true, map_cell: number | null = null) => ({ queries, keys, vectors, map_cell });

describe("the levels of a map", () => {
  it("cover every pair exactly once at every level", () => {
    const sizes = [[1, 1], [7, 13], [256, 256], [257, 255], [1009, 601], [1, 4099], [3001, 2]];
    for (const [queries, keys] of sizes as [number, number][]) {
      const pyramid = pyramidOf(call(queries, keys))!;
      for (let level = 0; level < pyramid.levels; level++) {
        const cell = cellOf(pyramid, level);
        let [rows, columns] = [0, 0];
        for (let index = 0; index * TILE * cell < queries; index++) rows += tileSize(pyramid, level, index, 0)[0];
        for (let index = 0; index * TILE * cell < keys; index++) columns += tileSize(pyramid, level, 0, index)[1];
        expect([rows, columns]).toEqual([Math.ceil(queries / cell), Math.ceil(keys / cell)]);
        expect(pyramid.width * pyramid.unit % cell).toBe(0);
        expect(pyramid.height * pyramid.unit % cell).toBe(0);
      }
      expect(cellOf(pyramid, pyramid.levels - 1)).toBe(1);
      expect(tileSize(pyramid, 0, 0, 0)[0]).toBeLessThanOrEqual(TILE);
    }
  });

  it("has ten levels at 131 072 tokens", () => {
    const pyramid = pyramidOf(call(131072, 131072))!;
    expect(pyramid.levels).toBe(10);
    expect(cellOf(pyramid, 0)).toBe(512);
    expect(tileSize(pyramid, 9, 511, 511)).toEqual([256, 256]);
    expect(tileSize(pyramid, 9, 512, 0)).toEqual([0, 0]);
  });

  it("ends at the cells of the kept map where vectors were not kept", () => {
    const pyramid = pyramidOf(call(10007, 10007, false, 64))!;
    expect(cellOf(pyramid, pyramid.levels - 1)).toBe(64);
    expect(pyramidOf(call(5, 5, false, null))).toBeNull();
  });

  it("takes regions for the same where they differ by less than a pixel", () => {
    expect(isSame([0, 0, 1000, 1000], [0.5, 0, 1000, 1000.9])).toBe(true);
    expect(isSame([0, 0, 1000, 1000], [2, 0, 1002, 1000])).toBe(false);
  });
});
