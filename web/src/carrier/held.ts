// Answers that a page holds itself, by path: a report that is opened from a file asks nobody.
import { arraysOf, Refusal, type Ask, type Carrier } from "./carrier";
import type { Arrays } from "./safetensors";

export interface Held {
  json: Record<string, unknown>;
  /** Base64 of safetensors files. */
  arrays: Record<string, string>;
}

export class HeldCarrier implements Carrier {
  readonly live = false;
  readonly writes = false;
  readonly isHeld = true;
  readonly follow = null;

  constructor(private readonly held: Held) {}

  async json(path: string, ask: Ask = {}): Promise<unknown> {
    return this.find(this.held.json, path, ask);
  }

  async arrays(path: string, ask: Ask = {}): Promise<Arrays> {
    const bytes = Uint8Array.from(atob(this.find(this.held.arrays, path, ask)), (letter) => letter.charCodeAt(0));
    return arraysOf(bytes.buffer);
  }

  async bytes(path: string): Promise<ArrayBuffer> {
    throw new Refusal(405, `This page holds what was seen and has no server: ${path} cannot be asked for.`);
  }

  link(): null {
    return null;
  }

  private find<T>(answers: Record<string, T>, path: string, ask: Ask): T {
    if ((ask.method ?? "GET") !== "GET") throw new Refusal(405, "This page holds what was seen and can run nothing.");
    const answer = answers[canonical(path)];
    if (answer === undefined) throw new Refusal(404, `This page does not hold ${path}.`);
    return answer;
  }
}

/** The path with its parameters in alphabetical order, so that one question has one name. */
export function canonical(path: string): string {
  const [before = "", after] = path.split("?");
  if (!after) return before;
  return `${before}?${after.split("&").sort().join("&")}`;
}
