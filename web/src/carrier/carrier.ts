// One way to ask, whoever answers: the server, a notebook's channel, or a page that holds the answers.
import { parseSafetensors, type Arrays } from "./safetensors";

export interface Ask {
  method?: "GET" | "POST" | "DELETE";
  body?: unknown;
  signal?: AbortSignal;
}

export interface Carrier {
  /** Whether models can be run and new records made; a page that holds its answers cannot. */
  readonly live: boolean;
  /** Whether files can be asked for: there is a server, or a kernel. */
  readonly writes: boolean;
  /** Whether all answers are there already, so that nothing else can be asked for. */
  readonly isHeld?: boolean;
  json(path: string, ask?: Ask): Promise<unknown>;
  arrays(path: string, ask?: Ask): Promise<Arrays>;
  /** An answer that is a file. */
  bytes(path: string, ask?: Ask): Promise<ArrayBuffer>;
  /** Hears the states of a job until it is over; null where nobody sends them, and they are asked for. */
  follow: ((path: string, hear: (state: unknown) => void) => () => void) | null;
  /** The address of an answer that the browser downloads itself; null where there is none. */
  link(path: string): string | null;
}

/** What came back instead of an answer, in words for the reader. */
export class Refusal extends Error {
  constructor(
    readonly status: number,
    detail: string,
  ) {
    super(detail);
  }
}

export function isAbort(error: unknown): boolean {
  return error instanceof DOMException && error.name === "AbortError";
}

/** The reason in an answer that is an error: its `detail`, which may be a text or a list of faults. */
export function reasonOf(answer: unknown, otherwise: string): string {
  const detail = (answer as { detail?: unknown } | null)?.detail;
  if (typeof detail === "string") return detail;
  if (Array.isArray(detail)) {
    return detail.map((fault: { msg?: string }) => fault.msg ?? JSON.stringify(fault)).join("; ");
  }
  return otherwise;
}

export function arraysOf(data: ArrayBuffer): Arrays {
  return parseSafetensors(data);
}
