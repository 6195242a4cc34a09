import { describe, expect, it } from "vitest";
import { describe as describeMade } from "../dev/made";
import { parseHead, printHead } from "../src/compare/heads";
import { arrange, measuresOf, partOf, valuesOf } from "../src/model/arrange";
import { changed, DEFAULTS, headsFor, playOf, positionsFor, stateOf } from "../src/playground/state";
import { plural, short, whole } from "../src/text/numbers";
import { spaces } from "../src/text/spacing";
import { readable, Texts } from "../src/text/texts";

describe("numbers", () => {
  it("have few digits and real signs", () => {
    expect([0, 0.5, 0.123456, -2, 1234.5, 1e-5, 0.00099999, NaN, null, -Infinity].map((value) => short(value))).toEqual([
      "0", "0.5", "0.123", "−2", "1230", "1·10⁻⁵", "1·10⁻³", "–", "–", "−∞",
    ]); // prettier-ignore
    expect([7, 9999, 131072, -12345678].map(whole)).toEqual(["7", "9999", "131\u2009072", "−12\u2009345\u2009678"]);
    expect([plural(1, "head"), plural(2, "head")]).toEqual(["1 head", "2 heads"]);
  });
});

describe("tokens", () => {
  it("are readable whatever tokenizer wrote them", () => {
    expect(["Ġthe", "▁the", "##ing", "\n", "Ċ", " ", "", "ĠĠ"].map(readable)).toEqual(["the", "the", "##ing", "↵", "↵", "␣", "∅", "␣␣"]);
  });

  it("stand apart where a word begins", () => {
    expect(spaces(["The", "Ġcat", "s"])).toEqual([false, true, false]);
    expect(spaces(["play", "##ing", "now"])).toEqual([true, false, true]);
    expect(spaces(["a", "b"])).toEqual([true, true]);
  });

  it("of queries begin where the queries do", () => {
    const description = describeMade({ id: "a", title: "", layers: 1, heads: 1, tokens: 20, cross: false });
    const call = { ...description.calls[0]!, offset: 15, queries: 5 };
    const texts = new Texts(description, call, 0);
    expect(texts.origin).toBe(15);
    expect(texts.query(0)).toBe(texts.key(15));
    expect(texts.query(99)).toBe("99");
  });

  it("of cross-attention are those of two texts", () => {
    const description = describeMade({ id: "a", title: "", layers: 4, heads: 2, tokens: 23, cross: true });
    const call = description.calls.find(({ section }) => section === "Cross-attention")!;
    const texts = new Texts(description, call, 0);
    expect([texts.isOne, texts.queries!.length, texts.keys!.length]).toEqual([false, 23, 31]);
  });
});

describe("the overview", () => {
  const description = describeMade({ id: "a", title: "", layers: 3, heads: 5, tokens: 7, cross: false });
  it("has every head once, by layer or sorted", () => {
    const layers = arrange(description, "entropy", "")[0]!;
    expect(layers.lines.map(({ heads }) => heads.length)).toEqual([5, 5, 5]);
    const sorted = arrange(description, "entropy", "role:induction")[0]!.lines[0]!.heads;
    const scores = sorted.map(({ call, head }) => valuesOf(call, "role:induction")[head]!);
    expect(scores).toEqual([...scores].sort((a, b) => b - a));
    expect(new Set(sorted.map(({ call, head }) => `${call.index}.${head}`)).size).toBe(15);
  });
  it("keeps encoder, decoder and cross-attention apart", () => {
    const cross = describeMade({ id: "a", title: "", layers: 4, heads: 2, tokens: 23, cross: true });
    expect(arrange(cross, "", "").map(({ title }) => title)).toEqual(["Encoder", "Decoder", "Cross-attention"]);
  });
  it("knows what can be measured, and what cannot stands last", () => {
    expect(measuresOf(description)).toEqual({ statistics: ["entropy", "lse"], roles: ["role:induction"] });
    expect(valuesOf(description.calls[0]!, "nothing")).toEqual(Array(5).fill(null));
  });
  it("puts 0 in the middle of a ramp with two sides", () => {
    expect([partOf(0, -2, 8, true), partOf(8, -2, 8, true), partOf(-8, -2, 8, true)]).toEqual([0.5, 1, 0]);
    expect([partOf(3, 1, 5, false), partOf(4, 4, 4, false)]).toEqual([0.5, 0]);
  });
});

describe("the playground's state", () => {
  it("goes into the address and back", () => {
    const state = { ...DEFAULTS, kind: "low rank", temperature: 0.25, text: "a b", num_heads: 8 };
    expect(stateOf(playOf(state))).toEqual(state);
    expect(playOf(DEFAULTS)).toEqual({});
    expect(stateOf({ length: "many", unknown: "1" })).toEqual(DEFAULTS);
  });
  it("is put right where a change would leave parts that do not fit", () => {
    const rotary = { ...DEFAULTS, positions: "rotary" };
    expect(changed(rotary, "kind", "linear")["positions"]).toBe("none");
    expect(changed(rotary, "kind", "window")["positions"]).toBe("rotary");
    expect(changed({ ...DEFAULTS, num_heads: 16 }, "embed_dim", 8)["num_heads"]).toBe(4);
    expect(positionsFor("cross")).not.toContain("alibi");
    expect(headsFor(8)).toEqual([1, 2, 4]);
  });
});

it("heads side by side are written short where they are of the open record", () => {
  const head = { record: "r2", call: 3, head: 5, batch: 0 };
  expect(printHead(head, "r2")).toBe("3.5");
  expect(parseHead(printHead(head, "r1"), "r1", 0)).toEqual(head);
});
