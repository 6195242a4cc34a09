// Descriptions of made-up records.
import type { Call, Description, Role } from "../src/api/types";

export interface Made {
  id: string;
  title: string;
  layers: number;
  heads: number;
  tokens: number;
  cross: boolean;
}

export const WORDS = "The cat sat on the mat because it was warm , and the dog lay down beside the cat .".split(" ");
const ROLES = ["previous", "first", "self", "local", "induction", "spread"];

export function callOf(made: Made, index: number) {
  const section = sectionOf(made, index);
  const [queries, keys] = made.cross ? [section === "Encoder" ? 31 : 23, section === "Decoder" ? 23 : 31] : [made.tokens, made.tokens];
  return { section, queries, keys, heads: made.heads, isCausal: !made.cross || section === "Decoder" };
}

function sectionOf(made: Made, index: number): string {
  if (!made.cross) return "Self-attention";
  if (index < 2) return "Encoder";
  return index % 2 === 0 ? "Decoder" : "Cross-attention";
}

export function describe(made: Made): Description {
  const count = made.cross ? 6 : made.layers;
  const words = (length: number, shift: number) => Array.from({ length }, (_, i) => WORDS[(i + shift) % WORDS.length]!);
  return {
    id: made.id,
    title: made.title,
    info: { model: "made up" },
    tokens: [words(made.tokens, 0)],
    source_tokens: made.cross ? [words(31, 5)] : null,
    unseen: {},
    statistics: {
      entropy: { title: "entropy", meaning: "How spread out the attention of a query is.", formula: "−Σ w ln w", unit: "nats" },
      lse: { title: "log-sum-exp", meaning: "How strong the scores are.", formula: "ln Σ e^score", unit: "nats", diverging: true },
      received: { title: "received", meaning: "How much attention a token gets.", formula: "Σ w", unit: "queries" },
    },
    row_statistics: ["entropy", "lse"],
    column_statistics: ["received"],
    calls: Array.from({ length: count }, (_, index) => describeCall(made, index)),
  };
}

function describeCall(made: Made, index: number): Call {
  const { section, queries, keys, heads, isCausal } = callOf(made, index);
  const numbers = (f: (head: number) => number) => Array.from({ length: heads }, (_, head) => f(head));
  const roles: Role[] = numbers((head) => head).map((head) => {
    const score = 0.4 + 0.1 * (head % 6);
    return { role: ROLES[(head + index) % 6]!, score, low: score - 0.05, high: score + 0.05 };
  });
  const isCross = section === "Cross-attention";
  return {
    index,
    layer: `transformer.h.${index}.attn`,
    name: String(index),
    section,
    kind: isCross ? "cross" : "self",
    seen: "query-key",
    batch: 1,
    heads,
    kv_heads: heads,
    queries,
    keys,
    offset: 0,
    steps: 1,
    normalized: true,
    placed: true,
    vectors: true,
    query_text: made.cross && section === "Encoder" ? "source" : "tokens",
    key_text: made.cross && section !== "Decoder" ? "source" : "tokens",
    map_cell: 64,
    mask: isCausal ? "causal()" : null,
    means: { entropy: numbers((head) => ((head * 7 + index * 3) % 12) / 4), lse: numbers((head) => head - 5 + index / 2) },
    roles,
    scores: { induction: numbers((head) => ((head * 5 + index) % 11) / 11) },
  };
}
