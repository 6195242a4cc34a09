// Draws what lies around and above a map, on a canvas or on a sheet, through the few strokes that both have.
import type { Region } from "../address/address";
import { boxOf, curve, labels } from "./axes";
import type { Series } from "../api/client";

export interface Sides {
  left: number;
  top: number;
  right: number;
  bottom: number;
}

export interface Frame {
  width: number;
  height: number;
  sides: Sides;
  region: Region;
  queries: number;
  keys: number;
  head: number;
  queryToken: (index: number) => string;
  keyToken: (index: number) => string;
  rows: Series | null;
  columns: Series | null;
  query: number | null;
  key: number | null;
  /** The chosen pair, which stays when the pointer goes. */
  held: { query: number | null; key: number | null };
  colors: Record<"ink" | "soft" | "line" | "accent" | "warm" | "page", string>;
  font: string;
  /** On paper: tokens stand among others, which leave them room as they do those that are held. */
  isStill?: boolean;
}

/** What a canvas and a sheet both can. Angles are in degrees, clockwise. */
export interface Pen {
  text(text: string, x: number, y: number, options: { color: string; angle?: number; anchor: "start" | "end"; bold?: boolean; most: number }): void;
  rect(x: number, y: number, width: number, height: number, color: string, opacity?: number): void;
  outline(x: number, y: number, width: number, height: number, color: string, thickness: number): void;
}

const GAP = 6;
const THICK = 40;
const KEY_ANGLE = -52;
// Pixels about a label in which no other stands.
const ROOM = 14;

export function drawFrame(pen: Pen, frame: Frame): void {
  const { sides, region, colors } = frame;
  const [width, height] = [frame.width - sides.left - sides.right, frame.height - sides.top - sides.bottom];
  if (width <= 0 || height <= 0) return;
  crosshair(pen, frame, width, height);
  const [left, top, right, bottom] = region;
  const edges = edgesOf(frame, width, height);
  const most = { query: sides.left - GAP - 4, key: (sides.top - GAP) / Math.sin((-KEY_ANGLE * Math.PI) / 180) - 6 };
  const isFree = (at: number, chosen: number | null, held: number | null, from: number, scale: number) => {
    return chosen === null || !isSteady(frame, chosen, held) || Math.abs((chosen + 0.5 - from) * scale - at) >= ROOM;
  };
  for (const { at, text } of labels(top, bottom, height, frame.queries, frame.queryToken)) {
    if (!isFree(at, frame.query, frame.held.query, top, height / (bottom - top))) continue;
    pen.text(text, edges.left - GAP, sides.top + at + 4, { color: colors.soft, anchor: "end", most: most.query });
  }
  for (const { at, text } of labels(left, right, width, frame.keys, frame.keyToken)) {
    if (!isFree(at, frame.key, frame.held.key, left, width / (right - left))) continue;
    const [x, y] = [sides.left + at + 3, edges.top - GAP];
    pen.text(text, x, y, { color: colors.soft, anchor: "start", angle: KEY_ANGLE, most: most.key });
  }
  curves(pen, frame, width, height);
  focused(pen, frame, width, height, most);
}

// Labels leave room to a token that stays; beside one under the moving pointer they would come and go.
function isSteady(frame: Frame, chosen: number, held: number | null): boolean {
  return Boolean(frame.isStill) || chosen === held;
}

/** Where the map begins and ends on the sheet: labels and curves stand beside it, not at the far end of empty space. */
function edgesOf({ sides, region, queries, keys }: Frame, width: number, height: number): Sides {
  const [left, top, right, bottom] = region;
  const [x, y] = [width / (right - left), height / (bottom - top)];
  const within = (value: number, most: number) => Math.min(most, Math.max(0, value));
  return {
    left: sides.left + within(-left * x, width),
    right: sides.left + within((keys - left) * x, width),
    top: sides.top + within(-top * y, height),
    bottom: sides.top + within((queries - top) * y, height),
  };
}

