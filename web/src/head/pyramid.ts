// The sizes of a map's levels. Knows tokens and cells; it does not know who draws them.
import type { Call } from "../api/types";
import type { Region } from "../address/address";

export const TILE = 256;

export interface Pyramid {
  queries: number;
  keys: number;
  /** Tokens of the first row of cells that come before query 0. */
  shift: number;
  /** Tokens a cell of the finest level: 1 where exact tiles can be had, else those of the kept map. */
  unit: number;
  /** The coarsest level is 0 and fits into one tile. */
  levels: number;
  /** Cells of the finest level, rounded up so that every level has a whole number of them. */
  width: number;
  height: number;
}

/** The levels of a call's maps; null where there is neither a map nor what one is made of. */
export function pyramidOf(call: Pick<Call, "queries" | "keys" | "vectors" | "map_cell" | "map_shift">): Pyramid | null {
  let unit = call.map_cell;
  if (call.vectors) unit = 1;
  if (unit === null) return null;
  const shift = call.map_shift ?? 0;
  const [rows, columns] = [Math.ceil((call.queries + shift) / unit), Math.ceil(call.keys / unit)];
  let levels = 1;
  let factor = 1;
  while (Math.max(rows, columns) > TILE * factor) {
    factor *= 2;
    levels++;
  }
  const up = (cells: number) => Math.ceil(cells / factor) * factor;
  return { queries: call.queries, keys: call.keys, shift, unit, levels, width: up(columns), height: up(rows) };
}

/** The kept map of a call whose finer levels come from vectors: it is there at once. Null where nothing is finer or it is not. */
export function beneath(call: Pick<Call, "queries" | "keys" | "vectors" | "map_cell">): Pyramid | null {
  if (!call.vectors || call.map_cell === null || call.map_cell === 1) return null;
  return pyramidOf({ ...call, vectors: false });
}

/** Tokens a cell of a level. */
export function cellOf(pyramid: Pyramid, level: number): number {
  return pyramid.unit * 2 ** (pyramid.levels - 1 - level);
}

/** Rows and columns of a tile that hold something; 0 where it lies beyond the map. */
export function tileSize(pyramid: Pyramid, level: number, row: number, column: number): [number, number] {
  const cell = cellOf(pyramid, level);
  const rest = (tokens: number, index: number) => Math.min(TILE, Math.max(0, Math.ceil(tokens / cell) - TILE * index));
  const [rows, columns] = [rest(pyramid.queries + pyramid.shift, row), rest(pyramid.keys, column)];
  if (rows === 0 || columns === 0) return [0, 0];
  return [rows, columns];
}

/** The whole map as a region. */
export function whole(pyramid: Pyramid): Region {
  return [0, 0, pyramid.keys, pyramid.queries];
}

/** A region about one pair, `side` tokens wide. */
export function around(query: number, key: number, side: number): Region {
  return [key + 0.5 - side / 2, query + 0.5 - side / 2, key + 0.5 + side / 2, query + 0.5 + side / 2];
}

export function isSame(one: Region, other: Region): boolean {
  // A thousandth of the view is less than a pixel.
  const slack = (one[2] - one[0]) / 1000;
  return one.every((value, index) => Math.abs(value - other[index]!) <= slack);
}
