import { describe, expect, it } from "vitest";
import { describe as describeMade } from "../dev/made";
import { Client } from "../src/api/client";
import type { HeadOf } from "../src/api/types";
import { halfValues } from "../src/carrier/half";
import { cellOfPair, meansOf } from "../src/head/cellWeights";
import { pyramidOf, tileSize } from "../src/head/pyramid";
import { columnsOf, matching, rowsOf, sorted } from "../src/model/table";
import { Block, type Part } from "../src/page/block";
import { PageCarrier, type HeldText } from "../src/page/carrier";
import { pooled, gridOf, logsOf } from "../src/page/grid";
import { readable } from "../src/text/texts";

/** A block as Python writes it. */
class Writer {
  private bytes: number[] = [];

  add(code: Part["code"], shape: number[], data: ArrayBufferView, more: Partial<Part> = {}): Part {
    while (this.bytes.length % 4) this.bytes.push(0);
    const at = this.bytes.length;
    this.bytes.push(...new Uint8Array(data.buffer, data.byteOffset, data.byteLength));
    return { at, shape, code, ...more };
  }

  block(index: unknown): Block {
    let text = JSON.stringify(index);
    text += " ".repeat((4 - (text.length % 4)) % 4);
    const whole = new Uint8Array(4 + text.length + this.bytes.length);
    new DataView(whole.buffer).setUint32(0, text.length, true);
    whole.set(new TextEncoder().encode(text), 4);
    whole.set(this.bytes, 4 + text.length);
    return new Block(whole.buffer);
  }
}

describe("a block", () => {
  it("gives numbers back in each of its codes", () => {
    const writer = new Writer();
    const single = writer.add("f32", [2, 3], Float32Array.from([1, 2, 3, 4, 5, 6]));
    const whole = writer.add("i32", [1, 2], Int32Array.from([-1, 131071]));
    const half = writer.add("f16", [1, 2], Uint16Array.from([0x3800, 0x7e00]));
    const top = writer.add("f32", [2], Float32Array.from([1, 0.5]));
    const levels = writer.add("log8", [2, 2], Uint8Array.from([255, 0, 128, 255]), { top, decades: 6 });
    const bits = writer.add("bits", [2, 5], Uint8Array.from([0b01101_101, 0b00]));
    const block = writer.block({ a: [1] });
    expect(block.index).toEqual({ a: [1] });
    expect([...block.floats(single, 1)]).toEqual([4, 5, 6]);
    // One head stands for all.
    expect([...block.floats(whole, 7)]).toEqual([-1, 131071]);
    expect([...block.floats(half)]).toEqual([0.5, NaN]);
    expect([...block.floats(levels, 0)]).toEqual([1, 0]);
    expect(block.floats(levels, 1)[0]).toBeCloseTo(0.5 * 10 ** (-6 * (127 / 254)), 8);
    expect([...block.bits(bits, 0)]).toEqual([1, 0, 1, 1, 0]);
    expect([...block.bits(bits, 1)]).toEqual([1, 1, 0, 0, 0]);
  });
});

/** One head of 5 queries and 7 keys in cells of two; the queries begin one token after a cell does. */
function long() {
  const writer = new Writer();
  const mean = Float32Array.from({ length: 12 }, (_, place) => place / 100);
  const max = mean.map((value) => 2 * value);
  const map = {
    cell: 2,
    shift: 1,
    lead: 1,
    mean: writer.add("f32", [1, 3, 4], mean),
    max: writer.add("f32", [1, 3, 4], max),
    count: writer.add("i32", [1, 3], Int32Array.from([1, 2, 2])),
    allowed: writer.add("bits", [1, 3, 4], Uint8Array.from([0b1111_0111, 0b1111])),
  };
  const entropy = { ...writer.add("f32", [1, 3], Float32Array.from([0.1, 0.2, 0.3])), cell: 2 };
  const description = describeMade({ id: "text-0", title: "one", layers: 1, heads: 1, tokens: 7, cross: false });
  Object.assign(description.calls[0]!, { queries: 5, keys: 7, offset: 3, vectors: false, map_cell: 2 });
  const next = {
    token: writer.add("i32", [2, 2], Int32Array.from([5, 9, 9, -1])),
    probability: writer.add("f32", [2, 2], Float32Array.from([0.5, 0.25, 0.125, 0])),
    texts: { "5": "five", "9": "nine" },
  };
  const entry = { id: "text-0", title: "one", model: "", tokens: 7, calls: 1, kind: "record", next_tokens: true };
  const texts: HeldText[] = [{ entry, description, calls: [{ map, series: { entropy } }], next }];
  const block = writer.block({});
  return { block, map, mean, texts, carrier: new PageCarrier(block, "1", texts) };
}

const HEAD: HeadOf = { record: "text-0", call: 0, head: 0, batch: 0 };

