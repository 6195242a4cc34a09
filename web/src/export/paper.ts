// The colors of what is taken away: the page's own, as values, since a file knows no style sheet.
import type { Theme } from "../color/ramps";

const NAMES = ["page", "panel", "ink", "soft", "line", "strong-line", "wash", "accent", "accent-wash", "warm", "bad"] as const;
export type Ink = (typeof NAMES)[number];
export type Colors = Record<Ink, string>;

function named(...values: string[]): Colors {
  return Object.fromEntries(NAMES.map((name, index) => [name, values[index]!])) as Colors;
}

// As in regard.css, which a test compares.
export const PAPER: Record<Theme, Colors> = {
  light: named(
    ...["#f7f7f5", "#ffffff", "#1b1c20", "#595c67", "#e1e1dd", "#8a8d98"],
    ...["#f0f0ed", "#3d4fc4", "#eceefb", "#a8480a", "#a3232b"],
  ),
  dark: named(
    ...["#101116", "#17191f", "#e9e9ec", "#a6a9b5", "#2b2d36", "#6d7080"],
    ...["#1f2129", "#9dabff", "#262b48", "#f0a35e", "#ff8f8f"],
  ),
};