function curves(pen: Pen, frame: Frame, width: number, height: number): void {
  const { sides, region, colors } = frame;
  const edges = edgesOf(frame, width, height);
  if (frame.rows) {
    const [thick, x] = [Math.min(sides.right, THICK) - GAP - 2, edges.right + GAP];
    for (const { at, end, part } of curve(frame.rows, frame.head, region[1], region[3], height).points) {
      const [from, to] = pixels(at, end, height);
      if (to > from) pen.rect(x, sides.top + from, part * thick, to - from, colors.accent);
    }
  }
  if (frame.columns) {
    const [thick, y] = [Math.min(sides.bottom, THICK) - GAP - 2, edges.bottom + GAP];
    for (const { at, end, part } of curve(frame.columns, frame.head, region[0], region[2], width).points) {
      const [from, to] = pixels(at, end, width);
      if (to > from) pen.rect(sides.left + from, y, to - from, part * thick, colors.accent);
    }
  }
}

// Whole pixels, as bars that share one would show a seam there.
function pixels(from: number, to: number, most: number): [number, number] {
  return [Math.max(0, Math.round(from)), Math.min(most, Math.max(Math.round(from) + 1, Math.round(to)))];
}

// Thin lines about the row and the column of a pair, and a box about what is held.
function crosshair(pen: Pen, frame: Frame, width: number, height: number): void {
  const { sides, region, query, key, held, colors } = frame;
  const edges = edgesOf(frame, width, height);
  const clip = (x: number, y: number, w: number, h: number) => {
    const [x0, y0] = [Math.max(0, x), Math.max(0, y)];
    const [x1, y1] = [Math.min(width, x + w), Math.min(height, y + h)];
    return { x: sides.left + x0, y: sides.top + y0, width: x1 - x0, height: y1 - y0 };
  };
  const band = (x: number, y: number, w: number, h: number) => {
    const box = clip(x, y, w, h);
    if (box.width <= 0 || box.height <= 0) return;
    // Lines beside the cells, not paint over them: colors must stay those of the legend.
    if (Math.min(w, h) >= 5) pen.outline(box.x, box.y, box.width, box.height, colors.warm, 1);
    else if (w < h) pen.rect(box.x + box.width / 2 - 0.5, box.y, 1, box.height, colors.warm);
    else pen.rect(box.x, box.y + box.height / 2 - 0.5, box.width, 1, colors.warm);
  };
  const box = boxOf(query ?? 0, key ?? 0, region, width, height);
  const [w, h] = [Math.max(1, box.width), Math.max(1, box.height)];
  if (query !== null) band(edges.left - sides.left, box.top, edges.right - edges.left, h);
  if (key !== null) band(box.left, edges.top - sides.top, w, edges.bottom - edges.top);
  if (held.query === null || held.key === null) return;
  const at = boxOf(held.query, held.key, region, width, height);
  const [x, y] = [at.left + at.width / 2, at.top + at.height / 2];
  const [side, tall] = [Math.max(9, at.width), Math.max(9, at.height)];
  if (x < 0 || y < 0 || x > width || y > height) return;
  const marked = clip(x - side / 2, y - tall / 2, side, tall);
  pen.outline(marked.x, marked.y, marked.width, marked.height, colors.warm, 2);
}

// The token under the pointer is written over its neighbors, as they may have thinned it out.
function focused(pen: Pen, frame: Frame, width: number, height: number, most: { query: number; key: number }): void {
  const { sides, region, query, key, held, colors } = frame;
  const edges = edgesOf(frame, width, height);
  const box = boxOf(query ?? 0, key ?? 0, region, width, height);
  const [x, y] = [box.left + box.width / 2, box.top + box.height / 2];
  if (query !== null && y >= 0 && y <= height) {
    if (!isSteady(frame, query, held.query)) pen.rect(edges.left - sides.left, sides.top + y - 9, sides.left - 2, 18, colors.page);
    const options = { color: colors.ink, anchor: "end", bold: true, most: most.query } as const;
    pen.text(frame.queryToken(query), edges.left - GAP, sides.top + y + 4, options);
  }
  if (key !== null && x >= 0 && x <= width) {
    const text = frame.keyToken(key);
    if (isSteady(frame, key, held.key)) {
      const options = { color: colors.ink, anchor: "start", angle: KEY_ANGLE, bold: true, most: most.key } as const;
      pen.text(text, sides.left + x + 3, edges.top - GAP, options);
      return;
    }
    const wide = Math.min(most.query + 60, 16 + 7.2 * text.length);
    const start = Math.min(Math.max(0, sides.left + x - wide / 2), frame.width - wide);
    pen.rect(start, edges.top - 20, wide, 18, colors.page);
    pen.text(text, start + 8, edges.top - GAP, { color: colors.ink, anchor: "start", bold: true, most: wide });
  }
}
