// A table of numbers, in which what repeats is held once; as CSV, and as the server takes it for Parquet.

export type Values = readonly (string | number | boolean | null)[] | Float32Array | Uint8Array;

export interface Column {
  name: string;
  kind: "text" | "number" | "whole" | "flag";
  values: Values;
  /** How many rows in a row have one value; after the last value it begins again with the first. */
  repeat?: number;
}

export interface Table {
  rows: number;
  columns: Column[];
}

// As many as a table of weights may have anywhere.
export const MOST_ROWS = 2 ** 20;
// Rows that are put together at once.
const STRETCH = 8192;

export function valueAt({ values, kind, repeat = 1 }: Column, row: number): string | number | boolean | null {
  const value = values[Math.floor(row / repeat) % values.length] ?? null;
  if (kind === "flag" && value !== null) return Boolean(value);
  return value;
}

/** A column that has one value in all rows. */
export function constant(name: string, kind: Column["kind"], value: string | number | boolean | null, rows: number): Column {
  return { name, kind, values: [value], repeat: Math.max(1, rows) };
}

// As the server does: \x1c to \x1f and \x85 are blanks to Python alone.
const FORMULA = /^[\s\x1c-\x1f\x85]*[=+\-@＝＋－＠]|^['\t\r\n]/;

/**
 * A text that no spreadsheet takes for a formula: behind an apostrophe, where it begins like one. So is a text that begins
 * with an apostrophe: without the first apostrophe every text is what it was.
 */
export function guarded(text: string): string {
  return FORMULA.test(text) ? `'${text}` : text;
}

function written(value: string | number | boolean | null, isSingle: boolean): string {
  if (value === null) return "";
  if (typeof value === "boolean") return value ? "True" : "False";
  if (typeof value === "string") return quoted(guarded(value));
  if (Number.isNaN(value)) return "";
  return isSingle ? single(value) : String(value);
}

// The fewest digits that say a number of single precision; nine say every one.
function single(value: number): string {
  for (let digits = 6; digits < 9; digits++) {
    const short = Number(value.toPrecision(digits));
    if (Math.fround(short) === value) return String(short);
  }
  return String(Number(value.toPrecision(9)));
}

// An empty text stands in quotes, as nothing at all is a value that is not known.
function quoted(text: string): string {
  if (text !== "" && !/[",\r\n]|^\s|\s$/.test(text)) return text;
  return `"${text.replaceAll('"', '""')}"`;
}

export function csvOf(table: Table): Blob {
  return new Blob(linesOf(table), { type: "text/csv;charset=utf-8" });
}

/** CSV as RFC 4180 has it, in stretches of many lines. */
export function linesOf(table: Table): string[] {
  const parts = [`${table.columns.map(({ name }) => quoted(guarded(name))).join(",")}\r\n`];
  const singles = table.columns.map(({ values }) => values instanceof Float32Array);
  for (let start = 0; start < table.rows; start += STRETCH) {
    let text = "";
    for (let row = start; row < Math.min(table.rows, start + STRETCH); row++) {
      text += `${table.columns.map((column, index) => written(valueAt(column, row), singles[index]!)).join(",")}\r\n`;
    }
    parts.push(text);
  }
  return parts;
}

/** What the server makes a Parquet file of. */
export function requestOf({ rows, columns }: Table): unknown {
  const sent = columns.map(({ name, kind, values, repeat = 1 }) => {
    if (values instanceof Float32Array || values instanceof Uint8Array) {
      return { name, kind, data: base64(values), repeat };
    }
    return { name, kind, values, repeat };
  });
  return { rows, columns: sent };
}

function base64(values: Float32Array | Uint8Array): string {
  const bytes = new Uint8Array(values.buffer, values.byteOffset, values.byteLength);
  let text = "";
  // A call takes so many arguments and no more.
  for (let start = 0; start < bytes.length; start += 32768) text += String.fromCharCode(...bytes.subarray(start, start + 32768));
  return btoa(text);
}

/** Raises where a table would have too many rows to be of use. */
export function checkRows(rows: number): void {
  if (rows <= MOST_ROWS) return;
  throw new Error(`At most ${MOST_ROWS} numbers go into a table, and ${rows} are seen: zoom in, or take the Python.`);
}
