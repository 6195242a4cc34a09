// What is taken away of the playground: all heads small, one large, its entropy, and what is said of them.
import { scaleLinear } from "d3-scale";
import type { Client } from "../api/client";
import type { Shading } from "../color/scale";
import { imageOf } from "../color/weights";
import { weightLegend } from "../export/legend";
import { mapPart } from "../export/map";
import { dataOfImage } from "../export/pixels";
import { beside, paragraph, sheetOf, type Part } from "../export/sheet";
import { checkRows, type Column, type Table } from "../export/table";
import type { Exported } from "../export/view";
import { headOf, type Shown } from "./answer";
import type { State } from "./state";

export interface Played {
  client: Client;
  setting: State;
  shown: Shown;
  shading: Shading;
  head: number;
  query: number | null;
  key: number | null;
}

const [SMALL, ACROSS, WIDTH, TALL] = [84, 8, 700, 150];
const MARGIN = { left: 40, right: 10, top: 22, bottom: 24 };

export function playgroundExported(played: Played): Exported {
  const { client, setting, shown, head, shading } = played;
  return {
    name: ["playground", String(setting["kind"]), `head ${head}`],
    draw(theme) {
      const roles = Array.from({ length: shown.heads }, (_, index) => ({
        heading: `${index}  ${shown.info.roles[index]?.role ?? ""}`,
        part: smallPart(played, index),
      }));
      const settings = `${setting["num_heads"]} heads, ${setting["embed_dim"]} numbers a token, temperature ${setting["temperature"]}, positions ${setting["positions"]}, seed ${setting["seed"]}.`;
      const parts = [
        beside(roles, ACROSS),
        beside([{ heading: `Head ${head}`, part: large(played) }], 1),
        weightLegend(shading),
        chart(played),
        paragraph(`${shown.info.parameters.formula}. ${shown.info.parameters.meaning}`, WIDTH, 11),
      ];
      const lines = [shown.info.sentences.join(" "), settings, "Right of the large map: the entropy of each query."];
      return sheetOf({ title: `Playground: ${setting["kind"]} attention`, lines, parts }, theme);
    },
    numbers: [
      { title: "Weights of all heads", table: () => weightsTable(shown) },
      { title: "Entropy of all heads", table: () => entropyTable(shown) },
    ],
    python: async () => (await client.playgroundSnippet(setting)).code,
  };
}

function dataOf({ shown, shading }: Played, head: number, theme: "light" | "dark"): string {
  const { allowed, queries, keys } = shown;
  return dataOfImage(imageOf(headOf(shown, head), allowed, queries, keys, shading, theme));
}

function smallPart(played: Played, head: number): Part {
  return {
    width: SMALL,
    height: SMALL,
    draw(pen) {
      pen.image(dataOf(played, head, pen.theme), 0, 0, SMALL, SMALL);
      const isChosen = head === played.head;
      pen.outline(0, 0, SMALL, SMALL, isChosen ? pen.colors.accent : pen.colors.line, isChosen ? 2 : 1);
    },
  };
}

function large(played: Played): Part {
  const { shown, head, query, key } = played;
  const { queries, keys, info } = shown;
  const texts = { query: (index: number) => info.tokens[index] ?? String(index), key: (index: number) => info.memory_tokens[index] ?? String(index) };
  const cells = { row: 0, rows: queries, column: 0, columns: keys, cell: 1, shift: 0 };
  const data = (pen: { theme: "light" | "dark" }) => dataOf(played, head, pen.theme);
  return mapPart({ call: { queries, keys }, head, texts, cells, data, rows: shown.entropy, columns: null, query, key }, 480);
}

function chart({ shown, head }: Played): Part {
  const line = shown.entropy.mean.subarray(head * shown.queries, (head + 1) * shown.queries);
  const top = shown.bound.reduce((most, value) => Math.max(most, value), 0) || 1;
  const x = scaleLinear([0, Math.max(1, shown.queries - 1)], [MARGIN.left, WIDTH - MARGIN.right]);
  const y = scaleLinear([0, top], [TALL - MARGIN.bottom, MARGIN.top]);
  const points = (values: Float32Array) => Array.from(values, (value, index): [number, number] => [x(index), y(value)]);
  return {
    width: WIDTH,
    height: TALL,
    draw(pen) {
      const look = { size: 11, color: pen.colors.soft } as const;
      pen.text(`Entropy of each query, head ${head}, in nats; dashed: the most that it could be`, 0, 12, { bold: true, most: WIDTH });
      for (const tick of y.ticks(4)) {
        pen.line([[MARGIN.left, y(tick)], [WIDTH - MARGIN.right, y(tick)]], pen.colors.line);
        pen.text(String(tick), MARGIN.left - 8, y(tick) + 4, { ...look, anchor: "end" });
      }
      for (const tick of x.ticks(Math.min(10, shown.queries)).filter(Number.isInteger)) {
        pen.text(String(tick), x(tick), TALL - 6, { ...look, anchor: "middle" });
      }
      // One query has a point, and no line.
      if (line.length === 1) pen.circle(x(0), y(line[0]!), 3, pen.colors.accent);
      else {
        pen.line(points(shown.bound), pen.colors.soft, 1.3, 1, true);
        pen.line(points(line), pen.colors.accent, 1.8);
      }
    },
  };
}

function tokens(name: string, names: string[], count: number, repeat: number): Column[] {
  const values = Array.from({ length: count }, (_, index) => index);
  return [
    { name, kind: "whole", values, repeat },
    { name: `${name}_token`, kind: "text", values: values.map((index) => names[index] ?? null), repeat },
  ];
}

function weightsTable({ heads, queries, keys, weights, allowed, info }: Shown): Table {
  checkRows(weights.length);
  return {
    rows: weights.length,
    columns: [
      { name: "head", kind: "whole", values: Array.from({ length: heads }, (_, head) => head), repeat: queries * keys },
      ...tokens("query", info.tokens, queries, keys),
      ...tokens("key", info.memory_tokens, keys, 1),
      { name: "allowed", kind: "flag", values: allowed },
      { name: "weight", kind: "number", values: weights },
    ],
  };
}

function entropyTable({ heads, queries, entropy, bound, info }: Shown): Table {
  return {
    rows: heads * queries,
    columns: [
      { name: "head", kind: "whole", values: Array.from({ length: heads }, (_, head) => head), repeat: queries },
      ...tokens("query", info.tokens, queries, 1),
      { name: "entropy", kind: "number", values: entropy.mean },
      { name: "bound", kind: "number", values: bound },
    ],
  };
}