describe("a page that holds its answers", () => {
  const { block, map, mean, texts, carrier } = long();
  const client = new Client(carrier);

  it("pools cells by their sums, on the grid of the text", () => {
    const grid = gridOf(block, map, 0, 7);
    expect([...grid.widths]).toEqual([2, 2, 2, 1]);
    // With one row before it, the first row of larger cells has one row of these.
    const large = pooled(grid, 2, 1);
    expect([large.rows, large.columns, [...large.counts], [...large.widths]]).toEqual([2, 2, [1, 4], [4, 3]]);
    expect(large.total[0]).toBeCloseTo(2 * mean[0]! + 2 * mean[1]!, 6);
    expect(large.total[3]).toBeCloseTo(4 * mean[6]! + 2 * mean[7]! + 4 * mean[10]! + 2 * mean[11]!, 6);
    expect(large.max[3]).toBeCloseTo(2 * mean[11]!, 6);
    const values = [...logsOf(large, "mean").codes].map((code) => Math.exp(halfValues()[code]!));
    expect(values[3]).toBeCloseTo(large.total[3]! / 12, 3);
  });

  it("gives tiles with what the mask forbids, and nothing finer than it holds", async () => {
    const { codes, rows, columns } = await client.tile(HEAD, 2, 0, 0, "max");
    expect([rows, columns]).toEqual([3, 4]);
    expect(halfValues()[codes[3]!]).toBeNaN();
    expect(Math.exp(halfValues()[codes[11]!]!)).toBeCloseTo(0.22, 3);
    await expect(client.tile(HEAD, 1, 0, 0, "max")).rejects.toThrow("cells of 2 × 2 tokens");
    await expect(client.window(HEAD, 0, 1, 0, 1)).rejects.toThrow("no single weight");
    await expect(client.tile({ ...HEAD, head: 1 }, 2, 0, 0, "max")).rejects.toThrow("the head must be from 0 to 0, got 1");
  });

  it("says of a pair what its cell says, wherever the first cell begins", async () => {
    const call = texts[0]!.description.calls[0]!;
    expect(call.map_shift).toBe(1);
    // Query 2 is the second of the second row of cells.
    expect(await cellOfPair(client, HEAD, call, 2, 5, "max")).toBeCloseTo(2 * mean[6]!, 3);
    const row = await meansOf(client, HEAD, call, true, 0, 0, 7);
    expect([...row].map((value) => value.toFixed(2))).toEqual(["0.00", "0.00", "0.01", "0.01", "0.02", "0.02", "0.00"]);
    const column = await meansOf(client, HEAD, call, false, 6, 0, 5);
    expect([...column].map((value) => value.toFixed(2))).toEqual(["0.00", "0.07", "0.07", "0.11", "0.11"]);
  });

  it("has a map whose first row is cut", () => {
    const pyramid = pyramidOf(texts[0]!.description.calls[0]!)!;
    expect([pyramid.shift, pyramid.height, tileSize(pyramid, 0, 0, 0)]).toEqual([1, 3, [3, 4]]);
  });

  it("answers with series, next tokens and what is open", async () => {
    expect((await client.state()).records.map(({ id }) => id)).toEqual(["text-0"]);
    const series = await client.series("text-0", 0, "entropy", 0);
    expect([series.cell, [...series.mean].map((value) => value.toFixed(1))]).toEqual([2, ["0.1", "0.2", "0.3"]]);
    const { tokens } = await client.next("text-0", 1);
    expect(tokens).toEqual([{ token: 9, text: "nine", probability: 0.125, before: null }]);
    await expect(client.next("text-0", 2)).rejects.toThrow("from 0 to 1, got 2");
    await expect(client.series("text-0", 0, "lse", 0)).rejects.toThrow("does not hold lse");
  });

  it("says what it does not hold, and that it runs nothing", async () => {
    await expect(carrier.json("api/none")).rejects.toThrow("does not hold api/none");
    await expect(carrier.arrays("api/records/other/overview?side=4")).rejects.toThrow("does not hold");
    await expect(carrier.json("api/runs", { method: "POST" })).rejects.toThrow("can run nothing");
    expect(carrier.link()).toBeNull();
  });
});

describe("the table of heads", () => {
  const description = describeMade({ id: "a", title: "", layers: 3, heads: 5, tokens: 7, cross: false });
  const columns = columnsOf(description);
  const rows = rowsOf(description, columns);

  it("sorts by each column, and what is not known stands last", () => {
    expect(rows.length).toBe(15);
    rows[4]!.values[0] = null;
    for (const isDown of [true, false]) {
      const values = sorted(rows, columns, "entropy", isDown).map(({ values }) => values[0]!);
      expect(values.at(-1)).toBeNull();
      const known = values.slice(0, -1);
      expect(known).toEqual(known.toSorted((a, b) => (isDown ? b - a : a - b)));
    }
    expect(sorted(rows, columns, "head", true)[0]).toBe(rows[14]);
    const roles = sorted(rows, columns, "role", false).map(({ role }) => role!.role);
    expect(roles).toEqual(roles.toSorted());
  });

  it("finds heads by layer, number and role", () => {
    expect(matching(rows, "layer 1 head 3").map(({ call, head }) => [call.index, head])).toEqual([[1, 3]]);
    expect(matching(rows, "induction").every(({ role }) => role!.role === "induction")).toBe(true);
    expect(matching(rows, "nothing like this")).toEqual([]);
  });
});

describe("hostile tokens", () => {
  it("are written without what is not seen", () => {
    expect(["\u202e\u0000\ud800", "a\u200bb", "👩‍💻", "a\nb"].map(readable)).toEqual(["⟨202E⟩⟨0000⟩⟨D800⟩", "a⟨200B⟩b", "👩‍💻", "a↵b"]);
  });
});
