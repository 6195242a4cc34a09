import { describe, expect, it } from "vitest";
import type { Series } from "../src/api/client";
import { boxOf, curve, labels, roundStep, valueAt } from "../src/head/axes";
import { drawFrame, type Frame } from "../src/head/frame";
import { stepOf } from "../src/head/keys";
import { linesOf } from "../src/head/lines";
import { SheetPen } from "../src/export/sheetPen";
import { svgOf } from "../src/export/svg";

const token = (index: number) => `t${index}`;

describe("labels", () => {
  it("write every token where there is room, in the middle of its cell", () => {
    expect(labels(0, 10, 200, 10, token).map(({ at, text }) => [at, text])).toEqual(
      Array.from({ length: 10 }, (_, index) => [20 * index + 10, `t${index}`]),
    );
  });

  it("thin out with their positions, and leave positions alone far out", () => {
    const near = labels(0, 100, 200, 100, token);
    expect(near.map(({ text }) => text).slice(0, 3)).toEqual(["t0 0", "t10 10", "t20 20"]);
    const far = labels(0, 131072, 600, 131072, token).map(({ text }) => text);
    expect(far.slice(0, 2)).toEqual(["0", "10\u2009000"]);
  });

  it("never stand closer than lines of text, nor beyond the edge", () => {
    for (let zoom = 0; zoom < 60; zoom++) {
      const span = 5 * 1.2 ** zoom;
      const from = -span / 7;
      const all = labels(from, from + span, 500, 20011, token);
      for (const [index, { at }] of all.entries()) {
        expect(at).toBeGreaterThanOrEqual(0);
        expect(at).toBeLessThanOrEqual(500);
        if (index) expect(at - all[index - 1]!.at).toBeGreaterThanOrEqual(14.99);
      }
    }
  });

  it("take steps of 1, 2, 5", () => {
    expect([0.3, 1, 1.01, 2, 3, 5, 7, 11, 99, 101].map(roundStep)).toEqual([1, 1, 2, 2, 5, 5, 10, 20, 100, 200]);
  });
});

describe("curves", () => {
  const series: Series = {
    mean: Float32Array.from({ length: 2000 }, (_, index) => (index === 1234 ? 8 : 1)),
    max: Float32Array.from({ length: 2000 }, (_, index) => (index === 1234 ? 8 : 1)),
    heads: 2,
    cells: 1000,
    cell: 4,
  };

  it("keep a lone peak, however many tokens share a pixel", () => {
    for (const length of [10, 37, 500, 3000]) {
      const parts = curve(series, 1, 0, 4000, length).points.map(({ part }) => part);
      expect(Math.max(...parts)).toBe(1);
    }
    expect(valueAt(series, 1, 234 * 4 + 3)).toBe(8);
    expect(valueAt(series, 0, 3)).toBe(1);
  });

  it("draw NaN as nothing", () => {
    const empty = { ...series, mean: series.mean.slice().fill(NaN) };
    for (const { part } of curve(empty, 0, 0, 100, 400).points) expect(part).toBe(0);
  });
});

it("a frame is drawn as SVG with its tokens escaped", () => {
  const colors = { ink: "#000", soft: "#555", line: "#ddd", accent: "#00f", warm: "#f80", page: "#fff" };
  const frame: Frame = {
    width: 400, height: 400, sides: { left: 80, top: 80, right: 20, bottom: 20 }, region: [0, 0, 4, 4],
    queries: 4, keys: 4, head: 0, queryToken: () => "<a&b>", keyToken: () => "k", rows: null, columns: null,
    query: 1, key: 2, held: { query: 3, key: 3 }, colors, font: "sans",
  }; // prettier-ignore
  const pen = new SheetPen("light");
  drawFrame(pen, frame);
  const text = svgOf({ width: 400, height: 400, background: "#ffffff", title: "<map>", shapes: pen.shapes });
  expect(text).toContain("&lt;a&amp;b&gt;");
  expect(new DOMParser().parseFromString(text, "image/svg+xml").querySelector("parsererror")).toBeNull();
});

it("labels leave room to a token that is held, not to one under the moving pointer", () => {
  const colors = { ink: "#000", soft: "#555", line: "#aaa", accent: "#00f", warm: "#f80", page: "#fff" };
  const frame: Frame = {
    width: 400, height: 400, sides: { left: 100, top: 100, right: 40, bottom: 40 }, region: [0, 0, 40, 40], queries: 40,
    keys: 40, head: 0, queryToken: (index) => `q${index}`, keyToken: (index) => `k${index}`, rows: null, columns: null,
    query: 11, key: null, held: { query: null, key: null }, colors, font: "sans",
  }; // prettier-ignore
  const count = (held: number | null) => {
    const pen = new SheetPen("light");
    drawFrame(pen, { ...frame, held: { query: held, key: null } });
    return pen.shapes.filter((shape) => "text" in shape && shape.text.startsWith("q")).length;
  };
  expect(count(11)).toBeLessThan(count(null));
  expect(count(30)).toBe(count(null));
});

it("boxes of pairs lie where the map draws them", () => {
  expect(boxOf(3, 5, [4, 2, 8, 6], 400, 800)).toEqual({ left: 100, top: 200, width: 100, height: 200 });
});

describe("keys", () => {
  const sizes = { queries: 100, keys: 200 };
  it("go from pair to pair, and say when the map must follow", () => {
    expect(stepOf("ArrowRight", false, [0, 0, 10, 10], sizes, 4, 9, 800)).toMatchObject({ query: 4, key: 10, isBeyond: true });
    expect(stepOf("ArrowUp", false, [0, 0, 10, 10], sizes, 0, 0, 800)).toMatchObject({ query: 0, key: 0 });
  });
  it("take larger steps far out, and begin in the middle", () => {
    expect(stepOf("ArrowDown", false, [0, 0, 100, 100], sizes, null, null, 100)).toMatchObject({ query: 54, key: 50 });
  });
  it("leave other keys alone", () => {
    expect(stepOf("a", false, [0, 0, 10, 10], sizes, 0, 0, 800)).toBeNull();
  });
});

it("lines are the largest weights of each query", () => {
  const weights = Float32Array.from([0.5, 0.005, 0.4, 0.1, 0.2, 0.7]);
  expect(linesOf(weights, 2, 3, 0.01, 2).map(({ query, key }) => [query, key])).toEqual([[0, 0], [0, 2], [1, 2], [1, 1]]);
});
