// A map to pan and zoom: OpenSeadragon with regions in tokens, colors that change without a fetch, and nothing of attention.
import OpenSeadragon from "openseadragon";
import type { Region } from "../address/address";
import { emptyCells, fill, type Cells } from "./cells";
import { cellOf, isSame, TILE, whole, type Pyramid } from "./pyramid";
import { color, paintedOf, WeightSource, type AskTile, type Painted } from "./tileSource";

export interface Listener {
  /** Something has moved or changed: what lies above the map must be drawn again. */
  frame(region: Region): void;
  /** The reader has moved the map. */
  moved(region: Region): void;
  /** All tiles of the view are there. */
  complete(tiles: Painted[]): void;
  failed(message: string): void;
  pressed(query: number, key: number): void;
}

// Screen pixels of one cell of the finest level, at most.
const LARGEST_CELL = 72;

// OpenSeadragon would write a style into the page, which the server's policy forbids, unless it finds one of that name.
// An element of another namespace is found as well, and is no style.
function holdStyles(): void {
  if (document.querySelector("style[data-openseadragon-mobile-css]")) return;
  const element = document.createElementNS("urn:regard", "style");
  element.setAttribute("data-openseadragon-mobile-css", "");
  document.head.append(element);
}

export class MapViewer {
  readonly viewer: OpenSeadragon.Viewer;
  private pyramid: Pyramid | null = null;
  private image: OpenSeadragon.TiledImage | null = null;
  private table: Uint32Array | null = null;
  private timer: ReturnType<typeof setTimeout> | undefined;
  /** Whether the last movement was not the reader's. */
  private isLed = true;
  private wanted: Region | null = null;
  private opened = 0;
  private last: Region | null = null;
  private completeTiles: Painted[] = [];

  constructor(
    element: HTMLElement,
    private readonly listener: Listener,
  ) {
    holdStyles();
    const isCalm = matchMedia("(prefers-reduced-motion: reduce)").matches;
    this.viewer = OpenSeadragon({
      element,
      drawer: "canvas",
      showNavigationControl: false,
      // The view has keys of its own.
      keyboardNavEnabled: false,
      // Below a pixel a cell could be skipped, and a lone large weight with it; smoothing would pale it.
      minPixelRatio: 1,
      imageSmoothingEnabled: false,
      smoothTileEdgesMinZoom: Infinity,
      blendTime: 0,
      maxZoomPixelRatio: LARGEST_CELL,
      minZoomImageRatio: 0.7,
      visibilityRatio: 0.4,
      constrainDuringPan: true,
      // With no time at all OpenSeadragon would never say that it has arrived.
      animationTime: isCalm ? 0.02 : 0.35,
      springStiffness: 9,
      zoomPerScroll: 1.25,
      imageLoaderLimit: 6,
      // One a frame, the default, would take a third of a second for a view.
      maxTilesPerFrame: 6,
      maxImageCacheCount: 160,
      tileRetryMax: 1,
      timeout: 60000,
      gestureSettingsMouse: { clickToZoom: false, dblClickToZoom: true },
      gestureSettingsTouch: { clickToZoom: false, dblClickToZoom: true, flickEnabled: true, pinchRotate: false },
      gestureSettingsPen: { clickToZoom: false },
    });
    this.listen();
  }

  private listen(): void {
    const { viewer } = this;
    viewer.addHandler("tile-drawing", ({ rendered }) => {
      if (this.table) color(rendered, this.table);
    });
    viewer.addHandler("update-viewport", () => {
      const region = this.region();
      if (!region) return;
      this.listener.frame(region);
      // The viewer also draws without having moved, such as after a change of colors.
      if (this.last?.every((value, index) => value === region[index])) return;
      this.last = region;
      if (!this.isLed) this.listener.moved(region);
      this.waitUntilComplete();
    });
    viewer.addHandler("tile-loaded", () => this.waitUntilComplete());
    viewer.addHandler("tile-load-failed", ({ message }) => this.listener.failed(message));
    for (const gesture of ["canvas-press", "canvas-scroll", "canvas-pinch", "canvas-double-click"] as const) {
      viewer.addHandler(gesture, () => (this.isLed = false));
    }
    viewer.addHandler("canvas-click", (event) => {
      if (!event.quick) return;
      const pair = this.pairAt(event.position.x, event.position.y);
      if (pair) this.listener.pressed(...pair);
    });
    viewer.addHandler("canvas-key", (event) => (event.preventDefaultAction = true));
  }

  /** Shows a map; where the sizes stay, so does the view. */
  show(pyramid: Pyramid, name: string, ask: AskTile, region: Region | null): void {
    const before = this.pyramid;
    const isAlike = before && before.width === pyramid.width && before.height === pyramid.height && before.unit === pyramid.unit;
    const opened = ++this.opened;
    const old = this.image;
    this.pyramid = pyramid;
    this.viewer.addTiledImage({
      tileSource: new WeightSource(pyramid, name, ask),
      success: ({ item: image }: { item: OpenSeadragon.TiledImage }) => {
        if (opened !== this.opened) {
          this.viewer.world.removeItem(image);
          return;
        }
        // Cells at the end of a coarse level reach beyond the last token.
        image.setClip(new OpenSeadragon.Rect(0, 0, pyramid.keys / pyramid.unit, pyramid.queries / pyramid.unit));
        if (old && this.viewer.world.getIndexOfItem(old) >= 0) this.viewer.world.removeItem(old);
        this.image = image;
        image.addHandler("fully-loaded-change", () => this.waitUntilComplete());
        if (!isAlike || this.wanted || region) this.go(this.wanted ?? region, true);
        this.wanted = null;
      },
    } as unknown as OpenSeadragon.TileSourceSpecifier);
  }

