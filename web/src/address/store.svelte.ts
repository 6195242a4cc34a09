// The state that all views share: the address, and what the pointer is on.
import { parseAddress, printAddress, type Address } from "./address";

export interface Focus {
  query: number | null;
  key: number | null;
}

/** Where the state is written: the browser's address bar, or nowhere in a notebook. */
export interface Bar {
  read(): string;
  write(hash: string, isStep: boolean): void;
  listen(hear: () => void): () => void;
}

export const browserBar: Bar = {
  read: () => location.hash,
  write(hash, isStep) {
    if (hash === location.hash) return;
    if (isStep) history.pushState(null, "", hash);
    else history.replaceState(null, "", hash);
  },
  listen(hear) {
    addEventListener("hashchange", hear);
    addEventListener("popstate", hear);
    return () => {
      removeEventListener("hashchange", hear);
      removeEventListener("popstate", hear);
    };
  },
};

export class Store {
  address = $state<Address>(parseAddress(""));
  /** What the pointer or the keyboard is on; every view answers to it. */
  focus = $state<Focus>({ query: null, key: null });
  /** What a screen reader is told next. */
  said = $state("");

  /** The query that views show: under the pointer, else the chosen one. */
  query = $derived(this.focus.query ?? this.address.query);
  key = $derived(this.focus.key ?? this.address.key);

  private timer: ReturnType<typeof setTimeout> | undefined;
  private readonly stop: () => void;

  constructor(private readonly bar: Bar) {
    this.address = parseAddress(bar.read());
    this.stop = bar.listen(() => {
      // What comes from outside is the state; what was about to be written is older.
      clearTimeout(this.timer);
      const hash = bar.read();
      if (hash !== printAddress(this.address)) this.address = parseAddress(hash);
    });
  }

  /** Changes the address; a step is one that the browser's back button takes back. */
  change(changes: Partial<Address>, isStep = false): void {
    Object.assign(this.address, changes);
    clearTimeout(this.timer);
    if (isStep) this.bar.write(printAddress(this.address), true);
    // Browsers refuse many writes in a row, as panning would make them.
    else this.timer = setTimeout(() => this.bar.write(printAddress(this.address), false), 150);
  }

  /** Goes where a link leads. */
  go(hash: string): void {
    clearTimeout(this.timer);
    this.address = parseAddress(hash);
    this.bar.write(printAddress(this.address), true);
  }

  /** The hash of the state with changes: what a link leads to. */
  link(changes: Partial<Address>): string {
    return printAddress({ ...$state.snapshot(this.address), ...changes } as Address);
  }

  point(query: number | null, key: number | null): void {
    if (query === this.focus.query && key === this.focus.key) return;
    this.focus = { query, key };
  }

  close(): void {
    clearTimeout(this.timer);
    this.stop();
  }
}
