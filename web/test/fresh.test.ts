import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { fresh } from "../src/api/fresh";

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

function later<T>(value: T, after: number): Promise<T> {
  return new Promise((resolve) => setTimeout(() => resolve(value), after));
}

describe("a fresh answer", () => {
  it("is heard once it is there", async () => {
    const heard: number[] = [];
    fresh(() => later(3, 10), (value) => heard.push(value));
    await vi.advanceTimersByTimeAsync(9);
    expect(heard).toEqual([]);
    await vi.advanceTimersByTimeAsync(2);
    expect(heard).toEqual([3]);
  });

  it("is thrown away where something else was asked meanwhile, whichever comes first", async () => {
    const heard: string[] = [];
    const signals: AbortSignal[] = [];
    const ask = (name: string, after: number) =>
      fresh((signal) => (signals.push(signal), later(name, after)), (value) => heard.push(value));
    const giveUp = ask("slow", 50);
    giveUp();
    ask("quick", 10);
    await vi.advanceTimersByTimeAsync(100);
    expect(heard).toEqual(["quick"]);
    expect(signals.map(({ aborted }) => aborted)).toEqual([true, false]);
  });

  it("is not asked for at all while the pointer moves on", async () => {
    const ask = vi.fn(() => later(1, 0));
    for (let move = 0; move < 5; move++) {
      const giveUp = fresh(ask, () => {}, () => {}, 40);
      await vi.advanceTimersByTimeAsync(20);
      if (move < 4) giveUp();
    }
    await vi.advanceTimersByTimeAsync(100);
    expect(ask).toHaveBeenCalledTimes(1);
  });

  it("says why there is none, but not of what was given up", async () => {
    const reasons: string[] = [];
    const fails = async () => {
      await later(0, 5);
      throw new Error("no such token");
    };
    fresh(fails, () => {}, (why) => reasons.push(why));
    fresh(fails, () => {}, (why) => reasons.push(why))();
    fresh(() => Promise.reject(new DOMException("", "AbortError")), () => {}, (why) => reasons.push(why));
    fresh((): Promise<number> => { throw new Error("at once"); }, () => {}, (why) => reasons.push(why));
    await vi.advanceTimersByTimeAsync(20);
    expect(reasons).toEqual(["at once", "no such token"]);
  });
});
