// Made-up attention that answers as the server does, to work on views without one.
import { Refusal, type Ask, type Carrier } from "../src/carrier/carrier";
import { floatToHalf } from "../src/carrier/half";
import { parseSafetensors, writeSafetensors, type Arrays, type Tensor } from "../src/carrier/safetensors";
import { callOf, describe, WORDS, type Made } from "./made";
import { weightOf } from "./weights";

const RECORDS: Record<string, Made> = {
  small: { id: "small", title: "GPT-2 shape, 48 tokens", layers: 6, heads: 12, tokens: 48, cross: false },
  long: { id: "long", title: "One layer, 131 072 tokens", layers: 1, heads: 12, tokens: 131072, cross: false },
  cross: { id: "cross", title: "Encoder and decoder", layers: 4, heads: 4, tokens: 23, cross: true },
};

export class MockCarrier implements Carrier {
  readonly live = true;
  readonly writes = false;
  readonly follow = null;
  asked: string[] = [];

  constructor(private readonly delay = 0) {}

  async json(path: string, ask: Ask = {}): Promise<unknown> {
    const { parts, of } = await this.read(path, ask);
    if (parts[1] === "state") return this.state();
    if (parts[1] === "runs") return { job: "j1" };
    if (parts[1] === "jobs") return { id: "j1", state: "done", progress: 1, message: "", record: "small" };
    const made = this.made(parts[2]!);
    if (parts.length === 3) return describe(made);
    const [call, head] = [Number(parts[4]), Number(parts[6])];
    if (parts[7] === "pairs") return this.pair(made, call, head, Number(parts[8]), Number(parts[9]));
    if (parts[7] === "peaks") return this.peaks(made, call, head, Number(of.get("count")), Number(of.get("away")));
    throw new Refusal(404, `${path} expected among the routes`);
  }

  async arrays(path: string, ask: Ask = {}): Promise<Arrays> {
    const { parts, of } = await this.read(path, ask);
    const made = this.made(parts[2]!);
    const number = (name: string) => Number(of.get(name));
    if (parts[3] === "overview") return this.overview(made, number("side"));
    const { queries, keys, heads } = callOf(made, Number(parts[4]));
    const [call, head] = [Number(parts[4]), Number(parts[6])];
    const at = (q: number, k: number) => weightOf(made, call, head, q, k);
    if (parts[5] === "series") return series(heads, queries, number("most"), parts[6]!, call);
    if (parts[7] === "tiles") {
      const [cell, row, column] = [Number(parts[8]), Number(parts[9]), Number(parts[10])];
      return grid(at, queries, keys, cell!, row!, column!);
    }
    let [q0, q1, k0, k1] = [number("q0"), number("q1"), number("k0"), number("k1")];
    if (parts[7] === "rows") [q0, q1, k0, k1] = [Number(parts[8]), Number(parts[8]) + 1, 0, keys];
    if (parts[7] === "columns") [q0, q1, k0, k1] = [0, queries, Number(parts[8]), Number(parts[8]) + 1];
    const data = new Float32Array((q1 - q0) * (k1 - k0));
    for (let q = q0; q < q1; q++) for (let k = k0; k < k1; k++) data[(q - q0) * (k1 - k0) + k - k0] = at(q, k) || 0;
    return packed({ weights: { dtype: "F32", shape: [data.length], data } });
  }

  link(path: string): string {
    return path;
  }

  private async read(path: string, ask: Ask): Promise<{ parts: string[]; of: URLSearchParams }> {
    this.asked.push(path);
    if (this.delay) await new Promise((resolve) => setTimeout(resolve, this.delay));
    ask.signal?.throwIfAborted();
    const [before = "", after = ""] = path.split("?");
    return { parts: before.split("/"), of: new URLSearchParams(after) };
  }

  async bytes(path: string): Promise<ArrayBuffer> {
    throw new Refusal(405, `nobody writes ${path} here`);
  }

