// What the views of Learn ask, and what they are answered; in words of the server.
import type { Client } from "../api/client";
import { plural } from "../text/numbers";

export type LessonState = "open" | "begun" | "done";

export interface ExerciseLine {
  name: string;
  state: "open" | "begun" | "passed";
  checks: number;
}

export interface LessonLine {
  number: number;
  title: string;
  about: string;
  minutes: number;
  file: string;
  play: string;
  hint: string;
  state: LessonState;
  note: string;
  exercises: ExerciseLine[];
}

export interface Bookmark {
  id: string;
  title: string;
  address: string;
  record: string;
  at: string;
}

export interface Overview {
  lessons: LessonLine[];
  done: number;
  passed: number;
  total: number;
  next: string;
  due: { card_id: string; due: string }[];
  later: string | null;
  bookmarks: Bookmark[];
}

export interface Exercise {
  name: string;
  lesson: number;
  function: string;
  statement: string;
  text: string;
  unsolved: string;
  passed: boolean;
  hints: string[];
  hints_left: number;
  solution: string;
  note: string;
}

/** Rows of numbers, not negative: weights with queries down and keys across, or one row of bars. */
export interface Picture {
  kind: "map" | "bars";
  values: number[][];
  rows: string[];
  columns: string[];
  title: string;
  unit: string;
  /** Tokens a side of a cell of a map. */
  cell: number;
}

/** A question without its answer. */
export interface Question {
  card_id: number;
  template: string;
  lesson: number;
  text: string;
  unit: string;
  numeric: boolean;
  choices: { text: string; picture: Picture | null }[];
  picture: Picture | null;
}

export interface Waiting {
  question: Question | null;
  due: number;
  new: number;
  elsewhere: number;
  later: string | null;
}

export interface Graded {
  grade: { correct: boolean; expected: string; explanation: string; picture: Picture | null };
  right: number | null;
  again: string;
}

/** How much was done before a sign-in, and is now the visitor's. */
export interface Merged {
  lessons: number;
  exercises: number;
  cards: number;
  bookmarks: number;
  notes: number;
}

/** Who asks; `provider` is who signs visitors in here, "" where nobody does. */
export interface Visitor {
  provider: string;
  /** Whether what is done here without signing in is merged later. */
  merges: boolean;
  signed_in: boolean;
  name: string;
  subject: string;
  merged: Merged;
}

/** Who asks, and how long that lasts; hours and days are 0 where a session has no end. */
export interface Visit {
  several: boolean;
  passing: boolean;
  name: string;
  rest_hours: number;
  longest_days: number;
  unchecked: string;
}

export type Kind = "must_mend" | "could_be_better" | "note" | "praise";

export interface Message {
  kind: Kind;
  text: string;
  variant: string;
  example: { inputs: string; expected: string; got: string } | null;
}

export interface Verdict {
  passed: boolean;
  messages: Message[];
  exercise: string;
}

/** The words and signs of the terminal: `regard.learn.verdict`. */
export const TITLES: Record<Kind, string> = {
  must_mend: "✗ must mend",
  could_be_better: "△ could be better",
  note: "· note",
  praise: "✓ well done",
};

/** The questions of Learn; answers change, so that none is remembered. */
export class Learn {
  constructor(private readonly client: Client) {}

  path = () => this.ask<Overview>("GET", "");
  setLesson = (number: number, state: LessonState) => this.ask<Overview>("POST", `/lessons/${number}`, { state });
  exercise = (name: string) => this.ask<Exercise>("GET", of(name));
  write = (name: string, text: string) => this.ask<Exercise>("POST", `${of(name)}/text`, { text });
  hint = (name: string) => this.ask<Exercise>("POST", `${of(name)}/hint`);
  beginAnew = (name: string) => this.ask<Exercise>("DELETE", of(name));
  check = (name: string, text: string) => this.ask<{ verdict: Verdict; exercise: Exercise }>("POST", `${of(name)}/check`, { text });
  bookmark = (title: string, address: string, record: string) =>
    this.ask<Overview>("POST", "/bookmarks", { title, address, record });
  removeBookmark = (id: string) => this.ask<Overview>("DELETE", `/bookmarks/${encodeURIComponent(id)}`);
  note = (about: string, text: string) => this.ask<Overview>("POST", "/notes", { about, text });
  /** What is to be asked now; of a record too, unless it is "". */
  waiting = (record: string) => this.ask<Waiting>("GET", `/quiz?${new URLSearchParams({ record })}`);
  answer = (card: number, answer: string) => this.ask<Graded>("POST", `/quiz/${card}`, { answer });
  export = () => this.ask<unknown>("GET", "/export");
  import = (document: unknown) => this.ask<Overview>("POST", "/import", document);
  forget = () => this.ask<Overview>("DELETE", "");
  visitor = () => this.client.carrier.json("api/visitor") as Promise<Visitor>;
  signOut = () => this.client.carrier.json("api/sign-out", { method: "POST" }) as Promise<Visitor>;

  visit = () => this.client.carrier.json("api/visit") as Promise<Visit>;
  leave = () => this.client.carrier.json("api/visit", { method: "DELETE" });

  private ask<T>(method: "GET" | "POST" | "DELETE", path: string, body?: unknown): Promise<T> {
    const ask = body === undefined ? { method } : { method, body };
    return this.client.carrier.json(`api/learn${path}`, ask) as Promise<T>;
  }
}

const [MINUTE, HOUR, DAY] = [60_000, 3_600_000, 86_400_000];

/** When something is due, as people say it; `now` in milliseconds. */
export function when(due: string, now: number): string {
  const wait = Date.parse(due) - now;
  if (wait < HOUR) return `in ${plural(Math.max(1, Math.round(wait / MINUTE)), "minute")}`;
  if (wait < DAY) return `in ${plural(Math.round(wait / HOUR), "hour")}`;
  return `in ${plural(Math.round(wait / DAY), "day")}`;
}

const MERGED: [keyof Merged, string][] = [
  ["lessons", "lesson"],
  ["exercises", "exercise"],
  ["cards", "quiz card"],
  ["bookmarks", "bookmark"],
  ["notes", "note"],
];

/** What was merged, in words; "" for nothing. */
export function mergedIn(merged: Merged): string {
  return MERGED.filter(([name]) => merged[name] > 0)
    .map(([name, word]) => plural(merged[name], word))
    .join(", ");
}

/** What a visitor who has signed in is called; null for whoever has not. */
export function nameOf(visitor: Visitor | null): string | null {
  if (!visitor?.signed_in) return null;
  return visitor.name || visitor.subject;
}

function of(name: string): string {
  return `/exercises/${encodeURIComponent(name)}`;
}
