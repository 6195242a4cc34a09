import { describe, expect, it } from "vitest";
import { dayOf, mostMet, type ExerciseLine } from "../src/learn/classes/classes";

const line = (name: string, checked: number, mistakes: [string, number][]): ExerciseLine => ({
  name,
  lesson: 1,
  begun: 0,
  passed: 0,
  checked,
  checks: null,
  mistakes: mistakes.map(([variant, learners]) => ({ variant, text: `${variant}.`, learners })),
});

describe("the mistakes of a class", () => {
  it("come with the one that most learners met first, from all exercises", () => {
    const all = [line("a", 5, [["x", 4], ["y", 1]]), line("b", 9, [["z", 6]]), line("c", 2, [])];
    expect(mostMet(all, 2).map(({ exercise, variant, learners, checked }) => [exercise, variant, learners, checked])).toEqual([
      ["b", "z", 6, 9],
      ["a", "x", 4, 5],
    ]);
    expect(mostMet([], 2)).toEqual([]);
  });
});

describe("a day", () => {
  it("is that of the server wherever one is", () => {
    expect(dayOf(null)).toBe("–");
    expect(dayOf("2026-03-01")).toBe(new Date(2026, 2, 1).toLocaleDateString());
  });
});
