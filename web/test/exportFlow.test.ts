import { describe, expect, it } from "vitest";
import type { Call, Description, PictureOf } from "../src/api/types";
import { linesOf } from "../src/export/table";
import type { FlowedText } from "../src/flow/exported";
import { sharesTable } from "../src/flow/exported";
import type { HistoryNumbers, LayerMaps } from "../src/history/ask";
import { mapsTable, pieces, valuesTable } from "../src/history/exported";
import { headsTable, wordsTable, type ImagesContents } from "../src/images/exported";

const lines = (table: Parameters<typeof linesOf>[0]) => linesOf(table).join("").trim().split("\r\n");

describe("the table of a flow", () => {
  const text = { name: "target", layers: ["0"], tokens: 15 };
  const one = { text, title: "", tokens: ["a", "b", "c"], span: null, chosen: 1 } as unknown as FlowedText;
  const few = { shares: Float32Array.of(0.25, 0.5, 0.25, 0, 1, 0), equal: null, rows: 2, cells: 3, cell: 1, first: 0, end: 3 };

  it("has a row for each layer and token", () => {
    expect(lines(sharesTable(one, few))).toEqual([
      "row,layer,token,tokens,text,share",
      "0,input,0,1,a,0.25",
      "0,input,1,1,b,0.5",
      "0,input,2,1,c,0.25",
      "1,after 0,0,1,a,0",
      "1,after 0,1,1,b,1",
      "1,after 0,2,1,c,0",
    ]);
  });

  it("says how many tokens a cell has, and nothing where no path leads", () => {
    const equal = Float32Array.of(0.5, 0.25, 0, 0, 1, 0);
    const table = lines(sharesTable(one, { ...few, equal, cell: 4, first: 5, end: 15 }));
    expect(table.slice(0, 4)).toEqual([
      "row,layer,token,tokens,text,share,equal,times",
      "0,input,5,4,,0.25,0.5,0.5",
      "0,input,9,4,,0.5,0.25,2",
      "0,input,13,2,,0.25,0,",
    ]);
  });
});

describe("the tables of a history", () => {
  const layer = (name: string, heads: number, first: number, more = {}) => {
    return { layer: `model.${name}`, name, kind: "self", heads, first, without: [], cell: 2, offset: 1, queries: 3, keys: 4, ...more };
  };
  const history = {
    steps: [0, 10],
    statistics: { entropy: {}, distance: {} },
    layers: [layer("0", 2, 0), layer("1", 1, 2, { without: ["distance"], kind: "cross", offset: 0 })],
    heads: 3,
    values: Float32Array.of(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12),
  } as unknown as HistoryNumbers;

  it("have a row for each step and head, with all statistics", () => {
    expect(lines(valuesTable(history))).toEqual([
      "step,layer,kind,head,entropy,distance",
      "0,model.0,self,0,1,4",
      "0,model.0,self,1,2,5",
      "0,model.1,cross,0,3,",
      "10,model.0,self,0,7,10",
      "10,model.0,self,1,8,11",
      "10,model.1,cross,0,9,",
    ]);
  });

  it("have a row for each cell, whose first tokens are on the grid of positions", () => {
    const maps: LayerMaps[] = [
      { weights: Float32Array.of(1, 2, 3, 4, 5, 6, 7, 8), rows: 2, columns: 2 },
      { weights: Float32Array.of(0.5, 0.25), rows: 1, columns: 2 },
    ];
    const table = lines(mapsTable(history, 10, maps));
    expect(table[0]).toBe("step,layer,kind,head,query,key,cell,weight");
    expect(table[1]).toBe("10,model.0,self,0,0,0,2,1");
    // The first row of cells has the one token before position 2.
    expect(table[4]).toBe("10,model.0,self,0,1,2,2,4");
    expect(table[5]).toBe("10,model.0,self,1,0,0,2,5");
    expect(table.slice(9)).toEqual(["10,model.1,cross,0,0,0,2,0.5", "10,model.1,cross,0,0,2,2,0.25"]);
  });

  it("draw no line where a value is not known", () => {
    const same = (value: number) => value;
    expect(pieces([1, 2, NaN, 4, NaN], same, same)).toEqual([[[0, 1], [1, 2]], [[3, 4]]]);
    expect(pieces([NaN], same, same)).toEqual([]);
  });
});

describe("the tables of a picture", () => {
  // A class token, then one row of two patches.
  const picture: PictureOf = { rows: 1, columns: 2, start: 1, text: "tokens", words: [] };
  const contents = {
    description: { id: "r1", title: "ViT" } as Description,
    picture,
    call: { index: 4, layer: "blocks.1", queries: 3, keys: 3 } as Call,
    head: 1,
    chosen: 2,
    isFrom: true,
    heads: [Float32Array.of(0.5, 0.25, 0.25), Float32Array.of(1, 0, 0)],
    name: (_: string, token: number) => (token === 0 ? "=class" : `p${token}`),
  } as unknown as ImagesContents;

  it("have a row for each head and token, and say which are patches", () => {
    const table = lines(headsTable(contents));
    expect(table[0]).toBe("layer,call,head,query,query_name,key,key_name,patch_row,patch_column,weight");
    expect(table[1]).toBe("blocks.1,4,0,2,p2,0,'=class,,,0.5");
    expect(table[3]).toBe("blocks.1,4,0,2,p2,2,p2,1,2,0.25");
    expect(table.length).toBe(7);
  });

  it("name the other side where it is asked who attends", () => {
    expect(lines(headsTable({ ...contents, isFrom: false }))[2]).toBe("blocks.1,4,0,2,p2,1,p1,1,1,0.25");
    expect(lines(headsTable({ ...contents, isFrom: false }))[0]).toContain("head,key,key_name,query,query_name,patch_row");
  });

  it("have a row for each word and key", () => {
    const table = lines(wordsTable(contents, Float32Array.of(1, 2, 3, 4, 5, 6)));
    expect(table[0]).toBe("layer,call,head,query,query_name,key,key_name,patch_row,patch_column,weight");
    expect(table[5]).toBe("blocks.1,4,1,1,p1,1,p1,1,1,5");
  });

  it("are not there before the weights are", () => {
    expect(() => headsTable({ ...contents, heads: null })).toThrow("still being loaded");
  });
});
