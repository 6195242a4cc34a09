// Which heads stand where in the overview, and the number that each is colored or sorted by.
import type { Call, Description } from "../api/types";

export interface Head {
  call: Call;
  head: number;
  /** Of the measure that the overview is colored by; null where it is not known. */
  value: number | null;
}

export interface Group {
  title: string;
  /** One line a layer, or one line of all where heads are sorted. */
  lines: { title: string; heads: Head[] }[];
  low: number;
  high: number;
}

export const ROLE = "role:";

/** The value of a measure for each head of a call: a statistic's mean, or the score of `role:name`. */
export function valuesOf(call: Call, measure: string): (number | null)[] {
  let values = call.means[measure];
  if (measure.startsWith(ROLE)) values = call.scores[measure.slice(ROLE.length)];
  return values ?? Array<null>(call.heads).fill(null);
}

/** The measures that some call of the record has, statistics first. */
export function measuresOf(description: Description): { statistics: string[]; roles: string[] } {
  const statistics = new Set(description.calls.flatMap((call) => Object.keys(call.means)));
  const roles = new Set(description.calls.flatMap((call) => Object.keys(call.scores)));
  return { statistics: [...statistics], roles: [...roles].map((name) => ROLE + name) };
}

export function titleOf(description: Description, measure: string): string {
  const name = measure.replace(ROLE, "");
  return description.statistics[name]?.title ?? name.replaceAll("_", " ");
}

/** All heads in groups of one section each, as layers or sorted by a measure, the largest first. */
export function arrange(description: Description, color: string, sort: string): Group[] {
  const sections = [...new Set(description.calls.map((call) => call.section))];
  return sections.map((title) => {
    const calls = description.calls.filter((call) => call.section === title);
    const heads = calls.map((call) => {
      const values = valuesOf(call, color);
      return Array.from({ length: call.heads }, (_, head) => ({ call, head, value: values[head] ?? null }));
    });
    const known = heads.flat().flatMap(({ value }) => (value === null ? [] : [value]));
    const group = { title, low: Math.min(...known), high: Math.max(...known) };
    if (!sort) return { ...group, lines: heads.map((line, index) => ({ title: calls[index]!.name, heads: line })) };
    return { ...group, lines: [{ title: "", heads: sorted(heads.flat(), sort) }] };
  });
}

function sorted(heads: Head[], measure: string): Head[] {
  // What is not known stands last.
  const value = ({ call, head }: Head) => valuesOf(call, measure)[head] ?? -Infinity;
  return heads.toSorted((a, b) => value(b) - value(a) || a.call.index - b.call.index || a.head - b.head);
}

/** The place of a value on the ramp: between the group's ends, or about 0 where a measure has two sides. */
export function partOf(value: number, low: number, high: number, isDiverging: boolean): number {
  if (isDiverging) {
    const most = Math.max(Math.abs(low), Math.abs(high));
    return most > 0 ? 0.5 + value / most / 2 : 0.5;
  }
  return high > low ? (value - low) / (high - low) : 0;
}