  private state() {
    const records = Object.values(RECORDS).map((made) => {
      return { id: made.id, title: made.title, model: "made up", tokens: made.tokens, calls: made.layers, kind: "record" };
    });
    const models = [{ id: "embedded", title: "the embedded model", kind: "embedded", takes: "text" }];
    return { version: "0", records, models, limits: { text: 100000 } };
  }

  private made(id: string): Made {
    const made = RECORDS[id];
    if (!made) throw new Refusal(404, `a record expected, got ${id}`);
    return made;
  }

  private pair(made: Made, call: number, head: number, q: number, k: number) {
    const weight = weightOf(made, call, head, q, k);
    const [query_token, key_token] = [q, k].map((place) => WORDS[place % WORDS.length]);
    const allowed = !Number.isNaN(weight);
    return { weight: allowed ? weight : 0, score: allowed ? Math.log(weight) + 5 : null, allowed, query_token, key_token };
  }

  private peaks(made: Made, call: number, head: number, count: number, away: number) {
    const { queries, keys } = callOf(made, call);
    const step = Math.max(1, Math.floor(queries / 400));
    const found = [];
    for (let query = 0; query < queries; query += step) {
      for (let key = 0; key < keys; key += step) {
        const weight = weightOf(made, call, head, query, key);
        if (weight > 0 && Math.abs(query - key) >= away) found.push({ query, key, weight });
      }
    }
    return found.sort((a, b) => b.weight - a.weight).slice(0, count);
  }

  private overview(made: Made, side: number): Arrays {
    const tensors: Record<string, Tensor> = {};
    for (let index = 0; index < describe(made).calls.length; index++) {
      const { queries, keys, heads } = callOf(made, index);
      const [rows, columns] = [Math.min(side, queries), Math.min(side, keys)];
      const data = new Uint16Array(heads * rows * columns);
      for (let place = 0; place < data.length; place++) {
        const [column, row] = [place % columns, Math.floor(place / columns) % rows];
        const [q, k] = [Math.floor((row * queries) / rows), Math.floor((column * keys) / columns)];
        data[place] = floatToHalf(Math.log(weightOf(made, index, Math.floor(place / rows / columns), q, k)));
      }
      for (const pool of ["max", "mean"]) tensors[`${index}.${pool}`] = { dtype: "F16", shape: [heads, rows, columns], data };
    }
    return packed(tensors);
  }
}

function packed(tensors: Record<string, Tensor>, json?: unknown): Arrays {
  return parseSafetensors(writeSafetensors(tensors, json));
}

function grid(
  at: (q: number, k: number) => number,
  queries: number,
  keys: number,
  cell: number,
  row: number,
  column: number,
): Arrays {
  const rows = Math.min(256, Math.ceil(queries / cell) - 256 * row);
  const columns = Math.min(256, Math.ceil(keys / cell) - 256 * column);
  if (rows <= 0 || columns <= 0) throw new Refusal(404, "a tile within the map expected");
  const data = new Uint16Array(rows * columns);
  for (let place = 0; place < data.length; place++) {
    const [x, y] = [place % columns, Math.floor(place / columns)];
    const [q, k] = [(256 * row + y + 1) * cell - 1, (256 * column + x) * cell];
    data[place] = floatToHalf(Math.log(at(Math.min(queries - 1, q), k)));
  }
  return packed({ log: { dtype: "F16", shape: [rows, columns], data } });
}

function series(heads: number, queries: number, most: number, name: string, call: number): Arrays {
  const cell = 2 ** Math.max(0, Math.ceil(Math.log2(queries / most)));
  const cells = Math.ceil(queries / cell);
  const phase = name.length + call;
  const data = Float32Array.from({ length: heads * cells }, (_, place) => {
    return 1 + Math.sin((place % cells) / 7 + phase + Math.floor(place / cells));
  });
  const tensor = { dtype: "F32", shape: [heads, cells], data };
  return packed({ mean: tensor, max: tensor }, { cell });
}
