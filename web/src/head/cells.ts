// What is seen of a map, as whole cells: put together from the tiles, whatever the screen shows of the outermost ones.
import type { Grid } from "../api/client";
import type { Region } from "../address/address";
import type { Pyramid } from "./pyramid";

export interface Cells {
  /** Log-weights, as float16. */
  codes: Uint16Array;
  rows: number;
  columns: number;
  /** Which cell the first one is, from query 0 and key 0. */
  row: number;
  column: number;
  /** Tokens a side of a cell, and tokens of the first row of cells that come before query 0. */
  cell: number;
  shift: number;
}

// A sliver of a cell that nobody sees is none.
const SLIVER = 0.02;

/** Room for the cells of a region; null where the region lies beyond the map. */
export function emptyCells(region: Region, map: Pick<Pyramid, "queries" | "keys" | "shift">, cell: number): Cells | null {
  const { queries, keys, shift } = map;
  const [row, rows] = within(region[1] + shift, region[3] + shift, queries + shift, cell);
  const [column, columns] = within(region[0], region[2], keys, cell);
  if (rows <= 0 || columns <= 0) return null;
  return { codes: new Uint16Array(rows * columns), rows, columns, row, column, cell, shift };
}

function within(from: number, to: number, count: number, cell: number): [number, number] {
  const first = Math.floor(Math.max(0, from) / cell + SLIVER);
  const end = Math.ceil(Math.min(count, to) / cell - SLIVER);
  return [first, end - first];
}

/** Copies what a tile has of the cells, and says how many that were. */
export function fill(cells: Cells, grid: Grid, row: number, column: number): number {
  const [top, bottom] = [Math.max(cells.row, row), Math.min(cells.row + cells.rows, row + grid.rows)];
  const [left, right] = [Math.max(cells.column, column), Math.min(cells.column + cells.columns, column + grid.columns)];
  if (right <= left) return 0;
  for (let at = top; at < bottom; at++) {
    const from = (at - row) * grid.columns - column;
    const to = (at - cells.row) * cells.columns - cells.column;
    cells.codes.set(grid.codes.subarray(from + left, from + right), to + left);
  }
  return Math.max(0, bottom - top) * (right - left);
}

/** The queries and keys that cells hold; the first row of cells may begin before query 0. */
export function tokensOf(cells: Omit<Cells, "codes">, queries: number, keys: number): Region {
  const { row, rows, column, columns, cell, shift } = cells;
  const [right, bottom] = [Math.min(keys, (column + columns) * cell), Math.min(queries, (row + rows) * cell - shift)];
  return [column * cell, row * cell - shift, right, bottom];
}
