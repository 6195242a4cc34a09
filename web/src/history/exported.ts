// What is taken away of a history: all heads at a step, one of them large, curves along the steps, and their numbers.
import { scaleLinear, scaleSymlog } from "d3-scale";
import type { Client } from "../api/client";
import { inkOn, sequential, shade } from "../color/ramps";
import { decadesFor, type Scale } from "../color/scale";
import { imageOf } from "../color/weights";
import { rampLegend } from "../export/legend";
import { dataOfImage, hex } from "../export/pixels";
import { beside, sheetOf, type Part } from "../export/sheet";
import type { SheetPen } from "../export/sheetPen";
import { checkRows, constant, type Column, type Table } from "../export/table";
import type { Exported } from "../export/view";
import { short, whole } from "../text/numbers";
import { codeOf, type HistoryLayer, type HistoryNumbers, type LayerMaps } from "./ask";
import { endsOf, lastUpTo, linesOf, tokensOf, valueAt, type Line } from "./history";

export interface HistoryContents {
  client: Client;
  history: HistoryNumbers;
  /** A statistic, and where among the steps. */
  measure: string;
  place: number;
  /** The step whose maps are shown; null where there are none. */
  pictured: number | null;
  maps: LayerMaps[] | null;
  layer: number;
  head: number;
  scale: Scale;
}

interface Curve {
  name: string;
  values: number[];
  isChosen: boolean;
}

const [TILE, CHIP, GAP, LAYER, MOST] = [84, 18, 8, 84, 8];
const [LARGE, WIDTH, TALL] = [300, 640, 170];
const MARGIN = { left: 46, right: 14, top: 24, bottom: 24 };

export function historyExported(contents: HistoryContents): Exported {
  const { client, history, measure, place, pictured } = contents;
  const numbers: Exported["numbers"] = [{ title: "Heads along the steps", table: () => valuesTable(history) }];
  if (pictured !== null) numbers.push({ title: "Maps of the step", table: () => mapsTable(history, pictured, ready(contents)) });
  if (history.losses.length > 0) numbers.push({ title: "Training loss", table: () => lossTable(history) });
  return {
    name: [history.title, "history", measure, `step ${history.steps[place]}`],
    draw: (theme) => drawn(contents, theme),
    numbers,
    python: () => codeOf(client, history.id, measure, pictured),
  };
}

function ready({ maps }: HistoryContents): LayerMaps[] {
  if (!maps) throw new Error("The maps are still being loaded: try again in a moment.");
  return maps;
}

function drawn(contents: HistoryContents, theme: "light" | "dark") {
  const { history, measure, place, pictured, layer, head } = contents;
  const step = history.steps[place]!;
  const maps = pictured === null ? null : ready(contents);
  const lines = linesOf(history, measure);
  const title = history.statistics[measure]?.title ?? measure;
  const ends = endsOf(lines);
  const parts: Part[] = [heads(contents, maps, ends), rampLegend(title, [short(ends[0], 2), short((ends[0] + ends[1]) / 2, 2), short(ends[1], 2)], false)];
  const chosen = history.layers[layer]!;
  if (maps) parts.push(large(contents, chosen, maps[layer]!));
  parts.push(chart(title, history.steps, lines.map((line) => ({ ...line, isChosen: isSame(line, layer, head) })), step, history.steps));
  if (history.losses.length > 0) {
    const steps = history.losses.map(([at]) => at);
    parts.push(chart("Training loss", steps, [{ name: "loss", values: history.losses.map(([, loss]) => loss), isChosen: true }], step, history.steps));
  }
  const words = [`Step ${whole(step)} of ${whole(history.steps.at(-1) ?? 0)}. ${history.statistics[measure]?.meaning ?? ""}`];
  if (pictured !== null) words.push(`Maps of step ${whole(pictured)}: mean weights; the colors of a head mean the same at all steps. Outlined: ${chosen.name}, head ${head}.`);
  return sheetOf({ title: `History: ${history.title}`, lines: words, parts }, theme);
}

const isSame = (line: Line, layer: number, head: number) => line.layer === layer && line.head === head;

function dataOf({ scale }: HistoryContents, layer: HistoryLayer, maps: LayerMaps, head: number, theme: "light" | "dark"): string {
  const size = maps.rows * maps.columns;
  const top = layer.tops[head] ?? 1;
  const shading = { scale, top: Math.log(top > 0 ? top : 1), decades: decadesFor(maps.columns) };
  const weights = maps.weights.subarray(head * size, (head + 1) * size);
  return dataOfImage(imageOf(weights, null, maps.rows, maps.columns, shading, theme));
}

