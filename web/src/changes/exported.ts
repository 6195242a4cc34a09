// What is taken away of changed heads: what became of all others, and of the next tokens.
import type { Client } from "../api/client";
import type { Description, HeadSetting, NextLine } from "../api/types";
import { diverging, inkOn, sequential, shade } from "../color/ramps";
import { rampLegend } from "../export/legend";
import { hex } from "../export/pixels";
import { sheetOf, type Part } from "../export/sheet";
import { constant, type Table } from "../export/table";
import { modelOf, type Exported } from "../export/view";
import { partOf, titleOf } from "../model/arrange";
import { short, whole } from "../text/numbers";
import { readable } from "../text/texts";
import { inWords, WEIGHTS, type Cell } from "./difference";

export interface ChangesContents {
  client: Client;
  description: Description;
  changes: HeadSetting[];
  measure: string;
  /** A line for each call. */
  lines: Cell[][];
  most: number;
  meaning: string;
  position: number | null;
  divergence: Float32Array | null;
}

const [CELL, TALL, GAP, LAYER, COLUMNS] = [62, 40, 4, 90, 12];
const NEXT = 10;

export function changesExported(contents: ChangesContents): Exported {
  const { client, description, changes, measure, lines, most, meaning, position, divergence } = contents;
  const isDistance = measure === WEIGHTS;
  const next = () => client.next(description.id, position!);
  const numbers: Exported["numbers"] = [{ title: "Heads", table: () => headsTable(contents) }];
  if (position !== null) numbers.push({ title: "Next tokens", table: async () => nextTable(await next()) });
  if (divergence) numbers.push({ title: "Divergence of the next token", table: () => divergenceTable(description, divergence) });
  return {
    name: [modelOf(description), "changes", measure],
    async draw(theme) {
      const ends: [string, string, string] = isDistance ? ["0", "0.5", "1"] : [short(-most, 2), "0", `+${short(most, 2)}`];
      const name = isDistance ? "distance of the weights" : `difference of ${titleOf(description, measure)}`;
      const parts = [grid(lines, most, isDistance), rampLegend(name, ends, !isDistance)];
      if (position !== null) parts.push(nextPart(await next(), description.tokens?.[0]?.[position] ?? String(position)));
      const done = changes.map((one) => `${description.calls[one.call]?.name}, head ${one.head}: ${inWords(one)}`);
      const words = [`${done.join("; ")}.`, meaning, "Outlined: the heads that were changed."];
      return sheetOf({ title: "What the changes did", lines: words, parts, note: description.title }, theme);
    },
    numbers,
    python: () => client.snippet(description.id, { what: "changes", name: measure }),
  };
}

function grid(lines: Cell[][], most: number, isDistance: boolean): Part {
  const columns = Math.min(COLUMNS, Math.max(1, ...lines.map((line) => line.length)));
  const rows = lines.map((line) => Math.ceil(line.length / columns));
  return {
    width: LAYER + columns * (CELL + GAP),
    height: (TALL + GAP) * rows.reduce((sum, count) => sum + count, 0),
    draw(pen) {
      const ramp = (isDistance ? sequential : diverging)[pen.theme];
      let y = 0;
      lines.forEach((line, index) => {
        pen.text(line[0]?.call.name ?? "", 0, y + 24, { color: pen.colors.soft, most: LAYER - 10 });
        line.forEach(({ head, value, change }, place) => {
          const at = pen.at(LAYER + (place % columns) * (CELL + GAP), y + Math.floor(place / columns) * (TALL + GAP));
          let ink = pen.colors.soft;
          if (value !== null) {
            const color = shade(ramp, partOf(value, isDistance ? 0 : -most, most, !isDistance));
            at.rect(0, 0, CELL, TALL, hex(color));
            ink = hex(inkOn(color));
          }
          if (change) at.outline(0, 0, CELL, TALL, pen.colors.warm, 2);
          else at.outline(0, 0, CELL, TALL, pen.colors.line, 1);
          at.text(String(head), 5, 12, { size: 10, color: ink });
          const sign = value !== null && value > 0 && !isDistance ? "+" : "";
          at.text(sign + short(value, 2), CELL / 2, 27, { color: ink, anchor: "middle", most: CELL - 6 });
        });
        y += rows[index]! * (TALL + GAP);
      });
    },
  };
}

function nextPart({ position, tokens, divergence }: NextLine, token: string): Part {
  const shown = tokens.slice(0, NEXT);
  const [name, bar, row] = [130, 150, 18];
  const percent = (part: number) => (part < 0.0005 ? "< 0.1 %" : `${short(100 * part, 3)} %`);
  return {
    width: name + 2 * (bar + 70),
    height: 46 + row * shown.length,
    draw(pen) {
      const said = divergence === null ? "" : `, divergence ${short(divergence, 3)} nats`;
      pen.text(`Next token after ${readable(token)}, position ${whole(position)}${said}`, 0, 13, { bold: true });
      const columns = [{ title: "before", at: name }, { title: "after", at: name + bar + 70 }];
      for (const { title, at } of columns) pen.text(title, at, 34, { size: 11, color: pen.colors.soft });
      shown.forEach(({ text, probability, before }, index) => {
        const y = 42 + row * index;
        pen.text(readable(text), 0, y + 12, { most: name - 10 });
        [before, probability].forEach((part, place) => {
          if (part === null) return;
          const at = columns[place]!.at;
          pen.rect(at, y + 2, Math.max(1, bar * part), 12, place ? pen.colors.accent : pen.colors["strong-line"], 0.45);
          pen.text(percent(part), at + bar * part + 6, y + 12, { size: 11 });
        });
      });
    },
  };
}

function headsTable({ lines, measure }: ChangesContents): Table {
  const cells = lines.flat();
  const number = (field: "before" | "after" | "value") => cells.map((cell) => cell[field]);
  const isDistance = measure === WEIGHTS;
  return {
    rows: cells.length,
    columns: [
      { name: "layer", kind: "text", values: cells.map(({ call }) => call.layer) },
      { name: "call", kind: "whole", values: cells.map(({ call }) => call.index) },
      { name: "head", kind: "whole", values: cells.map(({ head }) => head) },
      { name: "change", kind: "text", values: cells.map(({ change }) => change || null) },
      constant("measure", "text", measure, cells.length),
      ...(isDistance ? [] : ([{ name: "before", kind: "number", values: number("before") }, { name: "after", kind: "number", values: number("after") }] as const)),
      { name: isDistance ? "distance" : "difference", kind: "number", values: number("value") },
    ],
  };
}

function nextTable({ position, tokens }: NextLine): Table {
  return {
    rows: tokens.length,
    columns: [
      constant("position", "whole", position, tokens.length),
      { name: "token", kind: "whole", values: tokens.map(({ token }) => token) },
      { name: "text", kind: "text", values: tokens.map(({ text }) => text) },
      { name: "before", kind: "number", values: tokens.map(({ before }) => before) },
      { name: "after", kind: "number", values: tokens.map(({ probability }) => probability) },
    ],
  };
}

function divergenceTable({ tokens }: Description, divergence: Float32Array): Table {
  const positions = Array.from(divergence, (_, index) => index);
  return {
    rows: divergence.length,
    columns: [
      { name: "position", kind: "whole", values: positions },
      { name: "token", kind: "text", values: positions.map((index) => tokens?.[0]?.[index] ?? null) },
      { name: "divergence", kind: "number", values: divergence },
    ],
  };
}
