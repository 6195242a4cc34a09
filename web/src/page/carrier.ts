// Answers from what a page holds, as the server would give them: a page that is opened from a file asks nobody.
import { Refusal, type Ask, type Carrier } from "../carrier/carrier";
import type { Arrays, Tensor } from "../carrier/safetensors";
import type { Call, Description, NextLine, Pair, Peak, Pool, RecordEntry, ServerState } from "../api/types";
import type { Block, Part } from "./block";
import { gridOf, logsOf, pooled, type Grid, type HeldMap } from "./grid";

/** A series and how many tokens one of its points is. */
export type HeldSeries = Part & { cell: number };

export interface HeldText {
  entry: RecordEntry;
  description: Description;
  calls: { map: HeldMap | null; series: Record<string, HeldSeries> }[];
  next: { token: Part; probability: Part; texts: Record<string, string> } | null;
}

const TILE = 256;
// Digits that a packing is good for.
const DIGITS: Record<Part["code"], number> = { f16: 3, log8: 2, f32: 7, i32: 7, bits: 1 };
// Heads whose cells are kept as numbers: those that are looked at, side by side.
const KEPT = 12;
// Weights of more pairs than a server gives at once.
const MOST_WINDOW = 1 << 20;

export class PageCarrier implements Carrier {
  readonly live = false;
  readonly writes = false;
  readonly isHeld = true;
  readonly follow = null;
  private readonly texts: Map<string, HeldText>;
  private readonly grids = new Map<string, Grid>();

  constructor(
    private readonly block: Block,
    private readonly version: string,
    texts: HeldText[],
  ) {
    this.texts = new Map(texts.map((text) => [text.entry.id, text]));
    for (const { description, calls } of texts) {
      // Where cells begin before the first query, and how far weights are known, the views must know.
      description.calls.forEach((call, index) => {
        const map = calls[index]?.map;
        if (map) [call.map_shift, call.digits] = [map.shift, DIGITS[map.mean.code]];
      });
    }
  }

  link(): null {
    return null;
  }

  bytes(path: string): Promise<ArrayBuffer> {
    return Promise.reject(new Refusal(404, `This page makes no files: ${path}.`));
  }

  async json(path: string, ask: Ask = {}): Promise<unknown> {
    const { text, parts, of } = this.read(path, ask);
    if (parts[1] === "state") return this.state();
    if (text && parts.length === 3) return text.description;
    if (text && parts[3] === "next") return this.next(text, Number(parts[4]));
    if (text && parts[7] === "pairs") return this.pair(text, Number(parts[4]), Number(parts[6]), Number(parts[8]), Number(parts[9]));
    if (text && parts[7] === "peaks") {
      return this.peaks(text, Number(parts[4]), Number(parts[6]), number(of, "count"), number(of, "away"), number(of, "first"));
    }
    throw new Refusal(404, `This page does not hold ${path}.`);
  }

  async arrays(path: string, ask: Ask = {}): Promise<Arrays> {
    const { text, parts, of } = this.read(path, ask);
    if (!text) throw new Refusal(404, `This page does not hold ${path}.`);
    const [call, head] = [Number(parts[4]), Number(parts[6])];
    if (parts[3] === "overview") return this.overview(text, number(of, "side"));
    if (parts[5] === "series") return this.series(text, call, parts[6]!);
    if (parts[7] === "tiles") {
      const [cell, row, column] = parts.slice(8).map(Number) as [number, number, number];
      return this.tile(text, call, head, cell, row, column, of.get("pool") as Pool);
    }
    if (parts[7] === "window") {
      const [q0, q1, k0, k1] = ["q0", "q1", "k0", "k1"].map((name) => number(of, name)) as [number, number, number, number];
      return this.window(text, call, head, q0, q1, k0, k1);
    }
    throw new Refusal(404, `This page does not hold ${path}.`);
  }

  private read(path: string, ask: Ask): { text: HeldText | undefined; parts: string[]; of: URLSearchParams } {
    if ((ask.method ?? "GET") !== "GET") throw new Refusal(405, "This page holds what was seen and can run nothing.");
    const [before = "", after = ""] = path.split("?");
    const parts = before.split("/").map(decodeURIComponent);
    return { text: this.texts.get(parts[2] ?? ""), parts, of: new URLSearchParams(after) };
  }

  private state(): ServerState {
    const records = [...this.texts.values()].map(({ entry }) => entry);
    return { version: this.version, records, models: [], limits: {} };
  }

  private call(text: HeldText, index: number): { call: Call; map: HeldMap | null; series: Record<string, HeldSeries> } {
    const [call, held] = [text.description.calls[index], text.calls[index]];
    if (!call || !held) throw new Refusal(404, `the call must be from 0 to ${text.calls.length - 1}, got ${index}`);
    return { call, ...held };
  }

  /** One head's cells as they are held. */
  private grid(text: HeldText, index: number, head: number): { grid: Grid; map: HeldMap; call: Call } {
    const { call, map } = this.call(text, index);
    if (!map) throw new Refusal(404, "The record holds no map of this call.");
    if (!(head >= 0 && head < call.heads)) throw new Refusal(404, `the head must be from 0 to ${call.heads - 1}, got ${head}`);
    const name = `${text.entry.id}/${index}/${head}`;
    const grid = this.grids.get(name) ?? gridOf(this.block, map, head, call.keys);
    // The one that was asked for last stands last.
    this.grids.delete(name);
    this.grids.set(name, grid);
    if (this.grids.size > KEPT) this.grids.delete(this.grids.keys().next().value!);
    return { grid, map, call };
  }

