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
  /** All tiles of the view are there; or the kept map is, which lies beneath those that are not yet. */
  complete(tiles: Painted[], isSharp: boolean): void;
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
  private source: WeightSource | null = null;
  /** The kept map, below the image. */
  private ground: { pyramid: Pyramid; image: OpenSeadragon.TiledImage } | null = null;
  private table: Uint32Array | null = null;
  private timer: ReturnType<typeof setTimeout> | undefined;
  /** Whether the last movement was not the reader's. */
  private isLed = true;
  /** Where the view is to be: the whole map for null. */
  private wanted: Region | null = null;
  /** How many maps were asked for, and which of them is seen. */
  private opened = 0;
  private come = 0;
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

  /** Shows a map, above the kept one where there is one; where the sizes stay, so does the view. */
  show(pyramid: Pyramid, kept: Pyramid | null, name: string, ask: AskTile, region: Region | null): void {
    const opened = ++this.opened;
    this.wanted = region;
    const source = new WeightSource(pyramid, name, ask, kept ? (level) => level < this.level() : undefined);
    let ground: typeof this.ground = null;
    if (kept) {
      const width = (kept.width * kept.unit) / (pyramid.width * pyramid.unit);
      this.add(opened, kept, { tileSource: new WeightSource(kept, `kept/${name}`, ask), width, index: 0 }, (image) => {
        ground = { pyramid: kept, image };
        image.addHandler("fully-loaded-change", () => this.colorGround());
      });
    }
    this.add(opened, pyramid, { tileSource: source }, (image) => {
      // What was asked for and never seen says nothing of where the view is.
      const before = this.pyramid;
      const isAlike = before && before.width === pyramid.width && before.height === pyramid.height && before.unit === pyramid.unit && before.shift === pyramid.shift;
      this.remove([image, ground?.image]);
      [this.pyramid, this.image, this.source, this.ground] = [pyramid, image, source, ground];
      this.come = opened;
      image.addHandler("fully-loaded-change", () => this.waitUntilComplete());
      if (!isAlike || this.wanted) this.go(this.wanted, true);
    });
  }

  /** Takes all images away but those of a map that has just come. */
  private remove(but: (OpenSeadragon.TiledImage | undefined)[]): void {
    const { world } = this.viewer;
    const all = Array.from({ length: world.getItemCount() }, (_, index) => world.getItemAt(index));
    for (const image of all) if (!but.includes(image)) world.removeItem(image);
  }

  private add(opened: number, of: Pyramid, options: object, success: (image: OpenSeadragon.TiledImage) => void): void {
    this.viewer.addTiledImage({
      ...options,
      success: ({ item: image }: { item: OpenSeadragon.TiledImage }) => {
        if (opened !== this.opened) {
          this.viewer.world.removeItem(image);
          return;
        }
        // Cells at the end of a coarse level reach beyond the last token.
        const { keys, queries, shift, unit } = of;
        image.setClip(new OpenSeadragon.Rect(0, shift / unit, keys / unit, queries / unit));
        success(image);
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
    const [left, top] = [bounds.x * tokens, bounds.y * tokens - this.pyramid.shift];
    return [left, top, left + bounds.width * tokens, top + bounds.height * tokens];
  }

  /** Moves to a region, or to the whole map; says nothing to the listener's `moved`. */
  go(region: Region | null, immediately = false): void {
    this.wanted = region;
    if (!this.pyramid || !this.image) return;
    const now = this.region();
    if (region && now && isSame(now, region)) return;
    this.isLed = true;
    const tokens = this.tokens();
    const [left, top, right, bottom] = region ?? whole(this.pyramid);
    const [x, y] = [left / tokens, (top + this.pyramid.shift) / tokens];
    const box = new OpenSeadragon.Rect(x, y, (right - left) / tokens, (bottom - top) / tokens);
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
    const [query, key] = [Math.floor(point.y * this.tokens() - this.pyramid.shift), Math.floor(point.x * this.tokens())];
    if (query < 0 || key < 0 || query >= this.pyramid.queries || key >= this.pyramid.keys) return null;
    return [query, key];
  }

  /** Tokens a cell of the level that is drawn, and the log-weight of the cell of a pair, where its tile is there. */
  cellAt(query: number, key: number): { cell: number; log: number } | null {
    let best: { cell: number; log: number } | null = null;
    for (const { cell, tile, painted } of this.allDrawn()) {
      const [row, column] = [Math.floor((query + this.pyramid!.shift) / cell) - TILE * tile.y, Math.floor(key / cell) - TILE * tile.x];
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
    const drawn = this.image ? drawnBy(this.image) : [];
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

  /** Draws what is seen at once, and not with the next frame. */
  drawNow(): void {
    this.viewer.world.draw();
  }

  get canvas(): HTMLCanvasElement {
    return this.viewer.drawer.canvas as HTMLCanvasElement;
  }

  close(): void {
    clearTimeout(this.timer);
    this.viewer.destroy();
  }

  /** Tokens a unit of OpenSeadragon's viewport, which is as wide as the map. */
  private tokens(): number {
    return this.pyramid!.width * this.pyramid!.unit;
  }

  /** The level of which a cell is a pixel or more, where the view will be. */
  private level(): number {
    const { viewport } = this.viewer;
    const cells = this.pyramid!.width;
    const pixels = viewport.deltaPixelsFromPointsNoRotate(new OpenSeadragon.Point(1, 0), false).x;
    const halvings = Math.max(0, Math.ceil(Math.log2(cells / pixels)));
    return Math.max(0, this.pyramid!.levels - 1 - halvings);
  }

  private allDrawn(): { cell: number; tile: OpenSeadragon.Tile; painted: Painted }[] {
    const of = (pyramid: Pyramid, image: OpenSeadragon.TiledImage) =>
      drawnBy(image).map((one) => ({ ...one, cell: cellOf(pyramid, one.tile.level) }));
    const above = this.image ? of(this.pyramid!, this.image) : [];
    return this.ground ? [...of(this.ground.pyramid, this.ground.image), ...above] : above;
  }

  /** The colors of the kept map, until what lies above is there. */
  private colorGround(): void {
    if (!this.ground?.image.getFullyLoaded() || this.image?.getFullyLoaded()) return;
    const tiles = drawnBy(this.ground.image).map((one) => one.painted);
    if (tiles.length === 0) return;
    this.completeTiles = same(this.completeTiles, tiles);
    this.listener.complete(this.completeTiles, false);
  }

  private waitUntilComplete(): void {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => {
      // The map before is no answer.
      const isOld = this.come !== this.opened;
      const isReleased = !isOld && this.source?.release(this.level());
      if (isReleased) this.viewer.forceRedraw();
      if (isOld || isReleased || !this.image?.getFullyLoaded()) {
        this.colorGround();
        this.waitUntilComplete();
        return;
      }
      // Coarser tiles may lie below; how they were come by must not change the colors.
      const drawn = drawnBy(this.image);
      const finest = Math.max(...drawn.map(({ tile }) => tile.level));
      const tiles = drawn.filter(({ tile }) => tile.level === finest).map(({ painted }) => painted);
      this.completeTiles = same(this.completeTiles, tiles);
      this.listener.complete(this.completeTiles, true);
      // So that a frame follows, with the colors of these tiles.
      this.viewer.forceRedraw();
    }, 90);
  }
}

/** The list that was there where the same tiles are seen, so that colors are not worked out again. */
function same(before: Painted[], tiles: Painted[]): Painted[] {
  return tiles.length === before.length && tiles.every((tile) => before.includes(tile)) ? before : tiles;
}

function drawnBy(image: OpenSeadragon.TiledImage): { tile: OpenSeadragon.Tile; painted: Painted }[] {
  return image.getTilesToDraw().flatMap(({ tile }) => {
    const cache = tile.getCache() as unknown as { data?: unknown } | undefined;
    const painted = paintedOf(cache?.data as CanvasRenderingContext2D);
    return painted ? [{ tile, painted }] : [];
  });
}
