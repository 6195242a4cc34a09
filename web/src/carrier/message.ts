// Asks over a channel of messages, as a notebook's widget has one: each request has a number, which its answer repeats.
import { arraysOf, reasonOf, Refusal, type Ask, type Carrier } from "./carrier";
import type { Arrays } from "./safetensors";

export interface Channel {
  send(message: unknown): void;
  /** Calls `hear` for every message, with the bytes that came with it; returns what ends that. */
  listen(hear: (message: unknown, buffers: DataView[]) => void): () => void;
}

interface Answer {
  id: number;
  status: number;
  json?: unknown;
}

type Waiting = { resolve(answer: [Answer, DataView[]]): void; reject(error: unknown): void };

export class MessageCarrier implements Carrier {
  readonly live = false;
  readonly writes = true;
  readonly follow = null;
  private readonly waiting = new Map<number, Waiting>();
  private next = 1;
  private readonly stop: () => void;

  constructor(private readonly channel: Channel) {
    this.stop = channel.listen((message, buffers) => {
      const answer = message as Answer;
      const waiting = this.waiting.get(answer?.id);
      // Other messages of the widget travel on the same channel.
      if (!waiting) return;
      this.waiting.delete(answer.id);
      waiting.resolve([answer, buffers]);
    });
  }

  async json(path: string, ask: Ask = {}): Promise<unknown> {
    const [answer] = await this.ask(path, "json", ask);
    return answer.json;
  }

  async arrays(path: string, ask: Ask = {}): Promise<Arrays> {
    return arraysOf(await this.bytes(path, ask));
  }

  async bytes(path: string, ask: Ask = {}): Promise<ArrayBuffer> {
    const [, buffers] = await this.ask(path, "arrays", ask);
    const view = buffers[0];
    if (!view) throw new Refusal(0, `${path}: bytes expected, got none`);
    return view.buffer.slice(view.byteOffset, view.byteOffset + view.byteLength) as ArrayBuffer;
  }

  link(): null {
    return null;
  }

  close(): void {
    this.stop();
    for (const { reject } of this.waiting.values()) reject(new Refusal(0, "The notebook's channel was closed."));
    this.waiting.clear();
  }

  private async ask(path: string, kind: string, ask: Ask): Promise<[Answer, DataView[]]> {
    const id = this.next++;
    const message = { id, kind, path, method: ask.method ?? "GET", body: ask.body ?? null };
    const [answer, buffers] = await new Promise<[Answer, DataView[]]>((resolve, reject) => {
      ask.signal?.throwIfAborted();
      this.waiting.set(id, { resolve, reject });
      ask.signal?.addEventListener("abort", () => {
        if (!this.waiting.delete(id)) return;
        this.channel.send({ id, kind: "cancel" });
        reject(ask.signal?.reason);
      });
      this.channel.send(message);
    });
    if (answer.status >= 400) throw new Refusal(answer.status, reasonOf(answer.json, `status ${answer.status}`));
    return [answer, buffers];
  }
}
