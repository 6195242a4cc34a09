// What a view gives to be taken away. A view that has one of these has the whole menu.
import type { Theme } from "../color/ramps";
import type { Drawing } from "./shapes";
import type { Table } from "./table";

export interface Numbers {
  /** "Weights". */
  title: string;
  table(): Table | Promise<Table>;
}

export interface Exported {
  /** What files are called: the model, the layer and head where there is one, the view. */
  name: (string | null | undefined)[];
  /** What is seen, in light or dark colors; raises with a reason where there is nothing yet. */
  draw(theme: Theme): Drawing | Promise<Drawing>;
  numbers: Numbers[];
  /** Python that gives the numbers again. */
  python(): Promise<string>;
}

// Characters of a part of a file's name, which systems bound at 255 bytes, and of the whole.
const [MOST_PART, MOST] = [28, 120];

/** The model of a record, whose title goes on with the text that was read. */
export function modelOf({ title }: { title: string }): string {
  return title.split(" · ")[0]!;
}

/** The name of a file without its ending: letters, digits, dots and dashes. */
export function fileName(parts: Exported["name"]): string {
  const words = parts.flatMap((part) => {
    const letters = (part ?? "").replace(/[^\p{L}\p{N}.]+/gu, "-").replace(/^[-.]+/, "");
    return [[...letters].slice(0, MOST_PART).join("").replace(/[-.]+$/, "")];
  });
  return ["regard", ...words.filter(Boolean)].join("-").slice(0, MOST);
}

/** Has the browser save a file. */
export function save(blob: Blob, name: string): void {
  const address = URL.createObjectURL(blob);
  const link = document.createElement("a");
  link.href = address;
  link.download = name;
  link.click();
  // The browser reads the address after the click has returned.
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}
