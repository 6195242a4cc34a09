// What a key does on a map, as a plain value.
import type { Region } from "../address/address";

export type Step =
  | { kind: "move"; dx: number; dy: number }
  | { kind: "zoom"; factor: number }
  | { kind: "whole" }
  | { kind: "free" }
  | { kind: "hold"; query: number; key: number }
  | { kind: "point"; query: number; key: number; isBeyond: boolean; dx: number; dy: number };

const ARROWS: Record<string, [dx: number, dy: number]> = {
  ArrowLeft: [-1, 0],
  ArrowRight: [1, 0],
  ArrowUp: [0, -1],
  ArrowDown: [0, 1],
};

export function stepOf(
  pressed: string,
  isShift: boolean,
  region: Region,
  sizes: { queries: number; keys: number },
  query: number | null,
  key: number | null,
  pixels: number,
): Step | null {
  const arrow = ARROWS[pressed];
  if (arrow && isShift) return { kind: "move", dx: arrow[0] / 5, dy: arrow[1] / 5 };
  if (pressed === "+" || pressed === "=") return { kind: "zoom", factor: 1.5 };
  if (pressed === "-") return { kind: "zoom", factor: 1 / 1.5 };
  if (pressed === "0") return { kind: "whole" };
  if (pressed === "Escape") return { kind: "free" };
  const [left, top, right, bottom] = region;
  const within = (value: number, count: number) => Math.min(count - 1, Math.max(0, Math.floor(value)));
  const from = { query: query ?? within((top + bottom) / 2, sizes.queries), key: key ?? within((left + right) / 2, sizes.keys) };
  if (pressed === "Enter" || pressed === " ") return { kind: "hold", ...from };
  if (!arrow) return null;
  // Far out, a step of one token would not be seen: as many as lie in four pixels.
  const stride = Math.max(1, Math.round((4 * (right - left)) / Math.max(1, pixels)));
  const to = {
    query: within(from.query + arrow[1] * stride, sizes.queries),
    key: within(from.key + arrow[0] * stride, sizes.keys),
  };
  const isBeyond = to.key < left || to.key + 1 > right || to.query < top || to.query + 1 > bottom;
  return { kind: "point", ...to, isBeyond, dx: arrow[0] / 3, dy: arrow[1] / 3 };
}
