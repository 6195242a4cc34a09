// How the explorer is put into a page, by whoever carries its answers.
import { mount, unmount } from "svelte";
import type { Bar } from "./address/store.svelte";
import type { Carrier } from "./carrier/carrier";
import { Session } from "./session.svelte";
import App from "./shell/App.svelte";
import "./regard.css";

export interface Mounted {
  session: Session;
  close(): void;
}

/** A bar for places that have no address of their own, such as a cell of a notebook. */
export function memoryBar(hash = ""): Bar {
  return {
    read: () => hash,
    write: (next) => (hash = next),
    listen: () => () => {},
  };
}

export function mountExplorer(target: HTMLElement, carrier: Carrier, bar: Bar = memoryBar()): Mounted {
  const session = new Session(carrier, bar);
  session.root = target;
  const app = mount(App, { target, props: { session } });
  void session.load();
  return {
    session,
    close() {
      session.store.close();
      void unmount(app);
    },
  };
}
