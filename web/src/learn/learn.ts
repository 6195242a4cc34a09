// What the views of Learn ask, and what they are answered; in words of the server.
import type { Client } from "../api/client";

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
  export = () => this.ask<unknown>("GET", "/export");
  import = (document: unknown) => this.ask<Overview>("POST", "/import", document);
  forget = () => this.ask<Overview>("DELETE", "");

  private ask<T>(method: "GET" | "POST" | "DELETE", path: string, body?: unknown): Promise<T> {
    const ask = body === undefined ? { method } : { method, body };
    return this.client.carrier.json(`api/learn${path}`, ask) as Promise<T>;
  }
}

function of(name: string): string {
  return `/exercises/${encodeURIComponent(name)}`;
}
