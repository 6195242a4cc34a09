// What is taken away of a picture: the weights over it, those of all heads and words, and all of them as tables.
import type { Client } from "../api/client";
import type { Call, Description, PictureOf } from "../api/types";
import type { Theme } from "../color/ramps";
import { decadesFor, endsOf, type Scale } from "../color/scale";
import { imageOf } from "../color/weights";
import { rampLegend } from "../export/legend";
import { beside, sheetOf, type Part } from "../export/sheet";
import { checkRows, constant, type Column, type Table } from "../export/table";
import { modelOf, type Exported } from "../export/view";
import { plural, short, whole } from "../text/numbers";
import { layerName, readable } from "../text/texts";
import { ofPatches, othersOf, patchOf, type Side } from "./images";
import type { Tile } from "./Tiles.svelte";

export interface ImagesContents {
  client: Client;
  description: Description;
  picture: PictureOf;
  call: Call;
  head: number;
  gray: ImageData;
  /** The query that is asked about; or the key, where it is asked who attends to it. */
  chosen: number;
  isFrom: boolean;
  sentence: string;
  /** Of all heads, the weights of the chosen token; null before they are known. */
  heads: Float32Array[] | null;
  /** Of all words, `(words, keys)`; null where there are none. */
  words: Float32Array | null;
  headTiles: Tile[];
  wordTiles: Tile[];
  top: number;
  headTop: number;
  wordTop: number;
  scale: Scale;
  opacity: number;
  /** The patch that is outlined. */
  outlined: number | null;
  name: (side: Side, token: number) => string;
}

// Pixels of the longer side on paper, and how many a row; a photograph has twice as many.
const [LARGE, SMALL, ACROSS, FINE] = [480, 112, 5, 2];
// As many tiles and other tokens as the page has.
const [MOST_TILES, MOST_OTHERS] = [60, 24];
// Below, a picture is shown pixel by pixel, as on the page.
const SMOOTH = 200;

export function imagesExported(contents: ImagesContents): Exported {
  const { client, description, call, head, chosen, isFrom, words } = contents;
  const numbers: Exported["numbers"] = [{ title: "Weights of all heads", table: () => headsTable(contents) }];
  if (words) numbers.push({ title: "Weights of the words", table: () => wordsTable(contents, words) });
  const window = isFrom ? { q0: chosen, q1: chosen + 1 } : { k0: chosen, k1: chosen + 1 };
  return {
    name: [modelOf(description), layerName(call.name), `head ${head}`, "picture", `token ${chosen}`],
    draw: (theme) => drawn(contents, theme),
    numbers,
    python: () => client.snippet(description.id, { what: "picture", call: call.index, head, ...window }),
  };
}

function ready({ heads }: ImagesContents): Float32Array[] {
  if (!heads) throw new Error("The weights are still being loaded: try again in a moment.");
  return heads;
}

function drawn(contents: ImagesContents, theme: Theme) {
  const { description, call, head, headTiles, wordTiles, top, headTop, wordTop, sentence, scale } = contents;
  const weights = ready(contents)[head]!;
  const patches = ofPatches(contents.picture, weights);
  const parts: Part[] = [overlay(contents, patches, top, LARGE, contents.outlined), legend(contents, "weight", top, patches.length)];
  parts.push(...others(contents, weights));
  parts.push(tiles(contents, "All heads of the layer", headTiles, headTop, head), legend(contents, "weight, all heads", headTop, patches.length));
  if (wordTiles.length > 0) {
    const isChosen = contents.isFrom ? contents.chosen : -1;
    parts.push(tiles(contents, "All words", wordTiles, wordTop, isChosen), legend(contents, "weight, all words", wordTop, patches.length));
  }
  const lines = [`${sentence}.`, `${call.section}, ${layerName(call.name)}, head ${head}. Colors go with ${words(scale)} of the weights.`];
  return sheetOf({ title: "Attention over the picture", lines, parts, note: description.title }, theme);
}

