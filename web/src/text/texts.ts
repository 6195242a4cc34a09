// The tokens of a call's queries and keys, and how a token is written where it would not be seen.
import type { Call, Description } from "../api/types";

// Marks that tokenizers put where a word begins or a byte stands for a space.
const WORD_STARTS = /^[ĠĊ▁]+/;
const VISIBLE: Record<string, string> = { "\n": "↵", "\t": "⇥", " ": "␣", "": "∅" };

// Characters that are not seen, or turn the text around them. Joiners of emoji stay as they are.
const UNSEEN = /[\p{Cc}\p{Cs}\u00AD\u061C\u200B\u200E\u200F\u202A-\u202E\u2060-\u2069\uFEFF]/gu;
const named = (letter: string) => VISIBLE[letter] ?? `⟨${letter.codePointAt(0)!.toString(16).toUpperCase().padStart(4, "0")}⟩`;

/** A token as it is read: marks of subwords as spaces, and what cannot be seen by a sign. */
export function readable(token: string): string {
  const spaced = token.replace(/Ġ|▁/g, " ").replace(/Ċ/g, "\n");
  const trimmed = spaced.trim();
  if (trimmed) return trimmed.replace(UNSEEN, named);
  return [...spaced].map((letter) => VISIBLE[letter] ?? letter.replace(UNSEEN, named)).join("") || VISIBLE[""]!;
}

/** The name of a layer where it stands alone: "layer 3", and not "layer layer 3". */
export function layerName(name: string): string {
  return /^(layer|block)\b/i.test(name) ? name : `layer ${name}`;
}

/** Whether a space stands before the token, where its tokenizer says so. */
export function beginsWord(token: string): boolean {
  return WORD_STARTS.test(token) || /^\s/.test(token);
}

/** Whether the token goes on with the word before it, as WordPiece writes it. */
export function goesOn(token: string): boolean {
  return token.startsWith("##");
}

export class Texts {
  readonly queries: string[] | null;
  readonly keys: string[] | null;
  /** The position of query 0 among the keys, where both are one text. */
  readonly origin: number;
  /** Whether queries and keys are tokens of the same text. */
  readonly isOne: boolean;

  constructor(description: Description, call: Call, batch: number) {
    const of = (name: "tokens" | "source") => {
      if (name === "source") return description.source_tokens?.[batch] ?? null;
      return description.tokens?.[batch] ?? null;
    };
    this.isOne = call.kind !== "cross" && call.query_text === call.key_text;
    this.origin = this.isOne && call.placed ? Math.max(0, call.offset) : 0;
    this.queries = of(call.query_text)?.slice(this.origin, this.origin + call.queries) ?? null;
    this.keys = of(call.key_text)?.slice(0, call.keys) ?? null;
  }

  query(index: number): string {
    return this.at(this.queries, index);
  }

  key(index: number): string {
    return this.at(this.keys, index);
  }

  private at(tokens: string[] | null, index: number): string {
    const token = tokens?.[index];
    if (token === undefined) return String(index);
    return readable(token);
  }
}
