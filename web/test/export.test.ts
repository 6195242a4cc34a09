import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { fitted, wrapped } from "../src/export/measure";
import { PAPER } from "../src/export/paper";
import { beside, paragraph, sheetOf, type Part } from "../src/export/sheet";
import { SheetPen } from "../src/export/sheetPen";
import type { Drawing } from "../src/export/shapes";
import { escaped, svgOf } from "../src/export/svg";
import { checkRows, guarded, linesOf, MOST_ROWS, requestOf, valueAt, type Table } from "../src/export/table";
import { fileName, modelOf } from "../src/export/view";
import { emptyCells, fill, tokensOf } from "../src/head/cells";
import { headsTable } from "../src/model/exported";
import { layerName } from "../src/text/texts";

const parsed = (drawing: Drawing) => {
  const document = new DOMParser().parseFromString(svgOf(drawing), "image/svg+xml");
  expect(document.querySelector("parsererror")).toBeNull();
  return document;
};

function drawn(draw: (pen: SheetPen) => void): Drawing {
  const pen = new SheetPen("light");
  draw(pen);
  return { width: 200, height: 100, background: "#ffffff", title: "T & <t>", shapes: pen.shapes };
}

describe("the colors of paper", () => {
  it.each(["light", "dark"] as const)("are those of the page, %s", (theme) => {
    const css = readFileSync("src/regard.css", "utf8");
    const [light = "", dark = ""] = [/\.regard \{([^}]*)\}/, /\.regard\[data-theme="dark"\] \{([^}]*)\}/].map((rule) => rule.exec(css)![1]);
    const block = theme === "light" ? light : dark;
    for (const [name, value] of Object.entries(PAPER[theme])) expect(block).toContain(`--${name}: ${value};`);
  });
});

