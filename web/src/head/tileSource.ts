// OpenSeadragon's source of tiles: asks for the log-weights of a tile and gives a canvas, which is colored when drawn.
import OpenSeadragon from "openseadragon";
import type { Grid } from "../api/client";
import { largest, paint } from "../color/scale";
import { cellOf, TILE, tileSize, type Pyramid } from "./pyramid";

/** The log-weights behind a canvas, and by which table it was colored last. */
export interface Painted {
  grid: Grid;
  top: number;
  table: Uint32Array | null;
}

export type AskTile = (cell: number, row: number, column: number, signal: AbortSignal) => Promise<Grid>;

const painted = new WeakMap<CanvasRenderingContext2D, Painted>();
const NOTHING: Grid = { codes: new Uint16Array(0), rows: 0, columns: 0 };

export function paintedOf(context: CanvasRenderingContext2D): Painted | undefined {
  return painted.get(context);
}

/** Colors the canvas of a tile by the table, unless it is already. */
export function color(context: CanvasRenderingContext2D, table: Uint32Array): void {
  const tile = painted.get(context);
  if (!tile || tile.table === table) return;
  tile.table = table;
  const { grid } = tile;
  if (grid.rows === 0) return;
  const image = new ImageData(grid.columns, grid.rows);
  paint(grid.codes, table, image);
  context.putImageData(image, 0, 0);
}

export class WeightSource extends OpenSeadragon.TileSource {
  private readonly asked = new Map<OpenSeadragon.ImageJob, AbortController>();
  /** Tiles that were left empty, by their level. */
  private readonly left = new Map<number, OpenSeadragon.Tile[]>();

  constructor(
    private readonly pyramid: Pyramid,
    private readonly name: string,
    private readonly ask: AskTile,
    /** Whether a level is too coarse for the view: its tiles are left empty, and what lies beneath is seen. */
    private readonly isCoarse: (level: number) => boolean = () => false,
  ) {
    super({
      width: pyramid.width,
      height: pyramid.height,
      tileSize: TILE,
      tileOverlap: 0,
      minLevel: 0,
      maxLevel: pyramid.levels - 1,
    });
  }

  // An address that is never fetched: it names the tile in the viewer's cache.
  override getTileUrl(level: number, column: number, row: number): string {
    return `${this.name}/${cellOf(this.pyramid, level)}/${row}/${column}`;
  }

  override downloadTileStart(job: OpenSeadragon.ImageJob): void {
    const { level, x: column, y: row } = job.tile;
    const [rows, columns] = tileSize(this.pyramid, level, row, column);
    if (rows === 0 || columns === 0) {
      this.finish(job, NOTHING);
      return;
    }
    // OpenSeadragon asks for all coarser levels too, and some need a fold over every pair: the sharp ones would wait.
    if (this.isCoarse(level)) {
      this.left.set(level, [...(this.left.get(level) ?? []), job.tile]);
      this.finish(job, NOTHING);
      return;
    }
    const control = new AbortController();
    this.asked.set(job, control);
    this.ask(cellOf(this.pyramid, level), row, column, control.signal)
      .then(
        (grid) => !control.signal.aborted && this.finish(job, grid),
        (error: Error) => !control.signal.aborted && job.fail(error.message, null),
      )
      .finally(() => this.asked.delete(job));
  }

  /** Lets tiles of a level that were left empty be asked for again; whether there were any. */
  release(level: number): boolean {
    const tiles = this.left.get(level);
    if (!tiles) return false;
    this.left.delete(level);
    for (const tile of tiles) (tile as unknown as { unload(erase: boolean): void }).unload(true);
    return true;
  }

  override downloadTileAbort(job: OpenSeadragon.ImageJob): void {
    this.asked.get(job)?.abort();
  }

  override getTileHashKey(level: number, x: number, y: number): string {
    return this.getTileUrl(level, x, y);
  }

  private finish(job: OpenSeadragon.ImageJob, grid: Grid): void {
    // A whole tile even at the map's end: OpenSeadragon would stretch a smaller one to its place.
    const bounds = this.getTileBounds(job.tile.level, job.tile.x, job.tile.y, true);
    const canvas = document.createElement("canvas");
    canvas.width = bounds.width;
    canvas.height = bounds.height;
    const context = canvas.getContext("2d", { willReadFrequently: true })!;
    painted.set(context, { grid, top: largest(grid.codes), table: null });
    job.finish(context, null as unknown as XMLHttpRequest, "context2d");
  }
}
