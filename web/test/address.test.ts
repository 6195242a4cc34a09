import { describe, expect, it } from "vitest";
import { parseAddress, printAddress, type Address } from "../src/address/address";

const whole: Address = {
  page: "head",
  record: "r 1/ä&=",
  call: 3,
  head: 11,
  batch: 2,
  pool: "mean",
  scale: "log",
  range: "one",
  region: [-10.25, 0, 131072, 99.5],
  query: 77,
  key: 0,
  rows: "max_weight",
  columns: "none",
  panel: "lines",
  direction: "to",
  color: "role:previous token",
  sort: "entropy",
  heads: ["3.5", "r2~0.1"],
  marks: [{ label: "a spike, here", call: 1, head: 2, region: [0, 0, 5, 5] }],
  way: "forward",
  by: "norms",
  of: "source",
  residual: 0.25,
  measure: "times",
  row: 3,
  span: [5, 131072],
  sourceSpan: [0, 8],
  opacity: 0.25,
  history: "h2",
  step: 6000,
  at: "3.1",
  exercise: "causal mask",
  learn: "classes",
  classroom: "c0ffee",
  play: { kind: "low rank", text: "a & b = c; d~e" },
};

describe("the address", () => {
  it("holds the whole state", () => {
    expect(parseAddress(printAddress(whole))).toEqual(whole);
  });

  it("is short where nothing was changed", () => {
    expect(printAddress(parseAddress(""))).toBe("#/model");
    expect(parseAddress("#/")).toEqual(parseAddress(""));
    expect(printAddress({ ...parseAddress(""), page: "head", call: 3, scale: "log" })).toBe("#/head?call=3&scale=log");
  });

  it("reads the address that the contract gives as an example", () => {
    const hash = "#/head?record=r1&call=3&head=5&pool=max&scale=log&view=0,0,131072,131072&query=77";
    const { record, call, head, pool, scale, region, query } = parseAddress(hash);
    expect({ record, call, head, pool, scale, region, query }).toEqual({
      record: "r1",
      call: 3,
      head: 5,
      pool: "max",
      scale: "log",
      region: [0, 0, 131072, 131072],
      query: 77,
    });
  });

  it("takes what does not parse as not said", () => {
    const hashes = ["call=-1", "call=1.5", "call=x", "call=9999999999999999999", "view=1,2,3", "view=5,0,1,9", "view=a,b,c,d"];
    hashes.push("pool=sum", "scale=<script>", "heads=x.y 3", "marks=a~b~c", "query=", "marks=;;~~");
    for (const hash of hashes) expect(parseAddress(`#/nowhere?${hash}`)).toEqual(parseAddress(""));
  });

  it("shares no list between two states", () => {
    parseAddress("").heads.push("1.1");
    expect(parseAddress("").heads).toEqual([]);
  });

  it("keeps 0 apart from nothing", () => {
    expect(parseAddress("#/head?query=0").query).toBe(0);
    expect(printAddress({ ...parseAddress(""), query: 0 })).toBe("#/model?query=0");
  });
});
