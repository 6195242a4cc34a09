// Bookmarks outlive a server, identities of records do not: a bookmark knows records by their titles.
import { parseAddress, printAddress, type Address } from "../address/address";
import type { ServerState } from "../api/types";

type Open = Pick<ServerState, "records" | "histories">;
const SEPARATOR = "\n";

/** The identities that an address names, each with the list in which it stands. */
function named(address: Address): [string, "records" | "histories"][] {
  if (address.page === "history") return address.history ? [[address.history, "histories"]] : [];
  if (address.page === "playground" || address.page === "learn") return [];
  const others = address.heads.map((head) => head.split("~")).filter((parts) => parts.length > 1);
  const records = [address.record, ...others.map(([record]) => record!)];
  return [...new Set(records)].filter(Boolean).map((id) => [id, "records"]);
}

/** The titles of what an address shows, one a line. */
export function titlesOf(hash: string, open: Open): string {
  const titles = named(parseAddress(hash)).map(([id, list]) => open[list]?.find((one) => one.id === id)?.title ?? "");
  return titles.map((title) => title.replaceAll(SEPARATOR, " ")).join(SEPARATOR);
}

/** The address in this server; or the title of what is not open here. */
export function resolve(hash: string, titles: string, open: Open): { link: string } | { missing: string } {
  const address = parseAddress(hash);
  const here = new Map<string, string>();
  const wanted = titles.split(SEPARATOR);
  for (const [index, [id, list]] of named(address).entries()) {
    const title = wanted[index] ?? "";
    const alike = (open[list] ?? []).filter((one) => one.title.replaceAll(SEPARATOR, " ") === title);
    // Of several with one title the one that it was, if it is among them.
    const other = alike.find((one) => one.id === id) ?? alike[0];
    if (!other) return { missing: title };
    here.set(id, other.id);
  }
  address.record = here.get(address.record) ?? address.record;
  address.history = here.get(address.history) ?? address.history;
  address.heads = address.heads.map((head) => {
    const [record, of] = head.split("~");
    return of === undefined ? head : `${here.get(record!)}~${of}`;
  });
  return { link: printAddress(address) };
}
