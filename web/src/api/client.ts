// The questions that views ask, each by its name; answers that do not change are kept for a while.
import { isAbort, type Ask, type Carrier } from "../carrier/carrier";
import { array, codes, floats, type Arrays } from "../carrier/safetensors";
import { Cache } from "./cache";
import type { Description, Difference, HeadOf, HeadSetting, Job, NextLine, Pair, Peak, Pool, ServerState } from "./types";

export interface Series {
  /** `(heads, cells)` each. */
  mean: Float32Array;
  max: Float32Array;
  heads: number;
  cells: number;
  /** Tokens a cell. */
  cell: number;
}

export interface Grid {
  codes: Uint16Array;
  rows: number;
  columns: number;
}

export class Client {
  private readonly cache = new Cache(48 * 2 ** 20);

  constructor(readonly carrier: Carrier) {}

  state(): Promise<ServerState> {
    return this.carrier.json("api/state") as Promise<ServerState>;
  }

  describe(record: string): Promise<Description> {
    return this.json(`api/records/${encodeURIComponent(record)}`) as Promise<Description>;
  }

  overview(record: string, side: number, batch: number): Promise<Arrays> {
    return this.arrays(`api/records/${encodeURIComponent(record)}/overview?side=${side}&batch=${batch}`);
  }

  async tile(head: HeadOf, cell: number, row: number, column: number, pool: Pool, signal?: AbortSignal): Promise<Grid> {
    const path = `${pathOf(head)}/tiles/${cell}/${row}/${column}?pool=${pool}&batch=${head.batch}`;
    // Tiles are kept by the viewer, which knows when one is no longer needed.
    const ask: Ask = {};
    if (signal) ask.signal = signal;
    const answer = await this.carrier.arrays(path, ask);
    const [rows = 0, columns = 0] = array(answer, "log").shape;
    return { codes: codes(answer, "log"), rows, columns };
  }

  async row(head: HeadOf, query: number): Promise<Float32Array> {
    return floats(await this.arrays(`${pathOf(head)}/rows/${query}?batch=${head.batch}`), "weights");
  }

  async column(head: HeadOf, key: number): Promise<Float32Array> {
    return floats(await this.arrays(`${pathOf(head)}/columns/${key}?batch=${head.batch}`), "weights");
  }

  async window(head: HeadOf, q0: number, q1: number, k0: number, k1: number): Promise<Float32Array> {
    const path = `${pathOf(head)}/window?q0=${q0}&q1=${q1}&k0=${k0}&k1=${k1}&batch=${head.batch}`;
    return floats(await this.arrays(path), "weights");
  }

  pair(head: HeadOf, query: number, key: number): Promise<Pair> {
    return this.json(`${pathOf(head)}/pairs/${query}/${key}?batch=${head.batch}`) as Promise<Pair>;
  }

  peaks(head: HeadOf, count: number, away: number, first: number): Promise<Peak[]> {
    const path = `${pathOf(head)}/peaks?count=${count}&away=${away}&first=${first}&batch=${head.batch}`;
    return this.json(path) as Promise<Peak[]>;
  }

  async series(record: string, call: number, name: string, batch: number, most = 16384): Promise<Series> {
    const path = `api/records/${encodeURIComponent(record)}/calls/${call}/series/${name}?most=${most}&batch=${batch}`;
    const answer = await this.arrays(path);
    const [heads = 0, cells = 0] = array(answer, "mean").shape;
    const { cell } = answer.json as { cell: number };
    return { mean: floats(answer, "mean"), max: floats(answer, "max"), heads, cells, cell };
  }

  /** Runs what made a record again, with heads changed. */
  change(record: string, changes: HeadSetting[]): Promise<{ job: string }> {
    const path = `api/records/${encodeURIComponent(record)}/changes`;
    return this.carrier.json(path, { method: "POST", body: { changes } }) as Promise<{ job: string }>;
  }