/** All heads, a line a layer, with the number of each below its map. */
function heads(contents: HistoryContents, maps: LayerMaps[] | null, ends: [number, number]): Part {
  const { history } = contents;
  const across = Math.min(MOST, Math.max(...history.layers.map(({ heads: count }) => count)));
  const tall = CHIP + (maps ? TILE : 0);
  const rows = history.layers.map(({ heads: count }) => Math.ceil(count / across));
  return {
    width: LAYER + across * (TILE + GAP) - GAP,
    height: (tall + GAP) * rows.reduce((sum, count) => sum + count, 0) - GAP,
    draw(pen) {
      let y = 0;
      history.layers.forEach((layer, index) => {
        pen.text(layer.name, 0, y + 14, { color: pen.colors.soft, most: LAYER - 10 });
        for (let head = 0; head < layer.heads; head++) {
          const at = pen.at(LAYER + (head % across) * (TILE + GAP), y + (tall + GAP) * Math.floor(head / across));
          const isChosen = index === contents.layer && head === contents.head;
          tile(at, contents, layer, maps?.[index] ?? null, head, ends);
          at.outline(0, 0, TILE, tall, isChosen ? pen.colors.warm : pen.colors.line, isChosen ? 2 : 1);
        }
        y += (tall + GAP) * rows[index]!;
      });
    },
  };
}

function tile(pen: SheetPen, contents: HistoryContents, layer: HistoryLayer, maps: LayerMaps | null, head: number, ends: [number, number]): void {
  const top = maps ? TILE : 0;
  if (maps && maps.rows * maps.columns > 0) pen.image(dataOf(contents, layer, maps, head, pen.theme), 0, 0, TILE, TILE);
  const value = valueAt(contents.history, contents.measure, contents.place, layer, head);
  let ink = pen.colors.ink;
  if (Number.isFinite(value)) {
    const color = shade(sequential[pen.theme], (value - ends[0]) / (ends[1] - ends[0]));
    pen.rect(0, top, TILE, CHIP, hex(color));
    ink = hex(inkOn(color));
  }
  pen.text(String(head), 5, top + 13, { size: 11, bold: true, color: ink });
  pen.text(short(value, 2), TILE - 5, top + 13, { size: 11, color: ink, anchor: "end", most: TILE - 28 });
}

function large(contents: HistoryContents, layer: HistoryLayer, maps: LayerMaps): Part {
  const { head, scale } = contents;
  const top = layer.tops[head] ?? 1;
  const part: Part = {
    width: LARGE,
    height: LARGE + 48,
    draw(pen) {
      if (maps.rows * maps.columns > 0) pen.image(dataOf(contents, layer, maps, head, pen.theme), 0, 0, LARGE, LARGE);
      pen.outline(0, 0, LARGE, LARGE, pen.colors.line, 0.75);
      const cell = layer.cell > 1 ? `, ${layer.cell} × ${layer.cell} tokens a cell` : "";
      const words = ["keys →, queries ↓", `${scaleWords(scale)}, from 0 to ${short(top, 2)}`, `Mean over the texts${cell}`];
      words.forEach((line, index) => pen.text(line, 0, LARGE + 15 * (index + 1), { size: 11, color: pen.colors.soft, most: LARGE }));
    },
  };
  return beside([{ heading: `${layer.name}, head ${head}`, part }], 1);
}

function scaleWords(scale: Scale): string {
  if (scale === "root") return "Square root of weights";
  if (scale === "log") return "Logarithm of weights";
  return "Weights";
}

