// The page of `regard look`: the explorer's views, with their answers in the page itself.
import { mount } from "svelte";
import { browserBar } from "../address/store.svelte";
import { reason } from "../api/client";
import { Session } from "../session.svelte";
import { unpack } from "./block";
import { PageCarrier, type HeldText } from "./carrier";
import PageApp from "./PageApp.svelte";

async function open(target: HTMLElement): Promise<void> {
  const block = await unpack(document.getElementById("held")!.textContent);
  const { version, texts } = block.index as { version: string; texts: HeldText[] };
  const session = new Session(new PageCarrier(block, version, texts), browserBar);
  session.root = target;
  await session.load();
  mount(PageApp, { target, props: { session } });
}

/** Draws the page of a report, whose elements the document has. */
export function openReport(): void {
  open(document.getElementById("explorer")!).catch((error: unknown) => {
    const line = document.getElementById("trouble")!;
    line.textContent = `The pictures of this page cannot be drawn: ${reason(error)}`;
    line.hidden = false;
  });
}
