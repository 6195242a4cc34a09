// The findings as the view shows them: in groups of one rule, as a grid of heads, and as links to what they speak of.
import type { Address } from "../address/address";
import type { Call } from "../api/types";

export const SEVERITIES = ["severe", "warning", "note"] as const;
export type Severity = (typeof SEVERITIES)[number];

// A sign beside the color, for who sees no difference between colors.
export const SIGNS: Record<Severity, string> = { severe: "×", warning: "!", note: "·" };
export const COLORS: Record<Severity, string> = { severe: "#b3261e", warning: "#e69f00", note: "#9cc3e0" };

export interface Place {
  call: number;
  head: number | null;
  batch: number;
  query: number | null;
  key: number | null;
}

export interface Finding {
  name: string;
  severity: Severity;
  where: string;
  value: number | null;
  threshold: number;
  low: number | null;
  high: number | null;
  texts: number;
  evidence: Record<string, number | null>;
  sentence: string;
  advice: string;
  place: Place | null;
  twin: Place | null;
}

export interface Rule {
  name: string;
  meaning: string;
  skipped: string | null;
  findings: number;
}

/** What `GET /api/records/{record}/check` answers. */
export interface Check {
  summary: string;
  counts: Partial<Record<Severity, number>>;
  heads: number;
  texts: number;
  queries: number;
  findings: Finding[];
  rules: Rule[];
}

export interface Group {
  name: string;
  severity: Severity;
  findings: Finding[];
}

/** Findings of one rule and severity, in the order in which they come: a model may have a hundred heads that rest. */
export function groupsOf(findings: Finding[]): Group[] {
  const groups: Group[] = [];
  for (const finding of findings) {
    const last = groups.find(({ name, severity }) => name === finding.name && severity === finding.severity);
    if (last) last.findings.push(finding);
    else groups.push({ name: finding.name, severity: finding.severity, findings: [finding] });
  }
  return groups;
}

/** For each head of each call, its worst finding; a finding about a whole call is of all its heads. */
export function worstOf(findings: Finding[], calls: Call[]): (Finding | null)[][] {
  const grid = calls.map((call) => Array<Finding | null>(call.heads).fill(null));
  // Worst last, so that it is the one that stays.
  for (const finding of findings.toReversed()) {
    const { place } = finding;
    const line = place && grid[place.call];
    if (!line) continue;
    if (place.head === null) line.fill(finding);
    else line[place.head] = finding;
  }
  return grid;
}

// Tokens a side of what is shown of a long text around the pair that a finding speaks of.
const AROUND = 64;

/** The state in which a place is seen: its head, and where it names them its query and its key. */
export function stateOf(place: Place, call: Call): Partial<Address> {
  const { batch, query, key } = place;
  const state: Partial<Address> = { page: "head", call: place.call, head: place.head ?? 0, batch, query, key, region: null };
  if (query !== null && key !== null && Math.max(call.queries, call.keys) > 4 * AROUND) {
    const [left, top] = [within(key, call.keys), within(query, call.queries)];
    state.region = [left, top, left + AROUND, top + AROUND];
  }
  return state;
}

function within(index: number, count: number): number {
  return Math.max(0, Math.min(count - AROUND, index - AROUND / 2));
}

/** What a link to a place says beside the head: the query and the key, as tokens where they are known. */
export function pairOf(place: Place, query: (index: number) => string, key: (index: number) => string): string {
  const parts = [];
  if (place.query !== null) parts.push(`query ${named(place.query, query(place.query))}`);
  if (place.key !== null) parts.push(`key ${named(place.key, key(place.key))}`);
  return parts.join(", ");
}

function named(index: number, token: string): string {
  if (token === String(index)) return token;
  return `${index} “${token}”`;
}
