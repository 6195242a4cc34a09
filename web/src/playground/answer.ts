// What the server says of a state, and its weights as the views draw them.
import { array, floats, type Arrays } from "../carrier/safetensors";
import type { Series } from "../api/client";
import type { Role } from "../api/types";

export interface Info {
  tokens: string[];
  memory_tokens: string[];
  roles: Role[];
  sentences: string[];
  parameters: { count: number; formula: string; meaning: string };
  cost: { tokens: number; flops: number; bytes: number; seconds: number; growth: Growth[] };
  bounds: { entropy_max: number | null };
}

export interface Growth {
  tokens: number;
  flops: number;
  bytes: number;
}

export interface Shown {
  info: Info;
  weights: Float32Array;
  allowed: Uint8Array;
  heads: number;
  queries: number;
  keys: number;
  entropy: Series;
  bound: Float32Array;
}

export function shownOf(answer: Arrays): Shown {
  const [heads = 0, queries = 0, keys = 0] = array(answer, "weights").shape;
  const entropy = floats(answer, "entropy");
  const bound = floats(answer, "bound");
  // The curve beside the map reaches the edge where the entropy is all that it could be.
  const most = bound.reduce((top, value) => Math.max(top, value), 0);
  const max = new Float32Array(entropy.length).fill(most);
  return {
    info: answer.json as Info,
    weights: floats(answer, "weights"),
    allowed: array(answer, "allowed").data as Uint8Array,
    heads,
    queries,
    keys,
    entropy: { mean: entropy, max, heads, cells: queries, cell: 1 },
    bound,
  };
}

/** The weights of one head, `(queries, keys)`. */
export function headOf({ weights, queries, keys }: Shown, head: number): Float32Array {
  return weights.subarray(head * queries * keys, (head + 1) * queries * keys);
}
