// The table of heads as plain values: which columns there are, its rows in any order, and those that are looked for.
import type { Call, Description, Role } from "../api/types";

export interface Row {
  call: Call;
  head: number;
  role: Role | null;
  values: (number | null)[];
}

/** Columns beside those of statistics. */
export const HEAD = "head";
export const ROLE = "role";

export function columnsOf(description: Description): string[] {
  return [...new Set(description.calls.flatMap(({ means }) => Object.keys(means)))];
}

export function rowsOf(description: Description, columns: string[]): Row[] {
  return description.calls.flatMap((call) =>
    Array.from({ length: call.heads }, (_, head) => ({
      call,
      head,
      role: call.roles?.[head] ?? null,
      values: columns.map((name) => call.means[name]?.[head] ?? null),
    })),
  );
}

/** The rows in the order of a column; what is not known stands last in either direction. */
export function sorted(rows: Row[], columns: string[], column: string, isDown: boolean): Row[] {
  const sign = isDown ? -1 : 1;
  if (column === HEAD) return isDown ? rows.toReversed() : rows;
  if (column === ROLE) return rows.toSorted((a, b) => sign * nameOf(a).localeCompare(nameOf(b)) || (b.role?.score ?? 0) - (a.role?.score ?? 0));
  const place = columns.indexOf(column);
  return rows.toSorted((a, b) => {
    const [one, other] = [a.values[place] ?? null, b.values[place] ?? null];
    if (one === null || other === null) return Number(one === null) - Number(other === null);
    return sign * (one - other);
  });
}

const nameOf = ({ role }: Row) => role?.role ?? "";

/** Those in whose layer, head or role all words of a text occur. */
export function matching(rows: Row[], text: string): Row[] {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  return rows.filter((row) => {
    const all = `${row.call.section} layer ${row.call.name} ${row.call.layer} head ${row.head} ${nameOf(row)}`.toLowerCase();
    return words.every((word) => all.includes(word));
  });
}
