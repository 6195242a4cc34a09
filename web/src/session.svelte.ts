// What one mounted explorer knows: whom it asks, where it is, and the record that is open.
import { getContext, setContext } from "svelte";
import { browserBar, Store, type Bar } from "./address/store.svelte";
import { ThemeStore } from "./address/theme.svelte";
import { Client, reason } from "./api/client";
import type { Call, Description, HeadOf, RecordEntry, ServerState } from "./api/types";
import type { Carrier } from "./carrier/carrier";
import { Texts } from "./text/texts";

export class Session {
  readonly client: Client;
  readonly store: Store;
  readonly theme = new ThemeStore();
  /** Whether the explorer is the whole page: in a notebook its title and keys are others'. */
  readonly isPage: boolean;
  /** The element that holds everything. */
  root: HTMLElement | null = null;
  server = $state.raw<ServerState | null>(null);
  error = $state<string | null>(null);
  private described = $state.raw<Record<string, Description>>({});

  /** The record of the address, or the first that there is. */
  record = $derived.by(() => this.store.address.record || this.server?.records[0]?.id || "");
  /** What the server says of it. */
  entry = $derived.by((): RecordEntry | null => this.server?.records.find(({ id }) => id === this.record) ?? null);
  description = $derived.by((): Description | null => this.described[this.record] ?? null);
  call = $derived.by((): Call | null => this.description?.calls[this.store.address.call] ?? null);
  texts = $derived.by((): Texts | null => {
    if (!this.description || !this.call) return null;
    return new Texts(this.description, this.call, this.store.address.batch);
  });
  head = $derived.by((): HeadOf => {
    const { call, head, batch } = this.store.address;
    return { record: this.record, call, head, batch };
  });

  constructor(carrier: Carrier, bar: Bar) {
    this.client = new Client(carrier);
    this.store = new Store(bar);
    this.isPage = bar === browserBar;
  }

  async load(): Promise<void> {
    try {
      this.server = await this.client.state();
      this.error = null;
    } catch (error) {
      this.error = reason(error);
    }
  }

  /** Has the description of a record fetched, once. */
  async open(record: string): Promise<void> {
    if (!record || this.described[record]) return;
    try {
      const description = await this.client.describe(record);
      this.described = { ...this.described, [record]: description };
      this.error = null;
    } catch (error) {
      this.error = reason(error);
    }
  }

  /** Whether a key was pressed in here, or on a page that is the explorer's anyway. */
  hears(event: KeyboardEvent): boolean {
    return this.isPage || (this.root?.contains(event.target as Node) ?? false);
  }

  of(record: string): Description | null {
    return this.described[record || this.record] ?? null;
  }
}

const KEY = Symbol("regard");

export function provide(session: Session): void {
  setContext(KEY, session);
}

export function useSession(): Session {
  return getContext<Session>(KEY);
}
