// What is taken away of one head: its map, or the lines between its tokens.
import type { Client, Series } from "../api/client";
import type { Address } from "../address/address";
import type { Call, Description, HeadOf } from "../api/types";
import { halfValues } from "../carrier/half";
import { colorTable, type Shading } from "../color/scale";
import { weightLegend } from "../export/legend";
import { mapPart } from "../export/map";
import { dataOfCodes } from "../export/pixels";
import { sheetOf, type Part } from "../export/sheet";
import { checkRows, constant, type Column, type Table } from "../export/table";
import { modelOf, type Exported } from "../export/view";
import { short, whole } from "../text/numbers";
import { layerName, type Texts } from "../text/texts";
import { topOf } from "./axes";
import { tokensOf, type Cells } from "./cells";

/** What a map shows now. */
export interface Seen {
  cells: Cells;
  rows: Series | null;
  columns: Series | null;
}

export interface OneHead {
  client: Client;
  description: Description;
  address: Address;
  head: HeadOf;
  call: Call;
  texts: Texts;
}

const WAIT = "The map is still being drawn: try again in a moment.";

export function shownOf(seen: Seen | null): Seen {
  if (!seen) throw new Error(WAIT);
  return seen;
}

export function nameOf({ description, call, head }: Pick<OneHead, "description" | "call" | "head">): string[] {
  return [modelOf(description), layerName(call.name), `head ${head.head}`];
}

export function headed({ call, head }: Pick<OneHead, "call" | "head">): string {
  const layer = layerName(call.name);
  return `${layer.charAt(0).toUpperCase()}${layer.slice(1)}, head ${head.head}`;
}

/** The map of a head on a sheet. */
export function partOf({ call, head, texts, address }: OneHead, seen: Seen, shading: Shading, long?: number): Part {
  const { codes, rows, columns } = seen.cells;
  const data = (pen: { theme: "light" | "dark" }) => dataOfCodes(codes, rows, columns, colorTable(shading, pen.theme));
  const contents = { ...seen, call, head: head.head, texts, data, query: address.query, key: address.key };
  return mapPart(contents, long);
}

/** What is seen, in words: which queries and keys, and how many of them share a cell. */
export function extent({ call, address }: Pick<OneHead, "call" | "address">, { cells }: Seen): string {
  const [left, top, right, bottom] = tokensOf(cells, call.queries, call.keys);
  const range = (from: number, to: number, count: number) => `${whole(from)} – ${whole(to - 1)} of ${whole(count)}`;
  const seen = `Queries ${range(Math.max(0, top), bottom, call.queries)}, keys ${range(left, right, call.keys)}.`;
  if (cells.cell === 1) return seen;
  const pool = address.pool === "max" ? "largest" : "mean";
  return `${seen} A cell is ${whole(cells.cell)} × ${whole(cells.cell)} tokens and shows their ${pool} weight.`;
}

function edges({ description, address, head }: OneHead, { rows, columns }: Seen): string[] {
  const title = (name: string) => description.statistics[name]?.title ?? name;
  const lines = [];
  if (rows) lines.push(`Right: ${title(address.rows)} of each query, up to ${short(topOf(rows, head.head))}.`);
  if (columns) lines.push(`Below: ${title(address.columns)} of each key, up to ${short(topOf(columns, head.head))}.`);
  return lines.length > 0 ? [lines.join(" ")] : [];
}

/** The statistics along the edges of several maps, each of which has a scale of its own. */
export function edgeNames({ description, address }: Pick<OneHead, "description" | "address">, { rows, columns }: Seen): string[] {
  const title = (name: string) => description.statistics[name]?.title ?? name;
  const names = [];
  if (rows) names.push(`right, ${title(address.rows)} of each query`);
  if (columns) names.push(`below, ${title(address.columns)} of each key`);
  if (names.length === 0) return [];
  return [`Along the edges, each up to its own largest: ${names.join("; ")}.`];
}

