// What is known of a pair where single weights are not: the cell of the map that holds it.
import type { Client } from "../api/client";
import type { Call, HeadOf, Pool } from "../api/types";
import { halfValues } from "../carrier/half";
import { TILE } from "./pyramid";

/** The largest or mean weight of the cell that holds a pair; NaN where the mask allows none in it. */
export async function cellOfPair(client: Client, head: HeadOf, call: Call, query: number, key: number, pool: Pool): Promise<number> {
  const cell = call.map_cell!;
  const [row, column] = [Math.floor((query + (call.map_shift ?? 0)) / cell), Math.floor(key / cell)];
  const tile = await client.tile(head, cell, Math.floor(row / TILE), Math.floor(column / TILE), pool);
  return Math.exp(halfValues()[tile.codes[(row % TILE) * tile.columns + (column % TILE)]!]!);
}

/**
 * The mean weights of the cells between one token and those from `low` to `high`: keys of a query, or queries of a key.
 *
 * 0 stands where the mask allows no pair.
 */
export async function meansOf(
  client: Client,
  head: HeadOf,
  call: Call,
  isFrom: boolean,
  at: number,
  low: number,
  high: number,
): Promise<Float32Array> {
  const cell = call.map_cell!;
  const shift = call.map_shift ?? 0;
  const [own, other] = isFrom ? [shift, 0] : [0, shift];
  const fixed = Math.floor((at + own) / cell);
  const means = new Float32Array(high - low);
  const values = halfValues();
  const [first, last] = [low, high - 1].map((index) => Math.floor((index + other) / cell / TILE)) as [number, number];
  for (let tile = first; tile <= last; tile++) {
    const [row, column] = isFrom ? [Math.floor(fixed / TILE), tile] : [tile, Math.floor(fixed / TILE)];
    const { codes, columns } = await client.tile(head, cell, row, column, "mean");
    for (let index = low; index < high; index++) {
      const moving = Math.floor((index + other) / cell) - tile * TILE;
      if (moving < 0 || moving >= TILE) continue;
      const [r, c] = isFrom ? [fixed % TILE, moving] : [moving, fixed % TILE];
      const log = values[codes[r * columns + c]!]!;
      if (!Number.isNaN(log)) means[index - low] = Math.exp(log);
    }
  }
  return means;
}