function words(scale: Scale): string {
  if (scale === "root") return "the square root";
  return scale === "log" ? "the logarithm" : "the size";
}

const shadingOf = ({ scale }: ImagesContents, top: number, count: number) => ({ scale, top: Math.log(top > 0 ? top : 1), decades: decadesFor(count) });

function legend(contents: ImagesContents, name: string, top: number, count: number): Part {
  return rampLegend(name, endsOf(shadingOf(contents, top, count)), false);
}

function sizeOf({ width, height }: ImageData, side: number): [number, number] {
  const scale = side / Math.max(width, height);
  return [Math.max(1, Math.round(scale * width)), Math.max(1, Math.round(scale * height))];
}

/** The weights over the picture, as wide and high as it is. */
function overlay(contents: ImagesContents, weights: Float32Array | null, top: number, side: number, outlined: number | null): Part {
  const { gray, picture } = contents;
  const [width, height] = sizeOf(gray, side);
  return {
    width,
    height,
    draw(pen) {
      const data = blended(contents, weights, top, [FINE * width, FINE * height], pen.theme);
      pen.image(data, 0, 0, width, height, { smooth: gray.width >= SMOOTH });
      pen.outline(0, 0, width, height, pen.colors.line, 0.75);
      if (outlined === null) return;
      const [wide, tall] = [width / picture.columns, height / picture.rows];
      pen.outline((outlined % picture.columns) * wide, Math.floor(outlined / picture.columns) * tall, wide, tall, pen.colors.warm, 2.5);
    },
  };
}

// Colors are laid over the gray as on the page: no format has one way for it that all programs know.
function blended(contents: ImagesContents, weights: Float32Array | null, top: number, [width, height]: [number, number], theme: Theme): string {
  const { gray, picture, opacity } = contents;
  const canvas = canvasOf(width, height);
  const context = canvas.getContext("2d")!;
  context.fillStyle = theme === "dark" ? "#000000" : "#ffffff";
  context.fillRect(0, 0, width, height);
  context.globalAlpha = 0.7;
  context.imageSmoothingEnabled = gray.width >= SMOOTH;
  context.imageSmoothingQuality = "high";
  context.drawImage(canvasWith(gray), 0, 0, width, height);
  if (weights) {
    const image = imageOf(weights, null, picture.rows, picture.columns, shadingOf(contents, top, weights.length), theme);
    context.globalAlpha = opacity;
    context.globalCompositeOperation = theme === "dark" ? "screen" : "multiply";
    context.imageSmoothingEnabled = false;
    context.drawImage(canvasWith(image), 0, 0, width, height);
  }
  return canvas.toDataURL("image/png");
}

function canvasOf(width: number, height: number): HTMLCanvasElement {
  const canvas = document.createElement("canvas");
  canvas.width = width;
  canvas.height = height;
  return canvas;
}

function canvasWith(image: ImageData): HTMLCanvasElement {
  const canvas = canvasOf(image.width, image.height);
  canvas.getContext("2d")!.putImageData(image, 0, 0);
  return canvas;
}

function tiles(contents: ImagesContents, title: string, all: Tile[], top: number, chosen: number): Part {
  // The one that is chosen is among them, as on the page.
  const first = Math.max(0, Math.min(all.length - MOST_TILES, chosen - MOST_TILES / 2));
  const shown = all.slice(first, first + MOST_TILES);
  const parts = shown.map(({ index, name, note, weights }) => {
    const part = overlay(contents, weights, top, SMALL, null);
    const draw: Part["draw"] = (pen) => {
      part.draw(pen);
      if (index === chosen) pen.outline(0, 0, part.width, part.height, pen.colors.warm, 2);
    };
    return { heading: `${name}  ${note}`, part: { ...part, draw } };
  });
  const grid = beside(parts, ACROSS);
  const rest = all.length > shown.length ? `, ${whole(shown.length)} of ${whole(all.length)}` : "";
  return {
    width: grid.width,
    height: 24 + grid.height,
    draw(pen) {
      pen.text(`${title}${rest}`, 0, 14, { size: 13, bold: true });
      grid.draw(pen.at(0, 24));
    },
  };
}