function chart(title: string, steps: number[], curves: Curve[], step: number, axis: number[]): Part {
  const ends: [number, number] = [axis[0]!, Math.max(axis[0]! + 1, axis[axis.length - 1]!)];
  const x = scaleSymlog(ends, [MARGIN.left, WIDTH - MARGIN.right]).constant(10);
  const y = scaleLinear(endsOf(curves), [TALL - MARGIN.bottom, MARGIN.top]).nice(4);
  const chosen = curves.find(({ isChosen }) => isChosen);
  const ordered = [...curves].sort((a, b) => Number(a.isChosen) - Number(b.isChosen));
  const last = lastUpTo(steps, step);
  const value = steps[last]! <= step ? chosen?.values[last] : undefined;
  return {
    width: WIDTH,
    height: TALL,
    draw(pen) {
      const look = { size: 11, color: pen.colors.soft } as const;
      const known = value !== undefined && Number.isFinite(value);
      const at = known ? `: ${short(value, 3)} at step ${whole(steps[last]!)}` : "";
      pen.text(`${title}${chosen && curves.length > 1 ? `, ${chosen.name}` : ""}${at}`, 0, 12, { bold: true, most: WIDTH });
      for (const tick of y.ticks(4)) {
        pen.line([[MARGIN.left, y(tick)], [WIDTH - MARGIN.right, y(tick)]], pen.colors.line);
        pen.text(short(tick, 3), MARGIN.left - 8, y(tick) + 4, { ...look, anchor: "end" });
      }
      const ticks = [0, 10, 100, 1000, 10_000, 100_000, 1_000_000].filter((tick) => tick >= ends[0] && tick < ends[1] && x(ends[1]) - x(tick) > 50);
      for (const tick of [...ticks, ends[1]]) pen.text(whole(tick), x(tick), TALL - 6, { ...look, anchor: tick === ends[1] ? "end" : "middle" });
      for (const { values, isChosen } of ordered) {
        for (const points of pieces(values, (index) => x(steps[index]!), y)) {
          if (points.length === 1) pen.circle(...points[0]!, isChosen ? 3 : 1.5, isChosen ? pen.colors.accent : pen.colors["strong-line"]);
          else if (isChosen) pen.line(points, pen.colors.accent, 2.4);
          else pen.line(points, pen.colors["strong-line"], 1, 0.5);
        }
      }
      pen.line([[x(step), MARGIN.top], [x(step), TALL - MARGIN.bottom]], pen.colors.warm, 1.5);
      if (known) pen.circle(x(steps[last]!), y(value), 4, pen.colors.warm);
    },
  };
}

/** The stretches of a line between values that are not known. */
export function pieces(values: readonly number[], x: (index: number) => number, y: (value: number) => number): [number, number][][] {
  const all: [number, number][][] = [[]];
  values.forEach((value, index) => {
    if (Number.isFinite(value)) all.at(-1)!.push([x(index), y(value)]);
    else all.push([]);
  });
  return all.filter((points) => points.length > 0);
}

/** A row for each step and head, with all statistics. */
export function valuesTable(history: HistoryNumbers): Table {
  const rows = history.steps.length * history.heads;
  checkRows(rows);
  const all = history.layers.flatMap((layer) => Array.from({ length: layer.heads }, (_, head) => ({ layer, head })));
  const of = (name: string): Column => {
    const values = history.steps.flatMap((_, step) => all.map(({ layer, head }) => valueAt(history, name, step, layer, head)));
    return { name, kind: "number", values: Float32Array.from(values) };
  };
  return {
    rows,
    columns: [
      { name: "step", kind: "whole", values: history.steps, repeat: history.heads },
      { name: "layer", kind: "text", values: all.map(({ layer }) => layer.layer) },
      { name: "kind", kind: "text", values: all.map(({ layer }) => layer.kind) },
      { name: "head", kind: "whole", values: all.map(({ head }) => head) },
      ...Object.keys(history.statistics).map(of),
    ],
  };
}

/** A row for each cell of each map of a step; `query` and `key` are its first tokens. */
export function mapsTable(history: HistoryNumbers, step: number, maps: LayerMaps[]): Table {
  const rows = maps.reduce((sum, { weights }) => sum + weights.length, 0);
  checkRows(rows);
  const cells = history.layers.flatMap((layer, index) => {
    const { weights, rows: down, columns: across } = maps[index]!;
    return Array.from({ length: weights.length }, (_, place) => {
      const [query] = tokensOf(Math.floor(place / across) % down, layer.cell, layer.offset, layer.queries);
      const [key] = tokensOf(place % across, layer.cell, 0, layer.keys);
      return { layer, head: Math.floor(place / (down * across)), query, key, weight: weights[place]! };
    });
  });
  return {
    rows,
    columns: [
      constant("step", "whole", step, rows),
      { name: "layer", kind: "text", values: cells.map(({ layer }) => layer.layer) },
      { name: "kind", kind: "text", values: cells.map(({ layer }) => layer.kind) },
      { name: "head", kind: "whole", values: cells.map(({ head }) => head) },
      { name: "query", kind: "whole", values: cells.map(({ query }) => query) },
      { name: "key", kind: "whole", values: cells.map(({ key }) => key) },
      { name: "cell", kind: "whole", values: cells.map(({ layer }) => layer.cell) },
      { name: "weight", kind: "number", values: Float32Array.from(cells, ({ weight }) => weight) },
    ],
  };
}

function lossTable({ losses }: HistoryNumbers): Table {
  return {
    rows: losses.length,
    columns: [
      { name: "step", kind: "whole", values: losses.map(([step]) => step) },
      { name: "loss", kind: "number", values: losses.map(([, loss]) => loss) },
    ],
  };
}
