import { describe, expect, it } from "vitest";
import { MessageCarrier } from "../src/carrier/message";
import { isDark } from "../src/notebook/theme";
import { channelOf, type Model } from "../src/notebook/widget";

type Sent = { view: string; id: number; kind: string; path: string };

/** A widget's model whose kernel is here. */
class Kernel implements Model {
  sent: Sent[] = [];
  private readonly heard = new Set<(message: unknown, buffers?: DataView[]) => void>();
  get = () => "";
  set = () => {};
  save_changes = () => {};
  send = (message: unknown) => this.sent.push(message as Sent);
  on = (_event: string, hear: (...parts: never[]) => void) => this.heard.add(hear as never);
  off = (_event: string, hear: (...parts: never[]) => void) => this.heard.delete(hear as never);
  answer(message: unknown, buffers?: DataView[]) {
    for (const hear of [...this.heard]) hear(message, buffers);
  }
  get listeners() {
    return this.heard.size;
  }
}

describe("the channel of a widget", () => {
  it("gives each view its own answers, though they count alike", async () => {
    const kernel = new Kernel();
    const carriers = [new MessageCarrier(channelOf(kernel)), new MessageCarrier(channelOf(kernel))];
    const answers = carriers.map((carrier, place) => carrier.json(`api/${place}`));
    const [first, second] = kernel.sent as [Sent, Sent];
    expect(first.id).toBe(second.id);
    expect(first.view).not.toBe(second.view);
    for (const { view, id, path } of [second, first]) kernel.answer({ view, id, status: 200, json: path });
    expect(await Promise.all(answers)).toEqual(["api/0", "api/1"]);
  });

  it("says so where the kernel is gone, of what waits and of what is asked later", async () => {
    const kernel = new Kernel();
    const channel = channelOf(kernel);
    const carrier = new MessageCarrier(channel);
    const waiting = carrier.json("api/state");
    channel.end();
    carrier.close();
    await expect(waiting).rejects.toThrow("closed");
    await expect(carrier.json("api/state")).rejects.toThrow("run the cell again");
    expect(kernel.listeners).toBe(0);
  });

  it("hands on the reason of a refusal", async () => {
    const kernel = new Kernel();
    const carrier = new MessageCarrier(channelOf(kernel));
    const waiting = carrier.arrays("api/x");
    const { view, id } = kernel.sent[0]!;
    kernel.answer({ view, id, status: 404, json: { detail: "no such head" } });
    await expect(waiting).rejects.toThrow("no such head");
  });
});

it("follows the notebook's theme", () => {
  const body = document.createElement("body");
  for (const [name, value, dark] of [
    ["jpThemeLight", "false", true],
    ["jpThemeLight", "true", false],
    ["vscodeThemeKind", "vscode-dark", true],
    ["vscodeThemeKind", "vscode-light", false],
  ] as const) {
    delete body.dataset["jpThemeLight"];
    body.dataset[name] = value;
    expect(isDark(body)).toBe(dark);
  }
});
