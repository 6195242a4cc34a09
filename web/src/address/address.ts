// The address's hash holds the whole state, so that a link reproduces the picture: `#/head?record=r1&call=3&head=5`.
import { SCALES, type Scale } from "../color/scale";
import type { Pool } from "../api/types";

export const PAGES = ["model", "head", "compare", "flow", "images", "history", "changes", "check", "playground", "learn"] as const;
export type Page = (typeof PAGES)[number];

/** Left, top, right, bottom: keys and queries of the call, as fractions of tokens. */
export type Region = [number, number, number, number];

export interface Mark {
  label: string;
  call: number;
  head: number;
  region: Region;
}

export const RANGES = ["seen", "one"] as const;
export type Range = (typeof RANGES)[number];
export const PANELS = ["map", "lines"] as const;
export type Panel = (typeof PANELS)[number];
export const DIRECTIONS = ["from", "to"] as const;
export type Direction = (typeof DIRECTIONS)[number];
export const FLOW_WAYS = ["back", "forward"] as const;
export type FlowWay = (typeof FLOW_WAYS)[number];
export const LEARN_PARTS = ["path", "quiz", "classes"] as const;
export type LearnPart = (typeof LEARN_PARTS)[number];
export const FLOW_TEXTS = ["target", "source"] as const;
export type FlowText = (typeof FLOW_TEXTS)[number];
/** Some neighboring tokens: from the first to before the last. */
export type Span = [number, number];

export interface Address {
  page: Page;
  record: string;
  call: number;
  head: number;
  batch: number;
  pool: Pool;
  scale: Scale;
  /** The weight of the darkest color: the largest that is seen, or 1. */
  range: Range;
  region: Region | null;
  query: number | null;
  key: number | null;
  /** Statistics along the edges of a map. */
  rows: string;
  columns: string;
  panel: Panel;
  /** Whether the text is colored by what the chosen token attends to, or by who attends to it. */
  direction: Direction;
  /** The statistic, or `role:name`, by which the overview is colored and sorted. */
  color: string;
  sort: string;
  /** Heads side by side: `record~call.head`, the record left out where it is that of the address. */
  heads: string[];
  marks: Mark[];
  /** The flow: from the chosen token back or forward, how layers are weighed, the text that the token is of. */
  way: FlowWay;
  by: "weights" | "norms";
  of: FlowText;
  residual: number;
  /** Shares, or multiples of the shares of equal weights. */
  measure: "share" | "times";
  /** The row that colors the text: before the first layer is 0; null is the end of the flow. */
  row: number | null;
  /** The tokens that are seen, of each text; null for all. */
  span: Span | null;
  sourceSpan: Span | null;
  /** Of the weights over a picture. */
  opacity: number;
  /** The history of a training, and the step that is looked at; null for the last. */
  history: string;
  step: number | null;
  /** The layer and the head that are large there: `layer.head`. */
  at: string;
  /** The exercise of Learn; "" for the path. */
  exercise: string;
  /** What Learn shows where no exercise is open. */
  learn: LearnPart;
  /** The class that its teacher looks at; "" for all. */
  classroom: string;
  /** The playground's own state, as the server takes it. */
  play: Record<string, string>;
}

interface Field<T> {
  name: string;
  initial: T;
  parse(text: string): T | undefined;
  print(value: T): string;
}

function text(name: string, initial = ""): Field<string> {
  return { name, initial, parse: (value) => value, print: (value) => value };
}

function word<T extends string>(name: string, words: readonly T[]): Field<T> {
  return { name, initial: words[0]!, parse: (value) => words.find((one) => one === value), print: (value) => value };
}

function index(value: string): number | undefined {
  if (/^\d{1,15}$/.test(value)) return Number(value);
  return undefined;
}

function count(name: string): Field<number> {
  return { name, initial: 0, parse: index, print: String };
}

function optional(name: string): Field<number | null> {
  return { name, initial: null, parse: index, print: String };
}

export function parseRegion(value: string): Region | undefined {
  const numbers = value.split(",").map(Number);
  const [left, top, right, bottom] = numbers;
  if (numbers.length !== 4 || !numbers.every(Number.isFinite)) return undefined;
  if (right! <= left! || bottom! <= top!) return undefined;
  return [left!, top!, right!, bottom!];
}

// Two decimals place a view to a fraction of a pixel, however far one zooms in.
export function printRegion(region: Region): string {
  return region.map((value) => String(Math.round(100 * value) / 100)).join(",");
}

function part(name: string, initial: number): Field<number> {
  const parse = (value: string) => {
    const parsed = Number(value);
    return value !== "" && parsed >= 0 && parsed <= 1 ? parsed : undefined;
  };
  return { name, initial, parse, print: String };
}

