// What the routes of histories answer; see regard.web.history.
import type { Client } from "../api/client";
import type { Statistic } from "../api/types";
import { array, codes, floats } from "../carrier/safetensors";
import { halfValues } from "../carrier/half";

export interface HistoryLayer {
  layer: string;
  name: string;
  kind: string;
  heads: number;
  /** The place of its first head among all heads. */
  first: number;
  /** Tokens a side of each cell of its maps; 0 without maps. */
  cell: number;
  offset: number;
  queries: number;
  keys: number;
  /** Statistics that mean nothing in it. */
  without: string[];
  /** The largest cell of each head at any step. */
  tops: number[];
}

export interface HistoryDescription {
  title: string;
  steps: number[];
  pictured: number[];
  statistics: Record<string, Statistic>;
  layers: HistoryLayer[];
  losses: [number, number][];
  code: string;
}

/** A history with the numbers of all heads, `(steps, statistics, heads)`. */
export interface HistoryNumbers extends HistoryDescription {
  id: string;
  values: Float32Array;
  heads: number;
}

/** The mean weights of the heads of a layer, `(heads, rows, columns)`. */
export interface LayerMaps {
  weights: Float32Array;
  rows: number;
  columns: number;
}

const pathOf = (id: string, more = "") => `api/histories/${encodeURIComponent(id)}${more}`;

export async function historyOf(client: Client, id: string): Promise<HistoryNumbers> {
  const [described, answer] = await Promise.all([client.json(pathOf(id)), client.arrays(pathOf(id, "/values"))]);
  const [, , heads = 0] = array(answer, "values").shape;
  return { ...(described as HistoryDescription), id, values: floats(answer, "values"), heads };
}

export async function mapsOf(client: Client, history: HistoryDescription, id: string, step: number): Promise<LayerMaps[]> {
  const answer = await client.arrays(pathOf(id, `/maps/${step}`));
  const values = halfValues();
  return history.layers.map((_, layer) => {
    const [, rows = 0, columns = 0] = array(answer, String(layer)).shape;
    return { weights: Float32Array.from(codes(answer, String(layer)), (code) => values[code]!), rows, columns };
  });
}

/** Python that gives a statistic of all heads, and their maps at a step. */
export async function codeOf(client: Client, id: string, statistic: string, step: number | null): Promise<string> {
  const parameters = new URLSearchParams({ statistic, ...(step === null ? {} : { step: String(step) }) });
  return ((await client.json(pathOf(id, `/snippet?${parameters}`))) as { code: string }).code;
}