  setTable(table: Uint32Array): void {
    this.table = table;
    this.viewer.forceRedraw();
  }

  /** What is seen, in keys and queries; it may reach beyond the map. */
  region(): Region | null {
    if (!this.pyramid || !this.image) return null;
    const bounds = this.viewer.viewport.getBounds(true);
    const tokens = this.tokens();
    return [bounds.x, bounds.y, bounds.x + bounds.width, bounds.y + bounds.height].map((at) => at * tokens) as Region;
  }

  /** Moves to a region, or to the whole map; says nothing to the listener's `moved`. */
  go(region: Region | null, immediately = false): void {
    if (!this.pyramid || !this.image) {
      this.wanted = region;
      return;
    }
    const now = this.region();
    if (region && now && isSame(now, region)) return;
    this.isLed = true;
    const [left, top, right, bottom] = (region ?? whole(this.pyramid)).map((at) => at / this.tokens()) as Region;
    const box = new OpenSeadragon.Rect(left, top, right - left, bottom - top);
    this.viewer.viewport.fitBounds(box, immediately);
  }

  /** Moves as the reader's own doing, by parts of the view and a factor. */
  step(dx: number, dy: number, factor = 1): void {
    this.isLed = false;
    const bounds = this.viewer.viewport.getBounds();
    if (factor !== 1) this.viewer.viewport.zoomBy(factor);
    else this.viewer.viewport.panBy(new OpenSeadragon.Point(dx * bounds.width, dy * bounds.height));
    this.viewer.viewport.applyConstraints();
  }

  /** The query and key under a point of the element; null beyond the map. */
  pairAt(x: number, y: number): [query: number, key: number] | null {
    if (!this.pyramid || !this.image) return null;
    const point = this.viewer.viewport.pointFromPixel(new OpenSeadragon.Point(x, y), true);
    const [query, key] = [Math.floor(point.y * this.tokens()), Math.floor(point.x * this.tokens())];
    if (query < 0 || key < 0 || query >= this.pyramid.queries || key >= this.pyramid.keys) return null;
    return [query, key];
  }

  /** Tokens a cell of the level that is drawn, and the log-weight of the cell of a pair, where its tile is there. */
  cellAt(query: number, key: number): { cell: number; log: number } | null {
    let best: { cell: number; log: number } | null = null;
    for (const { tile, painted } of this.drawn()) {
      const cell = this.pyramid!.unit * 2 ** (this.pyramid!.levels - 1 - tile.level);
      const [row, column] = [Math.floor(query / cell) - 256 * tile.y, Math.floor(key / cell) - 256 * tile.x];
      const { grid } = painted;
      if (row < 0 || column < 0 || row >= grid.rows || column >= grid.columns) continue;
      if (!best || cell < best.cell) best = { cell, log: grid.codes[row * grid.columns + column]! };
    }
    return best;
  }

  /** All cells of which something is seen; null until their tiles are there. */
  seen(): Cells | null {
    const region = this.region();
    if (!region || !this.pyramid) return null;
    const drawn = this.drawn();
    if (drawn.length === 0) return null;
    const level = Math.max(...drawn.map(({ tile }) => tile.level));
    const cells = emptyCells(region, this.pyramid, cellOf(this.pyramid, level));
    if (!cells) return null;
    let missing = cells.codes.length;
    for (const { tile, painted } of drawn) {
      if (tile.level === level) missing -= fill(cells, painted.grid, TILE * tile.y, TILE * tile.x);
    }
    return missing === 0 ? cells : null;
  }

  close(): void {
    clearTimeout(this.timer);
    this.viewer.destroy();
  }

  /** Tokens a unit of OpenSeadragon's viewport, which is as wide as the map. */
  private tokens(): number {
    return this.pyramid!.width * this.pyramid!.unit;
  }

  private drawn(): { tile: OpenSeadragon.Tile; painted: Painted }[] {
    if (!this.image) return [];
    return this.image.getTilesToDraw().flatMap(({ tile }) => {
      const cache = tile.getCache() as unknown as { data?: unknown } | undefined;
      const painted = paintedOf(cache?.data as CanvasRenderingContext2D);
      return painted ? [{ tile, painted }] : [];
    });
  }

  private waitUntilComplete(): void {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => {
      if (!this.image?.getFullyLoaded()) {
        this.waitUntilComplete();
        return;
      }
      // Coarser tiles may lie below; how they were come by must not change the colors.
      const drawn = this.drawn();
      const finest = Math.max(...drawn.map(({ tile }) => tile.level));
      const tiles = drawn.filter(({ tile }) => tile.level === finest).map(({ painted }) => painted);
      // The same list where the same tiles are seen, so that colors are not worked out again.
      const isSameTiles = tiles.length === this.completeTiles.length && tiles.every((tile) => this.completeTiles.includes(tile));
      if (!isSameTiles) this.completeTiles = tiles;
      this.listener.complete(this.completeTiles);
    }, 90);
  }
}
