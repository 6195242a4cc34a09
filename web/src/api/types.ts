// What the explorer's routes answer; see the table of routes in docs/explorer.md.

export interface Limits {
  text: number;
  upload: number;
  [name: string]: number;
}

export interface RecordEntry {
  id: string;
  title: string;
  model: string;
  tokens: number;
  calls: number;
  kind: string;
  /** Whether its model can be run again with heads changed. */
  can_change?: boolean;
  /** Whether the model's next tokens are known. */
  next_tokens?: boolean;
  /** The record without the changes, where heads were changed and it is still open. */
  base?: string | null;
  changes?: HeadSetting[];
}

/** What is done to one head. */
export interface HeadSetting {
  call: number;
  head: number;
  off?: boolean;
  temperature?: number | null;
  /** Keys that it may attend, before a query and after it. */
  near?: number | null;
  top?: number | null;
  uniform?: boolean;
}

export interface Difference {
  base: string;
  /** Of each call, of each head; null where the vectors were not kept. */
  distance: ((number | null)[] | null)[];
}

export interface NextToken {
  token: number;
  text: string;
  probability: number;
  before: number | null;
}

export interface NextLine {
  position: number;
  tokens: NextToken[];
  divergence: number | null;
}

export interface ModelEntry {
  id: string;
  title: string;
  kind: string;
  takes: "text" | "image";
  /** A text to begin with. */
  example?: string;
}

export interface ServerState {
  version: string;
  records: RecordEntry[];
  models: ModelEntry[];
  /** Histories of trainings that can be looked at. */
  histories?: { id: string; title: string }[];
  limits: Partial<Limits>;
}

export interface Statistic {
  title: string;
  meaning: string;
  formula: string;
  unit: string;
  diverging?: boolean;
}

export interface Role {
  role: string;
  score: number | null;
  low: number | null;
  high: number | null;
}

export interface Call {
  index: number;
  layer: string;
  name: string;
  /** The part of the model: "Self-attention", "Encoder", "Decoder", "Cross-attention". */
  section: string;
  kind: string;
  seen: string;
  batch: number;
  heads: number;
  kv_heads: number;
  queries: number;
  keys: number;
  offset: number;
  steps: number;
  normalized: boolean;
  placed: boolean;
  vectors: boolean;
  /** Which of the record's texts queries and keys are. */
  query_text: "tokens" | "source";
  key_text: "tokens" | "source";
  map_cell: number | null;
  /** Tokens of the first row of cells that come before query 0; 0 where nothing is said. */
  map_shift?: number;
  /** So many digits of single weights are known; nothing where all are. */
  digits?: number;
  mask: string | null;
  means: Record<string, (number | null)[]>;
  roles: (Role | null)[] | null;
  scores: Record<string, (number | null)[]>;
}

export interface Description {
  id: string;
  title: string;
  info: Record<string, unknown>;
  tokens: string[][] | null;
  source_tokens: string[][] | null;
  unseen: Record<string, string>;
  statistics: Record<string, Statistic>;
  row_statistics: string[];
  column_statistics: string[];
  /** Which tokens are patches of a picture. */
  picture?: PictureOf | null;
  calls: Call[];
}

/** The token `start + row · columns + column` of a text is a patch of the record's picture. */
export interface PictureOf {
  rows: number;
  columns: number;
  start: number;
  text: "tokens" | "source";
  /** What each query of cross-attention writes; none where its token says it. */
  words: string[];
}

export interface Pair {
  weight: number | null;
  /** Nothing where scores are not known. */
  score?: number | null;
  allowed: boolean;
  query_token: string | null;
  key_token: string | null;
}

export interface Peak {
  query: number;
  key: number;
  weight: number;
}

export interface Job {
  id: string;
  state: "waiting" | "running" | "done" | "failed" | "canceled";
  progress: number | null;
  message: string | null;
  record: string | null;
}

export type Pool = "max" | "mean";

/** One head of one call of one record. */
export interface HeadOf {
  record: string;
  call: number;
  head: number;
  batch: number;
}
