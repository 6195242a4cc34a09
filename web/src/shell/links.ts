// Links that lead within the explorer: in a notebook or a page the address around stays as it is.
import type { Store } from "../address/store.svelte";

/** Goes where a clicked link leads, if it leads within; whether that is another view. */
export function followLink(event: MouseEvent, store: Store): boolean {
  if (event.defaultPrevented || event.button !== 0 || event.ctrlKey || event.metaKey || event.shiftKey) return false;
  const hash = (event.target as Element).closest("a")?.getAttribute("href");
  if (!hash?.startsWith("#/")) return false;
  event.preventDefault();
  const before = store.address.page;
  store.go(hash);
  return store.address.page !== before;
}
