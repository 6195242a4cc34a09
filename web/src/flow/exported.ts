// What is taken away of a flow: layers and tokens of each text, the largest shares, and all shares as a table.
import { scaleLinear } from "d3-scale";
import type { FlowText, Span } from "../address/address";
import type { Client } from "../api/client";
import type { Description } from "../api/types";
import { rampLegend } from "../export/legend";
import { widthOf } from "../export/measure";
import { dataOfImage } from "../export/pixels";
import { sheetOf, type Part } from "../export/sheet";
import type { SheetPen } from "../export/sheetPen";
import { checkRows, MOST_ROWS, type Column, type Table } from "../export/table";
import { modelOf, type Exported } from "../export/view";
import { short, whole } from "../text/numbers";
import { readable } from "../text/texts";
import { codeOf, largestOf, sharesOf, type FlowOf, type Largest, type Method, type Shares, type TextOf } from "./ask";
import { cellOf, imageOf, rowName, tokensOf, topOf, valueOf } from "./flow";

export interface FlowedText {
  text: TextOf;
  /** Empty where there is one text. */
  title: string;
  tokens: string[] | null;
  /** The tokens that are seen; null for all. */
  span: Span | null;
  /** The token that is followed, where it is of this text. */
  chosen: number | null;
}

export interface FlowContents {
  client: Client;
  description: Description;
  flow: FlowOf;
  method: Method;
  sentence: string;
  texts: FlowedText[];
  /** The text and the row whose largest shares are listed. */
  listed: FlowText;
  row: number;
}

// Pixels: of the tokens together, of one at most, and from which it is named; of the names of rows, and of tokens below.
const [ACROSS, WIDEST, NAMED, SIDE, BELOW] = [640, 40, 11, 150, 66];
// Cells of an answer, at most, and tokens of the list.
const [MOST_CELLS, COUNT] = [2 ** 14, 14];

export function flowExported(contents: FlowContents): Exported {
  const { client, description, flow, texts } = contents;
  const position = `${flow.text === "source" ? "source " : ""}token ${flow.token}`;
  return {
    name: [modelOf(description), "flow", flow.direction, position],
    draw: (theme) => drawn(contents, theme),
    numbers: [
      ...texts.map((one) => ({
        title: one.title ? `Shares of ${one.title}` : "Shares",
        table: async () => sharesTable(one, await shares(contents, one, MOST_CELLS)),
      })),
      { title: "Largest", table: async () => largestTable(contents, await largest(contents)) },
    ],
    python: () => codeOf(client, flow),
  };
}

function shares({ client, flow }: FlowContents, { text, span }: FlowedText, most: number): Promise<Shares> {
  const [first, end] = seenOf(text, span);
  // A table has room for so many rows, and long texts come in cells of several tokens.
  const cells = Math.max(1, Math.min(most, Math.floor(MOST_ROWS / (text.layers.length + 1))));
  return sharesOf(client, flow, text.name, first, end, cells, new AbortController().signal);
}

function largest({ client, flow, listed, row }: FlowContents): Promise<Largest> {
  return largestOf(client, flow, listed, row, COUNT, new AbortController().signal);
}

function seenOf({ tokens }: TextOf, span: Span | null): Span {
  if (!span || span[0] >= tokens) return [0, tokens];
  return [span[0], Math.min(span[1], tokens)];
}

async function drawn(contents: FlowContents, theme: "light" | "dark") {
  const { description, flow, method, sentence, texts } = contents;
  const parts: Part[] = [];
  let hasNone = false;
  for (const one of texts) {
    const answer = await shares(contents, one, ACROSS);
    const top = topOf(answer, one.chosen);
    parts.push(grid(one, answer, top));
    // Colors go with the root: half way is a quarter.
    if (!flow.corrected) parts.push(rampLegend("share", ["0", short(top / 4, 2), short(top, 2)], false));
    hasNone ||= flow.corrected && answer.shares.some((_, index) => Number.isNaN(valueOf(answer, Math.floor(index / answer.cells), index % answer.cells)));
  }
  // Multiples have one scale in all texts.
  if (flow.corrected) parts.push(rampLegend("times the share of equal weights", ["1/8", "1", "8"], true));
  parts.push(list(contents, await largest(contents)));
  const lines = [sentence, `Method: ${method.title}, residual ${flow.residual}. ${method.meaning}`];
  if (flow.corrected) lines.push("Divided by what equal weights under the same masks would give: 1 is as much, 2 twice as much.");
  if (hasNone) lines.push("Gray: no path leads there.");
  return sheetOf({ title: "Flow", lines, parts, note: description.title }, theme);
}

