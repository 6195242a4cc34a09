// What the routes of flows answer, and how they are asked; see regard.web.flow.
import type { Client } from "../api/client";
import { array, floats } from "../carrier/safetensors";
import type { FlowText, FlowWay } from "../address/address";

export type By = "weights" | "norms";

export interface Method {
  name: By;
  title: string;
  meaning: string;
  /** Why the record does not allow it; null where it does. */
  why: string | null;
}

export interface TextOf {
  name: FlowText;
  tokens: number;
  text: "tokens" | "source";
  layers: string[];
  calls: number[];
}

export interface FlowDescription {
  batch: number;
  texts: TextOf[];
  methods: Method[];
}

/** Which flow is asked for. */
export interface FlowOf {
  record: string;
  token: number;
  text: FlowText;
  direction: FlowWay;
  by: By;
  residual: number;
  corrected: boolean;
  batch: number;
}

/** Shares along some tokens of a text, `rows × cells`; row 0 is before the first layer. */
export interface Shares {
  shares: Float32Array;
  equal: Float32Array | null;
  rows: number;
  cells: number;
  cell: number;
  first: number;
  end: number;
}

export interface Share {
  token: number;
  share: number;
  corrected: number | null;
}

export interface Largest {
  total: number;
  largest: Share[];
}

export function pathOf({ record, token, text, direction, by, residual, corrected }: FlowOf, more = ""): string {
  const options = `text=${text}&direction=${direction}&by=${by}&residual=${residual}&corrected=${corrected}`;
  return `api/records/${encodeURIComponent(record)}/flow/${token}${more}?${options}`;
}

export function describeFlow(client: Client, record: string): Promise<FlowDescription> {
  return client.json(`api/records/${encodeURIComponent(record)}/flow`) as Promise<FlowDescription>;
}

/** Asked each time: the server remembers what it has computed, and ends what nobody waits for. */
export async function sharesOf(
  client: Client,
  flow: FlowOf,
  of: FlowText,
  first: number,
  end: number,
  most: number,
  signal: AbortSignal,
): Promise<Shares> {
  const path = `${pathOf(flow)}&of=${of}&first=${first}&end=${end}&most=${most}&batch=${flow.batch}`;
  const answer = await client.carrier.arrays(path, { signal });
  const [rows = 0, cells = 0] = array(answer, "shares").shape;
  const info = answer.json as { cell: number; first: number; end: number };
  const equal = flow.corrected ? floats(answer, "equal") : null;
  return { shares: floats(answer, "shares"), equal, rows, cells, ...info };
}

export function largestOf(
  client: Client,
  flow: FlowOf,
  of: FlowText,
  row: number,
  count: number,
  signal: AbortSignal,
): Promise<Largest> {
  const path = `${pathOf(flow, `/largest/${row}`)}&of=${of}&count=${count}&batch=${flow.batch}`;
  return client.carrier.json(path, { signal }) as Promise<Largest>;
}

/** Python that gives the numbers of a flow. */
export async function codeOf(client: Client, flow: FlowOf): Promise<string> {
  return ((await client.json(pathOf(flow, "/snippet"))) as { code: string }).code;
}
