// The cells of one head's map, and the same with larger cells: sums are added, the rest pooled, as the server does it.
import { floatToHalf } from "../carrier/half";
import type { Block, Part } from "./block";

/** What a page holds of the map of a call. */
export interface HeldMap {
  /** Tokens a side of a cell; 1: every weight is there. */
  cell: number;
  /** Tokens of the first row of cells that come before query 0, and rows of cells before it in the text. */
  shift: number;
  lead: number;
  mean: Part;
  /** The largest weight of each cell, where a cell is more than one weight. */
  max?: Part;
  /** Queries of each row of cells that attend something. */
  count: Part;
  /** Which cells have a pair that the mask allows; null where all have. */
  allowed: Part | null;
}

export interface Grid {
  rows: number;
  columns: number;
  total: Float32Array;
  max: Float32Array;
  allowed: Uint8Array | null;
  /** Queries of each row that count, keys of each column. */
  counts: Float32Array;
  widths: Float32Array;
}

/** The cells of one head as they are held. */
export function gridOf(block: Block, map: HeldMap, head: number, keys: number): Grid {
  const [, rows = 0, columns = 0] = map.mean.shape;
  const mean = block.floats(map.mean, head);
  const counts = block.floats(map.count, head);
  const widths = Float32Array.from({ length: columns }, (_, column) => Math.min(map.cell, keys - column * map.cell));
  const total = mean.map((value, place) => value * counts[Math.floor(place / columns)]! * widths[place % columns]!);
  return {
    rows,
    columns,
    total,
    max: map.max ? block.floats(map.max, head) : mean,
    allowed: map.allowed ? block.bits(map.allowed, head) : null,
    counts,
    widths,
  };
}

/** Cells of `factor` × `factor` of these; the first row of them has `lead` rows fewer. */
export function pooled(grid: Grid, factor: number, lead = 0): Grid {
  if (factor === 1) return grid;
  const down = (row: number) => Math.floor((row + lead) / factor);
  const across = (column: number) => Math.floor(column / factor);
  const [rows, columns] = [down(grid.rows - 1) + 1, across(grid.columns - 1) + 1];
  const result: Grid = {
    rows,
    columns,
    total: new Float32Array(rows * columns),
    max: new Float32Array(rows * columns),
    allowed: grid.allowed && new Uint8Array(rows * columns),
    counts: new Float32Array(rows),
    widths: new Float32Array(columns),
  };
  for (let column = 0; column < grid.columns; column++) result.widths[across(column)]! += grid.widths[column]!;
  for (let row = 0; row < grid.rows; row++) {
    result.counts[down(row)]! += grid.counts[row]!;
    for (let column = 0; column < grid.columns; column++) {
      const [from, to] = [row * grid.columns + column, down(row) * columns + across(column)];
      result.total[to]! += grid.total[from]!;
      if (grid.max[from]! > result.max[to]!) result.max[to] = grid.max[from]!;
      if (result.allowed && grid.allowed![from]) result.allowed[to] = 1;
    }
  }
  return result;
}

/** Some of the cells as weights travel: float16 codes of logarithms, NaN where the mask allows no pair. */
export function logsOf(grid: Grid, pool: "max" | "mean", top = 0, left = 0, side = Infinity): { rows: number; columns: number; codes: Uint16Array } {
  const rows = Math.max(0, Math.min(side, grid.rows - top));
  const columns = Math.max(0, Math.min(side, grid.columns - left));
  const codes = new Uint16Array(rows * columns);
  for (let row = 0; row < rows; row++) {
    for (let column = 0; column < columns; column++) {
      const place = (top + row) * grid.columns + left + column;
      codes[row * columns + column] = floatToHalf(logAt(grid, pool, place));
    }
  }
  return { rows, columns, codes };
}

function logAt(grid: Grid, pool: "max" | "mean", place: number): number {
  if (grid.allowed && !grid.allowed[place]) return NaN;
  if (pool === "max") return Math.log(grid.max[place]!);
  const weights = Math.max(1, grid.counts[Math.floor(place / grid.columns)]!) * grid.widths[place % grid.columns]!;
  return Math.log(grid.total[place]! / weights);
}
