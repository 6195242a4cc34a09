import { describe, expect, it } from "vitest";
import { resolve, titlesOf } from "../src/learn/bookmark";
import { mergedIn, nameOf, when } from "../src/learn/learn";
import { edit } from "../src/learn/typing";

const record = (id: string, title: string) => ({ id, title, model: "", tokens: 3, calls: 1, kind: "" });
const before = {
  records: [record("r1", "One"), record("r2", "Two"), record("r3", "Two")],
  histories: [{ id: "h1", title: "A training" }],
};

describe("a bookmark", () => {
  it("knows what it shows by its titles, in a server where all have other numbers", () => {
    const hash = "#/compare?record=r2&heads=0.1+r1~1.0";
    const titles = titlesOf(hash, before);
    expect(titles).toBe("Two\nOne");
    const after = { records: [record("r7", "One"), record("r1", "Two")], histories: [] };
    expect(resolve(hash, titles, after)).toEqual({ link: "#/compare?record=r1&heads=0.1+r7~1.0" });
    expect(resolve(hash, titles, { records: [record("r7", "One")], histories: [] })).toEqual({ missing: "Two" });
  });

  it("leads to the same one of several with one title", () => {
    const hash = "#/head?record=r3&head=2";
    expect(resolve(hash, titlesOf(hash, before), before)).toEqual({ link: hash });
  });

  it("of a history asks for the history, and of the playground for nothing", () => {
    const hash = "#/history?history=h1&step=40";
    expect(titlesOf(hash, before)).toBe("A training");
    expect(resolve(hash, "A training", { records: [], histories: [] })).toEqual({ missing: "A training" });
    const play = "#/playground?play.kind=causal";
    expect(titlesOf(play, before)).toBe("");
    expect(resolve(play, "", { records: [], histories: [] })).toEqual({ link: play });
  });
});

/** What the text is after a key at `|`, or between two of them; null where the field does it by itself. */
function typed(key: string, text: string, shift = false): string | null {
  const start = text.indexOf("|");
  const end = Math.max(start, text.lastIndexOf("|") - 1);
  const value = text.replaceAll("|", "");
  const change = edit(key, shift, value, start, end);
  return change && value.slice(0, change.start) + change.text + value.slice(change.end);
}

describe("the editor", () => {
  it("goes on at the indentation of the line, one step further after a colon", () => {
    expect(typed("Enter", "def f():|")).toBe("def f():\n    ");
    expect(typed("Enter", "def f():\n    x = 1|")).toBe("def f():\n    x = 1\n    ");
    expect(typed("Enter", "    if a:  |\nb")).toBe("    if a:  \n        \nb");
    expect(typed("Enter", "a|", true)).toBe(null);
  });

  it("indents to the next stop, and whole lines where some are chosen", () => {
    expect(typed("Tab", "|x")).toBe("    x");
    expect(typed("Tab", "ab|x")).toBe("ab  x");
    expect(typed("Tab", "a\n|b\n\nc|\nd")).toBe("a\n    b\n\n    c\nd");
    expect(typed("Tab", "a\n|    b\n  c|", true)).toBe("a\nb\nc");
    expect(typed("x", "a|")).toBe(null);
  });
});

describe("when a question is asked again", () => {
  it.each([
    [0, "in 1 minute"],
    [10 * 60, "in 10 minutes"],
    [5400, "in 2 hours"],
    [86_400, "in 1 day"],
    [2.6 * 86_400, "in 3 days"],
  ])("after %d seconds it is said %s", (seconds, words) => {
    const now = Date.UTC(2026, 4, 1);
    expect(when(new Date(now + 1000 * seconds).toISOString(), now)).toBe(words);
  });
});

describe("a visitor", () => {
  const nothing = { lessons: 0, exercises: 0, cards: 0, bookmarks: 0, notes: 0 };
  const visitor = { provider: "id.example", merges: true, signed_in: true, name: "Ann", subject: "7", merged: nothing };

  it("reads what was merged, and nothing where nothing was", () => {
    expect(mergedIn(nothing)).toBe("");
    expect(mergedIn({ ...nothing, lessons: 1, cards: 2 })).toBe("1 lesson, 2 quiz cards");
  });

  it("has a name only once it has signed in", () => {
    expect(nameOf(visitor)).toBe("Ann");
    expect(nameOf({ ...visitor, name: "" })).toBe("7");
    expect(nameOf({ ...visitor, signed_in: false })).toBe(null);
    expect(nameOf(null)).toBe(null);
  });
});
