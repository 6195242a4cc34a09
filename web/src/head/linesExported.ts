// What is taken away of the lines between two columns of tokens.
import { sheetOf, type Part } from "../export/sheet";
import { constant, type Table } from "../export/table";
import type { Exported } from "../export/view";
import { whole } from "../text/numbers";
import { headed, nameOf, type OneHead } from "./exported";
import { LEAST, type Line } from "./lines";

/** The window that the lines are of, from its first query and key. */
export interface Window {
  q0: number;
  k0: number;
  queries: number;
  keys: number;
  lines: Line[];
}

const [WIDTH, COLUMN, ROW] = [640, 190, 20];
const FAINT = 0.06;

export function linesExported(one: OneHead, shown: () => Window | null): Exported {
  const { client, head, description, call } = one;
  const now = () => {
    const window = shown();
    if (!window) throw new Error("There are no lines to take away yet.");
    return window;
  };
  return {
    name: [...nameOf(one), "lines"],
    draw(theme) {
      const { q0, k0, queries, keys } = now();
      const range = (from: number, count: number, all: number) => `${whole(from)} – ${whole(from + count - 1)} of ${whole(all)}`;
      const lines = [
        `Queries ${range(q0, queries, call.queries)} on the left, keys ${range(k0, keys, call.keys)} on the right.`,
        `Lines are weights of at least ${LEAST}, wider and darker the larger they are.`,
      ];
      return sheetOf({ title: headed(one), lines, parts: [part(one, now())], note: description.title }, theme);
    },
    numbers: [{ title: "Weights of the lines", table: () => tableOf(one, now()) }],
    python() {
      const { q0, k0, queries, keys } = now();
      const of = { call: head.call, head: head.head, batch: head.batch };
      return client.snippet(head.record, { what: "lines", ...of, q0, q1: q0 + queries, k0, k1: k0 + keys });
    },
  };
}

function part({ texts, address }: OneHead, { q0, k0, queries, keys, lines }: Window): Part {
  const y = (index: number) => (index + 0.5) * ROW;
  const isChosen = ({ query, key }: Line) => {
    if (address.query === null && address.key === null) return true;
    return query + q0 === address.query || (address.query === null && key + k0 === address.key);
  };
  return {
    width: WIDTH,
    height: ROW * Math.max(queries, keys),
    draw(pen) {
      for (const line of lines) {
        const opacity = isChosen(line) ? Math.sqrt(line.weight) : FAINT;
        const ends: [number, number][] = [[COLUMN, y(line.query)], [WIDTH - COLUMN, y(line.key)]];
        pen.line(ends, pen.colors.accent, 1 + 3 * line.weight, Math.min(1, opacity));
      }
      const most = COLUMN - 8;
      for (let index = 0; index < queries; index++) {
        const bold = q0 + index === address.query;
        pen.text(texts.query(q0 + index), most, y(index) + 4, { anchor: "end", most, bold });
      }
      for (let index = 0; index < keys; index++) {
        const bold = k0 + index === address.key;
        pen.text(texts.key(k0 + index), WIDTH - most, y(index) + 4, { most, bold });
      }
    },
  };
}

function tableOf({ call, head, texts }: OneHead, { q0, k0, lines }: Window): Table {
  const rows = lines.length;
  const column = (name: "query" | "key", first: number, tokens: string[] | null) => {
    const values = lines.map((line) => first + line[name]);
    const columns: Table["columns"] = [{ name, kind: "whole", values }];
    if (tokens) columns.push({ name: `${name}_token`, kind: "text", values: values.map((index) => tokens[index] ?? null) });
    return columns;
  };
  return {
    rows,
    columns: [
      constant("layer", "text", call.layer, rows),
      constant("head", "whole", head.head, rows),
      ...column("query", q0, texts.queries),
      ...column("key", k0, texts.keys),
      { name: "weight", kind: "number", values: Float32Array.from(lines, ({ weight }) => weight) },
    ],
  };
}
