// The explorer in a cell of a notebook: anywidget calls `render` for each view of the widget.
import { browserBar, type Bar } from "../address/store.svelte";
import { Refusal } from "../carrier/carrier";
import { FetchCarrier } from "../carrier/fetch";
import { MessageCarrier, type Channel } from "../carrier/message";
import { mountExplorer } from "../mount";
import { openReport } from "../page/report";
import { isDark, onTheme } from "./theme";
import "./widget.css";

type Hear = (message: unknown, buffers: DataView[]) => void;

/** What anywidget gives of its model. */
export interface Model {
  get(name: string): unknown;
  set(name: string, value: unknown): void;
  save_changes(): void;
  send(message: unknown): void;
  on(event: string, hear: (...parts: never[]) => void): void;
  off(event: string, hear: (...parts: never[]) => void): void;
}

let views = 0;

/** A view's own part of the widget's channel: several views may be open on one widget. */
export function channelOf(model: Model): Channel & { end(): void } {
  const view = `${Date.now().toString(36)}-${Math.random().toString(36).slice(2)}-${views++}`;
  let isOver = false;
  return {
    send(message) {
      if (isOver) throw new Refusal(0, "The notebook's kernel does not answer: run the cell again.");
      model.send({ ...(message as object), view });
    },
    listen(hear: Hear) {
      const own: Hear = (message, buffers) => {
        if ((message as { view?: string } | null)?.view === view) hear(message, buffers ?? []);
      };
      model.on("msg:custom", own as never);
      return () => model.off("msg:custom", own as never);
    },
    end: () => (isOver = true),
  };
}

/** The address is kept by the widget, so that a view that is drawn again stands where it was. */
function barOf(model: Model): Bar {
  return {
    read: () => String(model.get("address") ?? ""),
    write(hash) {
      model.set("address", hash);
      model.save_changes();
    },
    listen: () => () => {},
  };
}

function render({ model, el }: { model: Model; el: HTMLElement }): () => void {
  const box = document.createElement("div");
  box.className = "regard-notebook";
  // Keys pressed in here are the explorer's, not commands of the notebook.
  box.dataset["lmSuppressShortcuts"] = "true";
  el.append(box);
  const channel = channelOf(model);
  const carrier = new MessageCarrier(channel);
  const mounted = mountExplorer(box, carrier, barOf(model));
  mounted.session.theme.system(isDark());
  const unwatch = onTheme(() => mounted.session.theme.system(isDark()));
  const lost = () => {
    channel.end();
    carrier.close();
  };
  model.on("comm_live_update", lost);
  return () => {
    unwatch();
    model.off("comm_live_update", lost);
    mounted.close();
    lost();
  };
}

export default { render };

/** The same program as the page of a server. */
export function openPage(target: HTMLElement): void {
  mountExplorer(target, new FetchCarrier(), browserBar);
}

// A report has its answers within it, and its program too: nobody else calls it.
if (document.getElementById("held")) openReport();
