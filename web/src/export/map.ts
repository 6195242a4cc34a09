// A map on a sheet: the cells that are seen, with their tokens, the statistics along the edges, and the chosen pair.
import type { Series } from "../api/client";
import type { Call } from "../api/types";
import { drawFrame, type Frame } from "../head/frame";
import { tokensOf, type Cells } from "../head/cells";
import type { Texts } from "../text/texts";
import { FONTS } from "./measure";
import type { Part } from "./sheet";
import type { SheetPen } from "./sheetPen";

export interface MapContents {
  call: Pick<Call, "queries" | "keys">;
  head: number;
  texts: Pick<Texts, "query" | "key">;
  cells: Omit<Cells, "codes">;
  /** The PNG of the cells, in the colors of a sheet. */
  data: (pen: SheetPen) => string;
  rows: Series | null;
  columns: Series | null;
  query: number | null;
  key: number | null;
}

// Pixels: of the longer side, of one token at most, and of the shorter side at least.
const LONG = 600;
const TOKEN = 36;
const SHORT = 30;

export function mapPart(contents: MapContents, long = LONG): Part {
  const { call, texts, cells, rows, columns } = contents;
  const region = tokensOf(cells, call.queries, call.keys);
  const [wide, tall] = [region[2] - region[0], region[3] - region[1]];
  const scale = Math.min(TOKEN, long / Math.max(wide, tall));
  const [width, height] = [Math.max(SHORT, scale * wide), Math.max(SHORT, scale * tall)];
  const sides = { left: 92, top: 76, right: rows ? 40 : 24, bottom: columns ? 40 : 6 };
  // How much of the outermost cells lies within the text.
  const shown: [number, number] = [wide / (cells.columns * cells.cell), tall / (cells.rows * cells.cell)];
  const size = { width: width + sides.left + sides.right, height: height + sides.top + sides.bottom };
  const inside = (index: number | null, count: number) => (index !== null && index < count ? index : null);
  const [query, key] = [inside(contents.query, call.queries), inside(contents.key, call.keys)];
  return {
    ...size,
    draw(pen) {
      const colors = { ...pen.colors, page: pen.colors.panel };
      const frame: Frame = {
        ...size,
        sides,
        region,
        queries: call.queries,
        keys: call.keys,
        head: contents.head,
        queryToken: (index) => texts.query(index),
        keyToken: (index) => texts.key(index),
        rows,
        columns,
        query,
        key,
        held: { query, key },
        colors,
        font: FONTS,
        isStill: true,
      };
      pen.image(contents.data(pen), sides.left, sides.top, width, height, { shown });
      // A hairline, as the palest color is that of the paper.
      pen.outline(sides.left, sides.top, width, height, pen.colors.line, 0.75);
      pen.text("keys →", 0, 12, { size: 11, color: colors.soft });
      pen.text("queries ↓", 0, 26, { size: 11, color: colors.soft });
      drawFrame(pen, frame);
    },
  };
}
