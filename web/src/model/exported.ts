// What is taken away of the overview: small maps of all heads, and the table of heads.
import type { Client } from "../api/client";
import type { Call, Description } from "../api/types";
import type { Arrays } from "../carrier/safetensors";
import { diverging, inkOn, sequential, shade, type Theme } from "../color/ramps";
import { colorTable, type Shading } from "../color/scale";
import { rampLegend, weightLegend } from "../export/legend";
import { dataOfCodes, hex } from "../export/pixels";
import { sheetOf, type Part } from "../export/sheet";
import type { SheetPen } from "../export/sheetPen";
import type { Column, Table } from "../export/table";
import { modelOf, type Exported } from "../export/view";
import { plural, short } from "../text/numbers";
import { partOf, titleOf, type Group, type Head } from "./arrange";

export interface OverviewContents {
  client: Client;
  description: Description;
  maps: Arrays | null;
  groups: Group[];
  shading: Shading;
  pool: "max" | "mean";
  /** The measures by which heads are colored and sorted; "" for none. */
  color: string;
  sort: string;
}

const [TILE, CHIP, GAP, LAYER, MOST] = [84, 18, 8, 78, 12];

export function overviewExported(contents: OverviewContents): Exported {
  const { client, description, color, sort } = contents;
  return {
    name: [modelOf(description), "heads"],
    draw: (theme) => drawn(contents, theme),
    numbers: [{ title: "Heads", table: () => headsTable(description) }],
    python: () => client.snippet(description.id, { what: "heads", name: color || sort || "entropy" }),
  };
}

function drawn({ description, maps, groups, shading, pool, color, sort }: OverviewContents, theme: Theme) {
  if (!maps) throw new Error("The maps are still being loaded: try again in a moment.");
  const heads = description.calls.reduce((sum, call) => sum + call.heads, 0);
  const named = color ? `colored by ${titleOf(description, color)}` : "with their roles";
  const order = sort ? `, the largest ${titleOf(description, sort)} first` : "";
  const cells = pool === "max" ? "largest" : "mean";
  const isDiverging = description.statistics[color]?.diverging ?? false;
  const parts: Part[] = groups.map((group) => groupPart(group, groups.length > 1, { maps, shading, pool, color, isDiverging, isSorted: sort !== "" }));
  parts.push(weightLegend(shading));
  // Each part of the model has a scale of its own.
  for (const { title, low, high } of color ? groups : []) {
    if (low > high) continue;
    const name = `${titleOf(description, color)}${groups.length > 1 ? ` (${title})` : ""}`;
    const most = Math.max(Math.abs(low), Math.abs(high));
    const [from, to] = isDiverging ? [-most, most] : [low, high];
    parts.push(rampLegend(name, [short(from, 2), short((from + to) / 2, 2), short(to, 2)], isDiverging));
  }
  const lines = [`${plural(description.calls.length, "call")}, ${plural(heads, "head")}, ${named}${order}. Cells show the ${cells} weight.`];
  return sheetOf({ title: description.title, lines, parts }, theme);
}

interface Look {
  maps: Arrays;
  shading: Shading;
  pool: string;
  color: string;
  isDiverging: boolean;
  isSorted: boolean;
}

function groupPart(group: Group, isNamed: boolean, look: Look): Part {
  const columns = Math.min(MOST, Math.max(...group.lines.map(({ heads }) => heads.length)));
  const left = look.isSorted ? 0 : LAYER;
  const rows = group.lines.map(({ heads }) => Math.ceil(heads.length / columns));
  const top = isNamed ? 24 : 0;
  const step = TILE + CHIP + GAP;
  return {
    width: left + columns * (TILE + GAP) - GAP,
    height: top + step * rows.reduce((sum, count) => sum + count, 0) - GAP,
    draw(pen) {
      if (isNamed) pen.text(group.title, 0, 14, { size: 13, bold: true });
      const table = colorTable(look.shading, pen.theme);
      let y = top;
      group.lines.forEach((line, index) => {
        if (line.title) pen.text(line.title, 0, y + 14, { color: pen.colors.soft, most: LAYER - 10 });
        line.heads.forEach((head, place) => {
          const at = pen.at(left + (place % columns) * (TILE + GAP), y + step * Math.floor(place / columns));
          tile(at, head, group, table, look);
        });
        y += step * rows[index]!;
      });
    },
  };
}

function tile(pen: SheetPen, head: Head, { low, high }: Group, table: Uint32Array, look: Look): void {
  const map = look.maps.arrays[`${head.call.index}.${look.pool}`];
  const [, rows = 0, columns = 0] = map?.shape ?? [];
  if (map && rows * columns > 0) {
    const codes = (map.data as Uint16Array).subarray(head.head * rows * columns, (head.head + 1) * rows * columns);
    pen.image(dataOfCodes(codes, rows, columns, table), 0, 0, TILE, TILE);
  } else pen.rect(0, 0, TILE, TILE, pen.colors.wash);
  let ink = pen.colors.ink;
  if (look.color && head.value !== null) {
    const ramp = (look.isDiverging ? diverging : sequential)[pen.theme];
    const background = shade(ramp, partOf(head.value, low, high, look.isDiverging));
    pen.rect(0, TILE, TILE, CHIP, hex(background));
    ink = hex(inkOn(background));
  }
  const role = head.call.roles?.[head.head]?.role ?? "";
  const name = look.isSorted ? `${head.call.name}.${head.head}` : String(head.head);
  const label = look.color ? short(head.value, 2) : role;
  const room = Math.min(40, 8 + 8 * name.length);
  pen.text(name, 5, TILE + 13, { size: 11, bold: true, color: ink, most: room });
  pen.text(label, TILE - 5, TILE + 13, { size: 11, color: ink, anchor: "end", most: TILE - room - 10 });
  pen.outline(0, 0, TILE, TILE + CHIP, pen.colors.line, 1);
}

/** A row a head: which it is, its role, and every statistic and score, with the names of `record.heads`. */
export function headsTable({ calls }: Description): Table {
  const heads = calls.flatMap((call) => Array.from({ length: call.heads }, (_, head) => ({ call, head })));
  const of = (name: string, kind: Column["kind"], value: (call: Call, head: number) => string | number | null): Column => {
    return { name, kind, values: heads.map(({ call, head }) => value(call, head)) };
  };
  const names = (field: "means" | "scores") => [...new Set(calls.flatMap((call) => Object.keys(call[field])))];
  return {
    rows: heads.length,
    columns: [
      of("layer", "text", (call) => call.layer),
      of("kind", "text", (call) => call.kind),
      of("head", "whole", (_, head) => head),
      of("call", "whole", (call) => call.index),
      of("queries", "whole", (call) => call.queries),
      of("keys", "whole", (call) => call.keys),
      of("role", "text", (call, head) => call.roles?.[head]?.role ?? null),
      of("score", "number", (call, head) => call.roles?.[head]?.score ?? null),
      ...names("means").map((name) => of(name, "number", (call, head) => call.means[name]?.[head] ?? null)),
      ...names("scores").map((name) => of(`role.${name}`, "number", (call, head) => call.scores[name]?.[head] ?? null)),
    ],
  };
}
