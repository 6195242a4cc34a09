// A sheet: a heading, what is seen, and where it comes from, one below the other.
import type { Theme } from "../color/ramps";
import { wrapped } from "./measure";
import type { Drawing } from "./shapes";
import { SheetPen } from "./sheetPen";

/** A part of a sheet, drawn from its own upper left corner. */
export interface Part {
  width: number;
  height: number;
  draw(pen: SheetPen): void;
}

export interface Contents {
  title: string;
  /** Lines below the title, such as what colors mean. */
  lines?: string[];
  parts: Part[];
  /** Where the numbers come from. */
  note?: string;
}

const MARGIN = 24;
const GAP = 16;
const LEAST = 420;

/** The sheet of its parts, as wide as the widest. */
export function sheetOf({ title, lines = [], parts, note = "" }: Contents, theme: Theme): Drawing {
  const pen = new SheetPen(theme);
  const inner = Math.max(LEAST, ...parts.map(({ width }) => width));
  let y = MARGIN;
  const write = (text: string, size: number, color: string, bold = false) => {
    for (const line of wrapped(text, inner, size, bold)) {
      y += 1.3 * size;
      pen.text(line, MARGIN, y, { size, color, bold, most: inner });
    }
  };
  write(title, 16, pen.colors.ink, true);
  for (const line of lines) {
    y += 3;
    write(line, 12, pen.colors.soft);
  }
  for (const part of parts) {
    // Whole pixels, or bars that touch would show a seam.
    y = Math.round(y + GAP);
    part.draw(pen.at(MARGIN, y));
    y += part.height;
  }
  if (note) {
    y += GAP;
    write(note, 11, pen.colors.soft);
  }
  const [width, height] = [Math.ceil(inner + 2 * MARGIN), Math.ceil(y + MARGIN)];
  return { width, height, background: pen.colors.panel, title, shapes: pen.shapes };
}

/** Parts side by side, so many a row, each below its heading. */
export function beside(parts: { heading: string; part: Part }[], most: number): Part {
  const [gap, line] = [28, 20];
  const count = Math.max(1, Math.min(most, parts.length));
  const rows = Array.from({ length: Math.ceil(parts.length / count) }, (_, row) => parts.slice(row * count, (row + 1) * count));
  const width = Math.max(0, ...parts.map(({ part }) => part.width));
  const heights = rows.map((row) => line + Math.max(...row.map(({ part }) => part.height)));
  return {
    width: count * width + (count - 1) * gap,
    height: heights.reduce((sum, height) => sum + Math.round(height + gap), -gap),
    draw(pen) {
      let y = 0;
      rows.forEach((row, index) => {
        row.forEach(({ heading, part }, column) => {
          const inner = pen.at(Math.round(column * (width + gap)), y);
          inner.text(heading, 0, 13, { bold: true, most: width });
          part.draw(inner.at(0, line));
        });
        y += Math.round(heights[index]! + gap);
      });
    },
  };
}

/** A paragraph. */
export function paragraph(text: string, width: number, size = 12): Part {
  const lines = wrapped(text, width, size);
  return {
    width,
    height: 1.4 * size * lines.length,
    draw: (pen) => lines.forEach((line, index) => pen.text(line, 0, size + 1.4 * size * index, { size, most: width })),
  };
}