export function mapExported(one: OneHead, seen: () => Seen | null, shading: () => Shading): Exported {
  const { client, head, description } = one;
  return {
    name: [...nameOf(one), "map"],
    draw(theme) {
      const now = shownOf(seen());
      const lines = [extent(one, now), ...edges(one, now)];
      const parts = [partOf(one, now, shading()), weightLegend(shading())];
      return sheetOf({ title: headed(one), lines, parts, note: description.title }, theme);
    },
    numbers: [
      { title: "Weights", table: () => tableOf(one, shownOf(seen()).cells) },
      ...edgeNumbers(one, seen()),
    ],
    python: () => client.snippet(head.record, { ...viewOf(one, shownOf(seen()).cells), scale: one.address.scale }),
  };
}

/** How a snippet names what is seen. */
export function viewOf({ call, head, address }: Pick<OneHead, "call" | "head" | "address">, cells: Cells) {
  const { row, rows, column, columns, cell } = cells;
  const of = { call: head.call, head: head.head, batch: head.batch };
  const [q1, k1] = [row + rows, column + columns];
  if (cell > 1 || !call.vectors) return { what: "cells", ...of, q0: row, q1, k0: column, k1, cell, pool: address.pool };
  return { what: "window", ...of, q0: row, q1, k0: column, k1 };
}

/** The weights of the cells that are seen: exact ones where a cell is one token. */
export async function tableOf(one: Pick<OneHead, "client" | "call" | "head" | "texts">, cells: Cells): Promise<Table> {
  const { rows, columns, cell } = cells;
  const count = rows * columns;
  checkRows(count);
  const values = halfValues();
  const allowed = Uint8Array.from(cells.codes, (code) => (Number.isNaN(values[code]!) ? 0 : 1));
  let weights: Float32Array;
  if (cell === 1 && one.call.vectors) {
    const [left, top, right, bottom] = tokensOf(cells, one.call.queries, one.call.keys);
    weights = await one.client.window(one.head, top, bottom, left, right);
  } else weights = Float32Array.from(cells.codes, (code) => Math.exp(values[code]!));
  return {
    rows: count,
    columns: [
      constant("layer", "text", one.call.layer, count),
      constant("head", "whole", one.head.head, count),
      ...axis("query", cells.row, rows, cell, one.texts.queries, columns, cells.shift),
      ...axis("key", cells.column, columns, cell, one.texts.keys, 1),
      constant("cell", "whole", cell, count),
      { name: "allowed", kind: "flag", values: allowed },
      { name: "weight", kind: "number", values: weights },
    ],
  };
}

// Where a cell has several tokens, its first one is named.
function axis(name: string, first: number, count: number, cell: number, tokens: string[] | null, repeat: number, shift = 0): Column[] {
  // The first token that a cell holds.
  const values = Array.from({ length: count }, (_, index) => Math.max(0, (first + index) * cell - shift));
  const columns: Column[] = [{ name, kind: "whole", values, repeat }];
  if (tokens) columns.push({ name: `${name}_token`, kind: "text", values: values.map((index) => tokens[index] ?? null), repeat });
  return columns;
}

function edgeNumbers(one: OneHead, seen: Seen | null): Exported["numbers"] {
  const { address, call, description, head, texts } = one;
  const list: Exported["numbers"] = [];
  const add = (name: string, side: "query" | "key", series: Series | null | undefined, tokens: string[] | null) => {
    if (!series) return;
    const title = description.statistics[name]?.title ?? name;
    const { cell, cells, mean, max } = series;
    const range = [head.head * cells, (head.head + 1) * cells] as const;
    const table = (): Table => ({
      rows: cells,
      columns: [
        constant("layer", "text", call.layer, cells),
        constant("head", "whole", head.head, cells),
        ...axis(side, 0, cells, cell, tokens, 1),
        constant("cell", "whole", cell, cells),
        constant("statistic", "text", name, cells),
        { name: "mean", kind: "number", values: mean.slice(...range) },
        { name: "max", kind: "number", values: max.slice(...range) },
      ],
    });
    list.push({ title: `${title} of each ${side}`, table });
  };
  add(address.rows, "query", seen?.rows, texts.queries);
  add(address.columns, "key", seen?.columns, texts.keys);
  return list;
}