describe("an SVG", () => {
  it("holds texts as texts, lines as lines, and says its title", () => {
    const document = parsed(
      drawn((pen) => {
        pen.text("a <b> & \"c\"", 10, 20, { angle: -52, anchor: "end", bold: true });
        pen.line([[0, 0], [10, 5], [20, 0]], "#123456", 2, 0.5, true);
        pen.circle(5, 5, 2, "#00ff00");
        pen.image("data:image/png;base64,AAAA", 0, 0, 50, 40);
      }),
    );
    expect(document.querySelector("title")!.textContent).toBe("T & <t>");
    const text = document.querySelector("text")!;
    expect(text.textContent).toBe('a <b> & "c"');
    expect(text.getAttribute("transform")).toBe("translate(10 20) rotate(-52)");
    expect(document.querySelector("polyline")!.getAttribute("points")).toBe("0,0 10,5 20,0");
    expect(document.querySelector("polyline")!.getAttribute("opacity")).toBe("0.5");
    expect(document.querySelector("circle")!.getAttribute("r")).toBe("2");
    expect(document.querySelector("image")!.getAttribute("image-rendering")).toBe("pixelated");
  });

  it("names fonts, and asks nothing of a page", () => {
    const text = svgOf(drawn((pen) => pen.text("x", 0, 0)));
    expect(text).toContain("font-family=\"Arial, 'Liberation Sans'");
    expect(text).not.toMatch(/var\(|class=|<style|http:\/\/(?!www\.w3\.org)/);
  });

  it("cuts an image where it reaches beyond the map", () => {
    const document = parsed(drawn((pen) => pen.image("data:image/png;base64,AAAA", 10, 10, 50, 40, { shown: [0.5, 1] })));
    const [box, image] = [document.querySelector("svg svg")!, document.querySelector("image")!];
    expect([box.getAttribute("width"), image.getAttribute("width"), image.getAttribute("height")]).toEqual(["50", "100", "40"]);
  });

  it("leaves out what XML may not hold", () => {
    expect(escaped("a\u0000b\u001bc\ud800d\u{1f600}")).toBe("abc\ufffdd\u{1f600}");
    parsed(drawn((pen) => pen.text("\u0001\ufffe\udc00", 0, 0)));
  });
});

describe("a sheet", () => {
  const box = (width: number, height: number): Part => ({ width, height, draw: (pen) => pen.rect(0, 0, width, height, "#abcdef") });

  it("puts parts below each other, on whole pixels, and is as large as they are", () => {
    const { width, height, shapes, background } = sheetOf({ title: "Title", lines: ["about"], parts: [box(700, 50.5), box(10, 20)], note: "from" }, "light");
    const boxes = shapes.filter((shape) => shape.kind === "rect");
    expect(boxes.map(({ height }) => height)).toEqual([50.5, 20]);
    for (const { x, y } of boxes) expect([Number.isInteger(x), Number.isInteger(y)]).toEqual([true, true]);
    expect(boxes[1]!.y).toBeGreaterThanOrEqual(boxes[0]!.y + 50.5);
    expect(height).toBeGreaterThan(boxes[1]!.y + 20);
    expect(width).toBeGreaterThanOrEqual(700);
    expect(background).toBe("#ffffff");
    expect(shapes.filter((shape) => shape.kind === "text").map(({ text }) => text)).toEqual(["Title", "about", "from"]);
  });

  it("puts parts side by side, so many a row, and none over another", () => {
    const part = beside([1, 2, 3].map((index) => ({ heading: `part ${index}`, part: box(40, 30) })), 2);
    const pen = new SheetPen("dark");
    part.draw(pen);
    const boxes = pen.shapes.filter((shape) => shape.kind === "rect");
    expect(boxes[0]!.y).toBe(boxes[1]!.y);
    expect(boxes[1]!.x).toBeGreaterThanOrEqual(boxes[0]!.x + 40);
    expect(boxes[2]!.y).toBeGreaterThanOrEqual(boxes[0]!.y + 30);
    expect(Math.max(...boxes.map(({ y }) => y + 30))).toBeLessThanOrEqual(part.height);
  });

  it("breaks and shortens texts to the room that they have", () => {
    const measure = (text: string) => 6 * text.length;
    expect(fitted("abcdefghij", 36, measure)).toBe("abcde…");
    expect(fitted("abc", 36, measure)).toBe("abc");
    const lines = wrapped("one two three four five six seven", 90);
    expect(lines.join(" ")).toBe("one two three four five six seven");
    expect(lines.length).toBeGreaterThan(2);
    expect(paragraph("a b", 90).height).toBeGreaterThan(0);
  });

  it("draws nothing for a bar without a length", () => {
    expect(drawn((pen) => pen.rect(0, 0, 1e-9, 10, "#000000")).shapes).toEqual([]);
  });
});

describe("a table", () => {
  const table: Table = {
    rows: 6,
    columns: [
      { name: "query", kind: "whole", values: [4, 5], repeat: 3 },
      { name: "key", kind: "whole", values: [0, 1, null] },
      { name: "token", kind: "text", values: ["=1+1", 'a "b",\n', " ", "", "'x", "−"] },
      { name: "allowed", kind: "flag", values: Uint8Array.of(1, 0) },
      { name: "weight", kind: "number", values: Float32Array.of(0.1, -0.5, NaN, 1e-30, 0, 1) },
    ],
  };

  it("holds once what repeats", () => {
    const rows = Array.from({ length: 6 }, (_, row) => table.columns.map((column) => valueAt(column, row)).slice(0, 2));
    expect(rows).toEqual([[4, 0], [4, 1], [4, null], [5, 0], [5, 1], [5, null]]);
  });

  it("is written as CSV, in which nothing is computed and texts can be had back", () => {
    const text = linesOf(table).join("");
    expect(text).toBe(
      [
        "query,key,token,allowed,weight",
        "4,0,'=1+1,True,0.1",
        '4,1,"a ""b"",\n",False,-0.5',
        '4,," ",True,',
        '5,0,"",False,1e-30',
        "5,1,''x,True,0",
        "5,,−,False,1",
        "",
      ].join("\r\n"),
    );
  });

  it.each(["=1+1", "+1", "-1", "@SUM(A1)", "  =1", "\t=1", "\r1", "＝1", "\ufeff=1", "\x1c=1", "'=1"])("guards %j", (text) => {
    expect(guarded(text)).toBe(`'${text}`);
  });
  it.each(["word", "1", "a=b", "", " a"])("leaves %j as it is", (text) => expect(guarded(text)).toBe(text));

  it("travels with its numbers as bytes", () => {
    const { columns } = requestOf(table) as { columns: { data?: string; values?: unknown }[] };
    const bytes = Uint8Array.from(atob(columns[4]!.data!), (letter) => letter.charCodeAt(0));
    expect([...new Float32Array(bytes.buffer)]).toEqual([...(table.columns[4]!.values as Float32Array)]);
    expect(columns[0]).toMatchObject({ values: [4, 5], repeat: 3 });
  });

  it("says that it would be too long", () => {
    expect(() => checkRows(MOST_ROWS)).not.toThrow();
    expect(() => checkRows(MOST_ROWS + 1)).toThrow("zoom in");
  });

  it("of heads has the names of the Python table", () => {
    const call = { index: 0, layer: "layers.0", kind: "self", heads: 2, queries: 3, keys: 3, roles: null };
    const columns = headsTable({ calls: [{ ...call, means: { entropy: [1, null] }, scores: { self: [0, 1] } }] } as never).columns;
    expect(columns.map(({ name }) => name).slice(-2)).toEqual(["entropy", "role.self"]);
    expect(columns.find(({ name }) => name === "entropy")!.values).toEqual([1, null]);
  });
});

describe("names", () => {
  it("of files say what they are of, and hold nothing that a system refuses", () => {
    expect(fileName(["a/b\\c: d", "layer 3", null, "head 5", "map"])).toBe("regard-a-b-c-d-layer-3-head-5-map");
    expect(fileName(["..", "", "大きい"])).toBe("regard-大きい");
    expect(fileName(["x".repeat(500), "map"])).toBe(`regard-${"x".repeat(28)}-map`);
    expect(modelOf({ title: "gpt2 · a text" })).toBe("gpt2");
  });
  it("of layers say it once", () => expect([layerName("layer 3"), layerName("own")]).toEqual(["layer 3", "layer own"]));
});

describe("the cells that are seen", () => {
  const pyramid = { queries: 37, keys: 23, shift: 0 };
  it("are whole ones within the map, whatever the screen cuts", () => {
    const cells = emptyCells([-5, 3.5, 9.2, 60], pyramid, 4)!;
    expect(cells).toMatchObject({ row: 0, rows: 10, column: 0, columns: 3, cell: 4 });
    expect(tokensOf(cells, 37, 23)).toEqual([0, 0, 12, 37]);
    expect(emptyCells([30, 0, 40, 9], pyramid, 1)).toBeNull();
  });
  it("are put together from tiles, and those that are missing are counted", () => {
    const cells = emptyCells([1, 2, 5, 5], pyramid, 1)!;
    const grid = { rows: 4, columns: 3, codes: Uint16Array.from({ length: 12 }, (_, at) => at) };
    expect(fill(cells, grid, 0, 0)).toBe(4);
    expect([...cells.codes.slice(0, 4)]).toEqual([7, 8, 0, 0]);
    expect(fill(cells, grid, 256, 0)).toBe(0);
  });
});
