// Heads side by side, as the address writes them: `record~call.head`, the record left out where it is the open one.
import type { Description, HeadOf } from "../api/types";

export function parseHead(text: string, record: string, batch: number): HeadOf {
  const [where, name = ""] = text.includes("~") ? (text.split("~") as [string, string]) : [record, text];
  const [call = 0, head = 0] = name.split(".").map(Number);
  return { record: where, call, head, batch };
}

export function printHead({ record, call, head }: HeadOf, open: string): string {
  if (record === open) return `${call}.${head}`;
  return `${record}~${call}.${head}`;
}

/** The open head and the one after it. */
export function defaultHeads(description: Description | null, open: HeadOf): HeadOf[] {
  const count = description?.calls[open.call]?.heads ?? 1;
  if (count > 1) return [open, { ...open, head: (open.head + 1) % count }];
  return [open];
}
