// One way to wait for an answer: asked after a pause, given up when something else is asked, and never heard too late.
import { reason } from "./client";

/**
 * Asks, and hands the answer on unless it was given up meanwhile.
 *
 * @param ask is given a signal that is aborted once nobody waits any more.
 * @param answer hears the answer. @param failure hears why there is none, but not of what was given up.
 * @param pause milliseconds before asking, so that a pointer that moves on asks for nothing.
 * @returns how to give up: what an effect returns.
 */
export function fresh<T>(
  ask: (signal: AbortSignal) => Promise<T>,
  answer: (value: T) => void,
  failure: (why: string) => void = () => {},
  pause = 0,
): () => void {
  const control = new AbortController();
  const { signal } = control;
  async function begin(): Promise<void> {
    try {
      const value = await ask(signal);
      if (!signal.aborted) answer(value);
    } catch (error) {
      const why = reason(error);
      if (!signal.aborted && why !== null) failure(why);
    }
  }
  let timer: ReturnType<typeof setTimeout> | undefined;
  if (pause > 0) timer = setTimeout(begin, pause);
  else void begin();
  return () => {
    clearTimeout(timer);
    control.abort();
  };
}
