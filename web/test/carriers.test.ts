import { describe, expect, it, vi } from "vitest";
import { Cache } from "../src/api/cache";
import { Refusal, reasonOf } from "../src/carrier/carrier";
import { FetchCarrier } from "../src/carrier/fetch";
import { MessageCarrier, type Channel } from "../src/carrier/message";
import { writeSafetensors } from "../src/carrier/safetensors";

const FILE = writeSafetensors({ weights: { dtype: "F32", shape: [2], data: Float32Array.from([0.25, 0.75]) } });

function channel() {
  const sent: Record<string, unknown>[] = [];
  let hear: (message: unknown, buffers: DataView[]) => void = () => {};
  const made: Channel = { send: (message) => sent.push(message as Record<string, unknown>), listen: (take) => ((hear = take), () => {}) };
  return { made, sent, answer: (message: unknown, buffers: DataView[] = []) => hear(message, buffers) };
}

describe("the notebook's channel", () => {
  it("gives each question its own answer, in whatever order they come", async () => {
    const { made, sent, answer } = channel();
    const carrier = new MessageCarrier(made);
    const [one, two] = [carrier.json("api/state"), carrier.arrays("api/x")];
    answer("something else");
    answer({ id: sent[1]!["id"], status: 200 }, [new DataView(FILE)]);
    answer({ id: sent[0]!["id"], status: 200, json: { version: "1" } });
    expect(await one).toEqual({ version: "1" });
    expect((await two).arrays["weights"]!.shape).toEqual([2]);
  });

  it("turns a refusal into its reason, and tells the other side of a canceled question", async () => {
    const { made, sent, answer } = channel();
    const carrier = new MessageCarrier(made);
    const refused = carrier.json("api/x");
    answer({ id: sent[0]!["id"], status: 404, json: { detail: "a call expected, got 9" } });
    await expect(refused).rejects.toThrow("a call expected, got 9");
    const control = new AbortController();
    const canceled = carrier.json("api/y", { signal: control.signal });
    control.abort();
    await expect(canceled).rejects.toThrow("abort");
    expect(sent.at(-1)).toMatchObject({ kind: "cancel", id: sent.at(-2)!["id"] });
  });

  it("carries what is to be written, and the file that comes back", async () => {
    const { made, sent, answer } = channel();
    const file = new MessageCarrier(made).bytes("api/pdf", { method: "POST", body: { width: 1 } });
    expect(sent[0]).toMatchObject({ path: "api/pdf", method: "POST", body: { width: 1 } });
    // A part of a larger buffer, as channels hand them on.
    answer({ id: sent[0]!["id"], status: 200 }, [new DataView(Uint8Array.of(0, 37, 80, 0).buffer, 1, 2)]);
    expect([...new Uint8Array(await file)]).toEqual([37, 80]);
  });

  it("leaves nobody waiting when it closes", async () => {
    const carrier = new MessageCarrier(channel().made);
    const asked = carrier.json("api/state");
    carrier.close();
    await expect(asked).rejects.toThrow("closed");
  });
});

describe("the server", () => {
  it("is asked below the page's own folder, and its reasons are told", async () => {
    const answers = [new Response(FILE), new Response('{"detail": "text must be shorter"}', { status: 422 })];
    const fetched = vi.spyOn(globalThis, "fetch").mockImplementation(async () => answers.shift()!);
    const carrier = new FetchCarrier("http://127.0.0.1:1/some/where/");
    await carrier.arrays("api/x");
    expect(fetched.mock.calls[0]![0]).toBe("http://127.0.0.1:1/some/where/api/x");
    const refused = await carrier.json("api/runs", { method: "POST", body: { text: "a" } }).catch((error: Refusal) => error);
    expect(refused).toMatchObject({ status: 422, message: "text must be shorter" });
    expect(fetched.mock.calls[1]![1]).toMatchObject({ method: "POST", body: '{"text":"a"}' });
    fetched.mockRejectedValueOnce(new TypeError("failed"));
    await expect(carrier.json("api/state")).rejects.toThrow("does not answer");
  });

  it("may give a list of faults", () => {
    expect(reasonOf({ detail: [{ msg: "a" }, { msg: "b" }] }, "")).toBe("a; b");
    expect(reasonOf(null, "500 wrong")).toBe("500 wrong");
  });
});

describe("answers that are kept", () => {
  it("are asked for once, until there are too many", async () => {
    const cache = new Cache(100);
    const ask = vi.fn(async () => 1);
    await cache.get("a", ask, 60);
    await cache.get("a", ask, 60);
    expect(ask).toHaveBeenCalledTimes(1);
    await cache.get("b", ask, 60);
    await Promise.resolve();
    expect(cache.size).toBe(1);
    await cache.get("a", ask, 60);
    expect(ask).toHaveBeenCalledTimes(3);
  });

  it("are asked again after a failure", async () => {
    const cache = new Cache(100);
    await expect(cache.get("a", () => Promise.reject(new Error("gone")), 1)).rejects.toThrow("gone");
    expect(await cache.get("a", async () => 2, 1)).toBe(2);
  });
});
