// Arithmetic of the view of flows: what a cell shows, its color, and which tokens are seen.
import { BLOCKED, diverging, sequential, shade, type Rgb, type Theme } from "../color/ramps";
import type { Span } from "../address/address";
import type { Shares, TextOf } from "./ask";

// A share is colored as a multiple of that of equal weights up to 8 times as much, or as little.
const DOUBLINGS = 3;

/** What a cell shows: its share, or how many times the share of equal weights; NaN where no path leads. */
export function valueOf(of: Shares, row: number, cell: number): number {
  const place = row * of.cells + cell;
  const share = of.shares[place]!;
  if (!of.equal) return share;
  const equal = of.equal[place]!;
  return equal > 0 ? share / equal : NaN;
}

/** The largest value outside the chosen token's own cell, which has all of it at one end. */
export function topOf(of: Shares, chosen: number | null): number {
  let top = 0;
  for (let row = 0; row < of.rows; row++) {
    for (let cell = 0; cell < of.cells; cell++) {
      if (chosen !== null && cell === cellOf(of, chosen)) continue;
      const value = valueOf(of, row, cell);
      if (value > top) top = value;
    }
  }
  return top;
}

/** Shares by the root of their part of the darkest; multiples by their logarithm, 1 in the middle. */
export function colorOf(value: number, top: number, isRatio: boolean, theme: Theme): Rgb {
  if (Number.isNaN(value)) return BLOCKED[theme];
  if (isRatio) return shade(diverging[theme], (Math.log2(value) / DOUBLINGS + 1) / 2);
  return shade(sequential[theme], top > 0 ? Math.sqrt(Math.min(1, value / top)) : 0);
}

export function imageOf(of: Shares, top: number, theme: Theme): ImageData {
  const image = new ImageData(of.cells, of.rows);
  for (let place = 0; place < of.rows * of.cells; place++) {
    const value = valueOf(of, Math.floor(place / of.cells), place % of.cells);
    image.data.set([...colorOf(value, top, of.equal !== null, theme), 255], 4 * place);
  }
  return image;
}

/** The cell of a token; −1 where it is not seen. */
export function cellOf(of: Shares, token: number): number {
  if (token < of.first || token >= of.end) return -1;
  return Math.floor((token - of.first) / of.cell);
}

/** The tokens of a cell: from the first to before the last. */
export function tokensOf(of: Shares, cell: number): Span {
  const first = of.first + cell * of.cell;
  return [first, Math.min(of.end, first + of.cell)];
}

/** How a row is called: what goes into the first layer, or comes out of one. */
export function rowName(text: TextOf, row: number): string {
  if (row === 0) return "input";
  return `after ${text.layers[row - 1]}`;
}

const LEAST = 8;

/** Fewer or more tokens around one; all of them is null. */
export function zoomed(span: Span | null, tokens: number, around: number, factor: number): Span | null {
  const [first, end] = span ?? [0, tokens];
  const length = Math.min(tokens, Math.max(LEAST, Math.round((end - first) / factor)));
  if (length >= tokens) return null;
  // The token stays where it is on the screen.
  const part = (around - first) / (end - first);
  return placed(Math.round(around - part * length), length, tokens);
}

/** The same number of tokens, moved. */
export function moved(span: Span | null, tokens: number, by: number): Span | null {
  if (!span) return null;
  return placed(span[0] + by, span[1] - span[0], tokens);
}

/** Moved as little as it takes to see a token. */
export function showing(span: Span | null, tokens: number, token: number): Span | null {
  if (!span || (token >= span[0] && token < span[1])) return span;
  const length = span[1] - span[0];
  return placed(token - Math.floor(length / 2), length, tokens);
}

function placed(first: number, length: number, tokens: number): Span {
  const start = Math.max(0, Math.min(tokens - length, first));
  return [start, start + length];
}