  difference(record: string): Promise<Difference> {
    return this.json(`api/records/${encodeURIComponent(record)}/difference`) as Promise<Difference>;
  }

  next(record: string, position: number): Promise<NextLine> {
    return this.json(`api/records/${encodeURIComponent(record)}/next/${position}`) as Promise<NextLine>;
  }

  /** What the changes did to the next token after each position, in nats. */
  async divergence(record: string): Promise<Float32Array> {
    return floats(await this.arrays(`api/records/${encodeURIComponent(record)}/divergence`), "divergence");
  }

  run(model: string, text: string, image: string | null): Promise<{ job: string }> {
    return this.carrier.json("api/runs", { method: "POST", body: { model, text, image } }) as Promise<{ job: string }>;
  }

  job(id: string): Promise<Job> {
    return this.carrier.json(`api/jobs/${encodeURIComponent(id)}`) as Promise<Job>;
  }

  /** Resolves with the last state of a job, and hears those before. */
  async finish(id: string, hear: (job: Job) => void): Promise<Job> {
    const path = `api/jobs/${encodeURIComponent(id)}`;
    let stop = () => {};
    if (this.carrier.follow) stop = this.carrier.follow(`${path}/events`, (state) => hear(state as Job));
    try {
      // Asked for as well: a stream that breaks must not leave the reader waiting.
      for (;;) {
        const job = await this.job(id);
        hear(job);
        if (isOver(job)) return job;
        await new Promise((resolve) => setTimeout(resolve, 300));
      }
    } finally {
      stop();
    }
  }

  cancel(id: string): Promise<unknown> {
    return this.carrier.json(`api/jobs/${encodeURIComponent(id)}`, { method: "DELETE" });
  }

  playground(state: unknown, signal?: AbortSignal): Promise<Arrays> {
    const ask: Ask = { method: "POST", body: state };
    if (signal) ask.signal = signal;
    return this.carrier.arrays("api/playground", ask);
  }

  playgroundSnippet(state: unknown): Promise<{ code: string }> {
    return this.carrier.json("api/playground/snippet", { method: "POST", body: state }) as Promise<{ code: string }>;
  }

  /** Python that gives the numbers of a view. */
  async snippet(record: string, view: Record<string, string | number>): Promise<string> {
    const parameters = new URLSearchParams(Object.entries(view).map(([name, value]) => [name, String(value)]));
    const answer = await this.json(`api/records/${encodeURIComponent(record)}/snippet?${parameters}`);
    return (answer as { code: string }).code;
  }

  /** Python that gives the weights of several heads, each of its record. */
  async snippetOfHeads(views: Record<string, string | number>[]): Promise<string> {
    const answer = await this.carrier.json("api/snippet", { method: "POST", body: { views } });
    return (answer as { code: string }).code;
  }

  pdf(drawing: unknown): Promise<ArrayBuffer> {
    return this.carrier.bytes("api/pdf", { method: "POST", body: drawing });
  }

  parquet(table: unknown): Promise<ArrayBuffer> {
    return this.carrier.bytes("api/parquet", { method: "POST", body: table });
  }

  json(path: string): Promise<unknown> {
    return this.cache.get(path, () => this.carrier.json(path), 2000);
  }

  arrays(path: string): Promise<Arrays> {
    return this.cache.get(path, () => this.carrier.arrays(path), (answer) => {
      return Object.values(answer.arrays).reduce((bytes, { data }) => bytes + data.byteLength, 1000);
    });
  }
}

export function pathOf({ record, call, head }: HeadOf): string {
  return `api/records/${encodeURIComponent(record)}/calls/${call}/heads/${head}`;
}

export function isOver({ state }: Job): boolean {
  return state === "done" || state === "failed" || state === "canceled";
}

/** What to tell the reader of an error; null where the request was given up on purpose. */
export function reason(error: unknown): string | null {
  if (isAbort(error)) return null;
  if (error instanceof Error) return error.message;
  return String(error);
}