/** Tokens that are no patches, with their weights. */
function others({ picture, call, isFrom, name }: ImagesContents, weights: Float32Array): Part[] {
  const all = othersOf(picture, isFrom ? call.keys : call.queries);
  if (all.length === 0) return [];
  const shown = all.slice(0, MOST_OTHERS);
  const [label, bar, row] = [150, 240, 18];
  const top = shown.reduce((most, token) => Math.max(most, weights[token]!), 1e-9);
  const rest = all.length > shown.length ? `, and ${plural(all.length - shown.length, "more", "more")}` : "";
  return [
    {
      width: label + bar + 70,
      height: 24 + row * shown.length,
      draw(pen) {
        pen.text(`Beside the picture: tokens that are no patches${rest}`, 0, 14, { size: 13, bold: true });
        shown.forEach((token, index) => {
          const [y, weight, text] = [24 + row * index, weights[token]!, name(isFrom ? "key" : "query", token)];
          pen.text(text === String(token) ? `token ${token}` : `${readable(text)}  ${token}`, 0, y + 12, { most: label - 10 });
          pen.rect(label, y + 2, (bar * weight) / top, 12, pen.colors.accent, 0.45);
          pen.text(short(weight, 3), label + (bar * weight) / top + 6, y + 12, { size: 11 });
        });
      },
    },
  ];
}

/** Positions and names of one side, and where the patches are, counted from 1. */
function sideColumns({ picture, name }: ImagesContents, side: Side, count: number, isPicture: boolean): Column[] {
  const tokens = Array.from({ length: count }, (_, token) => token);
  const columns: Column[] = [
    { name: side, kind: "whole", values: tokens },
    { name: `${side}_name`, kind: "text", values: tokens.map((token) => name(side, token)) },
  ];
  if (!isPicture) return columns;
  const patches = tokens.map((token) => patchOf(picture, token));
  const at = (value: (patch: number) => number) => patches.map((patch) => (patch === null ? null : value(patch) + 1));
  columns.push({ name: "patch_row", kind: "whole", values: at((patch) => Math.floor(patch / picture.columns)) });
  columns.push({ name: "patch_column", kind: "whole", values: at((patch) => patch % picture.columns) });
  return columns;
}

/** A row for each head and token: its weight on, or from, the chosen one. */
export function headsTable(contents: ImagesContents): Table {
  const { call, isFrom, chosen, name } = contents;
  const heads = ready(contents);
  const count = isFrom ? call.keys : call.queries;
  const rows = heads.length * count;
  checkRows(rows);
  const weights = new Float32Array(rows);
  heads.forEach((row, head) => weights.set(row, head * count));
  const [side, other]: [Side, Side] = isFrom ? ["query", "key"] : ["key", "query"];
  return {
    rows,
    columns: [
      constant("layer", "text", call.layer, rows),
      constant("call", "whole", call.index, rows),
      { name: "head", kind: "whole", values: heads.map((_, head) => head), repeat: count },
      constant(side, "whole", chosen, rows),
      constant(`${side}_name`, "text", name(side, chosen), rows),
      ...sideColumns(contents, other, count, true),
      { name: "weight", kind: "number", values: weights },
    ],
  };
}

/** A row for each word and key. */
export function wordsTable(contents: ImagesContents, words: Float32Array): Table {
  const { call, head } = contents;
  const count = words.length / call.keys;
  checkRows(words.length);
  return {
    rows: words.length,
    columns: [
      constant("layer", "text", call.layer, words.length),
      constant("call", "whole", call.index, words.length),
      constant("head", "whole", head, words.length),
      ...sideColumns(contents, "query", count, false).map((column) => ({ ...column, repeat: call.keys })),
      ...sideColumns(contents, "key", call.keys, true),
      { name: "weight", kind: "number", values: words },
    ],
  };
}