function span(name: string): Field<Span | null> {
  const parse = (value: string): Span | undefined => {
    const [first, end, ...rest] = value.split("-").map(index);
    if (rest.length > 0 || first === undefined || end === undefined || end <= first) return undefined;
    return [first, end];
  };
  return { name, initial: null, parse, print: (value) => value!.join("-") };
}

const REGION: Field<Region | null> = {
  name: "view",
  initial: null,
  parse: parseRegion,
  print: (value) => printRegion(value!),
};

const HEADS: Field<string[]> = {
  name: "heads",
  initial: [],
  parse: (value) => value.split(" ").filter((head) => /^([^~\s]+~)?\d+\.\d+$/.test(head)),
  print: (value) => value.join(" "),
};

function parseMark(value: string): Mark[] {
  const [label = "", head = "", region = ""] = value.split("~");
  const [call, index] = head.split(".").map(Number);
  const parsed = parseRegion(region);
  if (!parsed || !Number.isInteger(call) || !Number.isInteger(index)) return [];
  return [{ label, call: call!, head: index!, region: parsed }];
}

const MARKS: Field<Mark[]> = {
  name: "marks",
  initial: [],
  parse: (value) => value.split(";").flatMap(parseMark),
  print: (marks) =>
    marks
      .map(({ label, call, head, region }) => `${label.replace(/[~;]/g, " ")}~${call}.${head}~${printRegion(region)}`)
      .join(";"),
};

const FIELDS = {
  record: text("record"),
  call: count("call"),
  head: count("head"),
  batch: count("batch"),
  pool: word<Pool>("pool", ["max", "mean"]),
  scale: word<Scale>("scale", ["root", ...SCALES.filter((scale) => scale !== "root")]),
  range: word<Range>("range", RANGES),
  region: REGION,
  query: optional("query"),
  key: optional("key"),
  rows: text("rows", "entropy"),
  columns: text("columns", "received"),
  panel: word<Panel>("panel", PANELS),
  direction: word<Direction>("text", DIRECTIONS),
  color: text("color"),
  sort: text("sort"),
  heads: HEADS,
  marks: MARKS,
  way: word<FlowWay>("way", FLOW_WAYS),
  by: word<"weights" | "norms">("by", ["weights", "norms"]),
  of: word<FlowText>("of", FLOW_TEXTS),
  residual: part("residual", 0.5),
  measure: word<"share" | "times">("measure", ["share", "times"]),
  row: optional("row"),
  span: span("tokens"),
  sourceSpan: span("source"),
  opacity: part("opacity", 0.75),
  history: text("history"),
  step: optional("step"),
  at: text("at", "0.0"),
  exercise: text("exercise"),
  learn: word<LearnPart>("show", LEARN_PARTS),
  classroom: text("class"),
} as const;

type Named = keyof typeof FIELDS;

/** Of a record that is opened: places of one record say nothing of another. */
export const NOWHERE: Partial<Address> = {
  call: 0,
  head: 0,
  batch: 0,
  region: null,
  query: null,
  key: null,
  heads: [],
  marks: [],
  of: "target",
  row: null,
  span: null,
  sourceSpan: null,
};

// Parameters of the playground stand under their own names, behind this, so that they never clash with others.
const PLAY = "play.";

export function parseAddress(hash: string): Address {
  const [path = "", after = ""] = hash.replace(/^#?\/?/, "").split("?", 2);
  const values: Record<string, unknown> = { page: PAGES.find((page) => page === path) ?? "model", play: {} };
  const asked = new URLSearchParams(after);
  for (const [key, field] of Object.entries(FIELDS)) {
    const value = asked.get(field.name);
    const parsed = value === null ? undefined : field.parse(value);
    values[key] = parsed ?? structuredClone(field.initial);
  }
  const address = values as unknown as Address;
  for (const [key, value] of asked) if (key.startsWith(PLAY)) address.play[key.slice(PLAY.length)] = value;
  return address;
}

export function printAddress(address: Address): string {
  const written = new URLSearchParams();
  for (const key of Object.keys(FIELDS) as Named[]) {
    const field = FIELDS[key] as Field<unknown>;
    const value = address[key];
    const isEmpty = value === null || (Array.isArray(value) && value.length === 0);
    if (!isEmpty && value !== field.initial) written.set(field.name, field.print(value));
  }
  for (const [key, value] of Object.entries(address.play)) written.set(PLAY + key, value);
  // Commas and tildes need no escape in a hash, and are easier to read.
  const parameters = written.toString().replaceAll("%2C", ",").replaceAll("%7E", "~");
  return `#/${address.page}${parameters && `?${parameters}`}`;
}
