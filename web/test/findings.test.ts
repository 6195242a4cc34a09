import { describe, expect, it } from "vitest";
import type { Call } from "../src/api/types";
import { groupsOf, pairOf, stateOf, worstOf, type Finding, type Place } from "../src/check/findings";

function call(index: number, heads: number, queries = 31, keys = queries): Call {
  return { index, heads, queries, keys, name: String(index) } as Call;
}

function place(index: number, head: number | null, query: number | null = null, key: number | null = null): Place {
  return { call: index, head, batch: 0, query, key };
}

function finding(name: string, severity: Finding["severity"], where: Place | null): Finding {
  return {
    name,
    severity,
    where: "",
    value: 1,
    threshold: 0.5,
    low: null,
    high: null,
    texts: 1,
    evidence: {},
    sentence: "",
    advice: "",
    place: where,
    twin: null,
  };
}

const FOUND = [
  finding("not finite", "severe", null),
  finding("collapse", "warning", place(0, 2)),
  finding("collapse", "warning", place(1, 0)),
  finding("sink", "note", place(0, 2)),
  finding("sink", "note", place(0, 1)),
];

describe("findings", () => {
  it("stand in groups of one rule, the worst first", () => {
    const groups = groupsOf(FOUND).map(({ name, severity, findings }) => [name, severity, findings.length]);
    expect(groups).toEqual([
      ["not finite", "severe", 1],
      ["collapse", "warning", 2],
      ["sink", "note", 2],
    ]);
  });

  it("keep severities of one rule apart", () => {
    const found = [finding("collapse", "severe", place(0, 0)), finding("collapse", "warning", place(1, 0))];
    expect(groupsOf(found)).toHaveLength(2);
  });

  it("color each head by the worst of its own", () => {
    const grid = worstOf(FOUND, [call(0, 3), call(1, 2)]).map((line) => line.map((one) => one?.severity ?? null));
    expect(grid).toEqual([
      [null, "note", "warning"],
      ["warning", null],
    ]);
  });

  it("of a whole layer are those of all its heads", () => {
    const grid = worstOf([finding("vanishing", "severe", place(1, null))], [call(0, 1), call(1, 2)]);
    expect(grid.map((line) => line.map((one) => one !== null))).toEqual([[false], [true, true]]);
  });

  it("lead to their pair, and in a long text close to it", () => {
    expect(stateOf(place(3, 5, 7, null), call(3, 6))).toMatchObject({ page: "head", call: 3, head: 5, query: 7, key: null, region: null });
    expect(stateOf(place(0, 1, 500, 10), call(0, 2, 1000)).region).toEqual([0, 468, 64, 532]);
    expect(stateOf(place(0, 1, 999, 999), call(0, 2, 1000)).region).toEqual([936, 936, 1000, 1000]);
  });

  it("say which pair it is", () => {
    const tokens = (index: number) => ["the", "cat"][index] ?? String(index);
    expect(pairOf(place(0, 0, 1, 0), tokens, tokens)).toBe("query 1 “cat”, key 0 “the”");
    expect(pairOf(place(0, 0, null, 7), tokens, tokens)).toBe("key 7");
    expect(pairOf(place(0, 0), tokens, tokens)).toBe("");
  });
});