function grid({ text, title, tokens, chosen }: FlowedText, answer: Shares, top: number): Part {
  const count = Math.max(1, answer.end - answer.first);
  const names = Array.from({ length: answer.rows }, (_, row) => rowName(text, row));
  const side = Math.min(SIDE, 12 + Math.max(...names.map((name) => widthOf(name))));
  const step = Math.min(WIDEST, ACROSS / count);
  const across = step * count;
  const high = Math.max(14, Math.min(26, Math.floor(380 / answer.rows)));
  const isNamed = tokens !== null && step >= NAMED;
  const shown = isNamed ? tokens.slice(answer.first, answer.end).map((token) => widthOf(readable(token), 11)) : [];
  const below = isNamed ? 12 + Math.min(BELOW, Math.max(...shown)) : 20;
  const above = title ? 24 : 0;
  const tall = high * answer.rows;
  return {
    width: side + across,
    height: above + tall + below,
    draw(pen) {
      if (title) pen.text(title, 0, 14, { size: 13, bold: true });
      const map = pen.at(side, above);
      names.forEach((name, row) => pen.text(name, side - 8, above + high * (row + 0.5) + 4, { anchor: "end", color: pen.colors.soft, most: side - 8 }));
      if (answer.cells > 0) {
        // The last cell may stand for fewer tokens than the others.
        const part = count / (answer.cells * answer.cell);
        map.image(dataOfImage(imageOf(answer, top, pen.theme)), 0, 0, across, tall, { shown: [part, 1] });
      }
      map.outline(0, 0, across, tall, pen.colors.line, 0.75);
      const isSeen = chosen !== null && cellOf(answer, chosen) >= 0;
      if (isSeen) map.outline(step * (chosen - answer.first), 0, Math.max(2, step), tall, pen.colors.warm, 1.5);
      label(map.at(0, tall), answer, isNamed ? tokens : null, step, chosen);
    },
  };
}

/** The tokens below a grid, by name or by number. */
function label(pen: SheetPen, { first, end }: Shares, tokens: string[] | null, step: number, chosen: number | null): void {
  const color = (token: number) => (token === chosen ? pen.colors.ink : pen.colors.soft);
  if (tokens) {
    tokens.slice(first, end).forEach((token, index) => {
      const look = { size: 11, angle: 90, color: color(first + index), bold: first + index === chosen, most: BELOW };
      pen.text(readable(token), step * (index + 0.5) - 4, 6, look);
    });
    return;
  }
  const x = scaleLinear([first, end], [0, step * (end - first)]);
  for (const tick of x.ticks(8).filter((one) => Number.isInteger(one) && one < end)) {
    pen.text(whole(tick), x(tick + 0.5), 15, { size: 11, color: color(tick), anchor: tick === first ? "start" : "middle" });
  }
}

function list(contents: FlowContents, { total, largest: lines }: Largest): Part {
  const { flow } = contents;
  const { text, tokens } = listedOf(contents);
  const [name, bar, row] = [150, 200, 18];
  const top = Math.max(0, ...lines.map(({ share, corrected }) => corrected ?? share));
  return {
    width: name + 60 + bar + 150,
    height: 26 + row * (lines.length + 1),
    draw(pen) {
      pen.text(`Largest: ${rowName(text, contents.row)}`, 0, 13, { bold: true });
      lines.forEach(({ token, share, corrected }, index) => {
        const y = 22 + row * index;
        const value = corrected ?? share;
        pen.text(readable(tokens?.[token] ?? "token"), 0, y + 13, { most: name - 10 });
        pen.text(whole(token), name + 44, y + 13, { size: 11, color: pen.colors.soft, anchor: "end" });
        pen.rect(name + 60, y + 3, top > 0 ? Math.max(1, (bar * value) / top) : 0, 12, pen.colors.accent, 0.45);
        const said = flow.corrected ? `${short(corrected, 3)} times, share ${short(share, 3)}` : short(share, 3);
        pen.text(said, name + 60 + (top > 0 ? (bar * value) / top : 0) + 6, y + 13, { size: 11 });
      });
      pen.text(`All tokens together: ${short(total, 3)}`, 0, 22 + row * lines.length + 13, { size: 11, color: pen.colors.soft });
    },
  };
}

function listedOf({ texts, listed }: FlowContents): FlowedText {
  return texts.find(({ text }) => text.name === listed) ?? texts[0]!;
}

/** A row for each layer and cell: `row` 0 is before the first layer. */
export function sharesTable({ text, tokens }: FlowedText, answer: Shares): Table {
  const { rows, cells, cell } = answer;
  checkRows(rows * cells);
  const starts = Array.from({ length: cells }, (_, index) => tokensOf(answer, index));
  const columns: Column[] = [
    { name: "row", kind: "whole", values: Array.from({ length: rows }, (_, row) => row), repeat: cells },
    { name: "layer", kind: "text", values: Array.from({ length: rows }, (_, row) => rowName(text, row)), repeat: cells },
    { name: "token", kind: "whole", values: starts.map(([first]) => first) },
    { name: "tokens", kind: "whole", values: starts.map(([first, end]) => end - first) },
    { name: "text", kind: "text", values: starts.map(([first]) => (cell === 1 ? (tokens?.[first] ?? null) : null)) },
    { name: "share", kind: "number", values: answer.shares },
  ];
  if (answer.equal) {
    const times = Float32Array.from(answer.shares, (_, index) => valueOf(answer, Math.floor(index / cells), index % cells));
    columns.push({ name: "equal", kind: "number", values: answer.equal }, { name: "times", kind: "number", values: times });
  }
  return { rows: rows * cells, columns };
}

function largestTable(contents: FlowContents, { largest: lines }: Largest): Table {
  const { text, tokens } = listedOf(contents);
  const columns: Column[] = [
    { name: "row", kind: "whole", values: lines.map(() => contents.row) },
    { name: "layer", kind: "text", values: lines.map(() => rowName(text, contents.row)) },
    { name: "token", kind: "whole", values: lines.map(({ token }) => token) },
    { name: "text", kind: "text", values: lines.map(({ token }) => tokens?.[token] ?? null) },
    { name: "share", kind: "number", values: lines.map(({ share }) => share) },
  ];
  if (contents.flow.corrected) columns.push({ name: "times", kind: "number", values: lines.map(({ corrected }) => corrected) });
  return { rows: lines.length, columns };
}