  private exact(text: HeldText, index: number, head: number): { grid: Grid; call: Call } {
    const { grid, map, call } = this.grid(text, index, head);
    if (map.cell > 1) throw new Refusal(404, `This page holds cells of ${map.cell} × ${map.cell} tokens, and no single weight.`);
    return { grid, call };
  }

  private overview(text: HeldText, side: number): Arrays {
    const arrays: Record<string, Tensor> = {};
    const calls: Record<string, { cell: number; offset: number }> = {};
    text.calls.forEach(({ map }, index) => {
      if (!map) return;
      const call = text.description.calls[index]!;
      const [, rows = 0, columns = 0] = map.mean.shape;
      // Cells lie on the grid of the text's positions, so the first may have fewer rows.
      const lead = (factor: number) => ((map.lead % factor) + factor) % factor;
      let factor = 1;
      while (Math.max(Math.ceil((rows + lead(factor)) / factor), Math.ceil(columns / factor)) > side && factor < 2 * Math.max(rows, columns)) factor *= 2;
      const heads = Array.from({ length: call.heads }, (_, head) => pooled(gridOf(this.block, map, head, call.keys), factor, lead(factor)));
      for (const pool of ["max", "mean"] as const) {
        const small = heads.map((grid) => logsOf(grid, pool));
        const size = small[0]!.codes.length;
        const data = new Uint16Array(call.heads * size);
        small.forEach(({ codes }, head) => data.set(codes, head * size));
        arrays[`${index}.${pool}`] = { dtype: "F16", shape: [call.heads, small[0]!.rows, small[0]!.columns], data };
      }
      calls[index] = { cell: map.cell * factor, offset: lead(factor) * map.cell + map.shift };
    });
    return { arrays, json: { calls } };
  }

  private tile(text: HeldText, index: number, head: number, cell: number, row: number, column: number, pool: Pool): Arrays {
    const { grid, map } = this.grid(text, index, head);
    if (!(cell >= map.cell)) throw new Refusal(404, `This page holds cells of ${map.cell} × ${map.cell} tokens.`);
    const { codes, rows, columns } = logsOf(pooled(grid, cell / map.cell), pool, row * TILE, column * TILE, TILE);
    return { arrays: { log: { dtype: "F16", shape: [rows, columns], data: codes } }, json: null };
  }

  private window(text: HeldText, index: number, head: number, q0: number, q1: number, k0: number, k1: number): Arrays {
    const { grid } = this.exact(text, index, head);
    const [queries, keys] = [q1 - q0, k1 - k0];
    const isInside = q0 >= 0 && k0 >= 0 && queries > 0 && keys > 0 && q1 <= grid.rows && k1 <= grid.columns;
    if (!isInside || queries * keys > MOST_WINDOW) {
      throw new Refusal(422, `a window within ${grid.rows} × ${grid.columns} expected, got ${q0}–${q1}, ${k0}–${k1}`);
    }
    const data = new Float32Array(queries * keys);
    for (let query = 0; query < queries; query++) {
      const from = (q0 + query) * grid.columns + k0;
      data.set(grid.max.subarray(from, from + keys), query * keys);
    }
    return { arrays: { weights: { dtype: "F32", shape: [queries, keys], data } }, json: null };
  }

  // Without a score, which the page does not hold.
  private pair(text: HeldText, index: number, head: number, query: number, key: number): Pair {
    const { grid } = this.exact(text, index, head);
    const place = query * grid.columns + key;
    const isAllowed = !grid.allowed || grid.allowed[place] === 1;
    return { weight: grid.max[place]!, allowed: isAllowed, query_token: null, key_token: null };
  }

  private peaks(text: HeldText, index: number, head: number, count: number, away: number, first: number): Peak[] {
    const { grid, call } = this.exact(text, index, head);
    const peaks: Peak[] = [];
    grid.max.forEach((weight, place) => {
      const [query, key] = [Math.floor(place / grid.columns), place % grid.columns];
      if (weight > 0 && key >= first && Math.abs(query + call.offset - key) >= away) peaks.push({ query, key, weight });
    });
    return peaks.sort((a, b) => b.weight - a.weight || a.query - b.query || a.key - b.key).slice(0, count);
  }

  private series(text: HeldText, index: number, name: string): Arrays {
    const { call, series } = this.call(text, index);
    const held = series[name];
    if (!held) throw new Refusal(404, `This page does not hold ${name} of this call.`);
    const cells = held.shape[1]!;
    const data = new Float32Array(call.heads * cells);
    for (let head = 0; head < call.heads; head++) data.set(this.block.floats(held, head), head * cells);
    const line: Tensor = { dtype: "F32", shape: [call.heads, cells], data };
    // Of several tokens the page holds the mean alone.
    return { arrays: { mean: line, max: line }, json: { cell: held.cell } };
  }

  private next({ next }: HeldText, position: number): NextLine {
    const positions = next?.token.shape[0] ?? 0;
    if (!next || !(position >= 0 && position < positions)) {
      throw new Refusal(404, `the position must be from 0 to ${positions - 1}, got ${position}`);
    }
    const [tokens, probabilities] = [this.block.floats(next.token, position), this.block.floats(next.probability, position)];
    const lines = [...tokens].map((token, place) => {
      return { token, text: next.texts[token] ?? "", probability: probabilities[place]!, before: null };
    });
    return { position, tokens: lines.filter(({ token }) => token >= 0), divergence: null };
  }
}

function number(of: URLSearchParams, name: string): number {
  return Number(of.get(name) ?? 0);
}
