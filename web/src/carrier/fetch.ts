// Asks the server that the page came from.
import { arraysOf, reasonOf, Refusal, type Ask, type Carrier } from "./carrier";
import type { Arrays } from "./safetensors";

export class FetchCarrier implements Carrier {
  readonly live = true;
  readonly writes = true;

  /** `base` is where paths such as `api/state` begin; the page's own folder by default. */
  constructor(private readonly base: string = document.baseURI) {}

  async json(path: string, ask: Ask = {}): Promise<unknown> {
    const response = await this.send(path, ask);
    if (response.status === 204) return null;
    return response.json();
  }

  async arrays(path: string, ask: Ask = {}): Promise<Arrays> {
    return arraysOf(await this.bytes(path, ask));
  }

  async bytes(path: string, ask: Ask = {}): Promise<ArrayBuffer> {
    const response = await this.send(path, ask);
    return response.arrayBuffer();
  }

  // The server stops a run to which nobody listens any more: closing the tab stops the work.
  follow = (path: string, hear: (state: unknown) => void): (() => void) => {
    const source = new EventSource(this.link(path));
    source.onmessage = (event) => hear(JSON.parse(event.data as string));
    return () => source.close();
  };

  link(path: string): string {
    return new URL(path.replace(/^\//, ""), this.base).href;
  }

  private async send(path: string, ask: Ask): Promise<Response> {
    const init: RequestInit = { method: ask.method ?? "GET", credentials: "same-origin" };
    if (ask.signal) init.signal = ask.signal;
    if (ask.body !== undefined) {
      init.body = JSON.stringify(ask.body);
      init.headers = { "content-type": "application/json" };
    }
    let response: Response;
    try {
      response = await fetch(this.link(path), init);
    } catch (error) {
      if (error instanceof TypeError) throw new Refusal(0, "The server does not answer. Is it still running?");
      throw error;
    }
    if (response.ok) return response;
    const answer: unknown = await response.json().catch(() => null);
    throw new Refusal(response.status, reasonOf(answer, `${response.status} ${response.statusText}`));
  }
}
