// What the views of classes ask, and what they are answered; in words of the server.
import type { Client } from "../../api/client";

export interface Taught {
  id: string;
  name: string;
  /** "" where the class is closed. */
  code: string;
  members: number;
  at: string;
}

export interface Membership {
  id: string;
  name: string;
  number: number;
  /** The name that the teacher sees; "" for none. */
  shown: string;
  at: string;
}

export interface MyClasses {
  taught: Taught[];
  joined: Membership[];
}

export interface LearnerLine {
  label: string;
  named: boolean;
  lessons: number;
  lesson: number;
  passed: string[];
  begun: string[];
  last: string | null;
}

export interface Mistake {
  variant: string;
  text: string;
  learners: number;
}

export interface ExerciseLine {
  name: string;
  lesson: number;
  begun: number;
  passed: number;
  checked: number;
  checks: number | null;
  mistakes: Mistake[];
}

export interface ClassAnswer {
  about: Taught;
  room: { hidden: number; fewest: number; learners: LearnerLine[]; exercises: ExerciseLine[] };
}

export interface MemberAnswer {
  about: Membership;
  line: LearnerLine;
  hidden: boolean;
  fewest: number;
}

export const TABLES = ["learners", "mistakes"] as const;
export type Table = (typeof TABLES)[number];

/** The questions of classes; answers change, so that none is remembered. */
export class Classes {
  constructor(private readonly client: Client) {}

  all = () => this.ask<MyClasses>("GET", "classes");
  begin = (name: string) => this.ask<Taught>("POST", "classes", { name });
  one = (id: string) => this.ask<ClassAnswer>("GET", at("classes", id));
  rename = (id: string, name: string) => this.ask<Taught>("POST", at("classes", id), { name });
  renew = (id: string) => this.ask<Taught>("POST", `${at("classes", id)}/code`);
  close = (id: string) => this.ask<Taught>("DELETE", `${at("classes", id)}/code`);
  end = (id: string) => this.ask<MyClasses>("DELETE", at("classes", id));
  csv = (id: string, table: Table) => this.client.carrier.bytes(`api/learn/${at("classes", id)}/csv/${table}`);
  join = (code: string, name: string) => this.ask<MyClasses>("POST", "memberships", { code, name });
  member = (id: string) => this.ask<MemberAnswer>("GET", at("memberships", id));
  show = (id: string, name: string) => this.ask<MemberAnswer>("POST", at("memberships", id), { name });
  leave = (id: string) => this.ask<MyClasses>("DELETE", at("memberships", id));

  private ask<T>(method: "GET" | "POST" | "DELETE", path: string, body?: unknown): Promise<T> {
    const ask = body === undefined ? { method } : { method, body };
    return this.client.carrier.json(`api/learn/${path}`, ask) as Promise<T>;
  }
}

/** The mistakes of a whole class, the one that most learners met first; each with how many had the exercise checked. */
export function mostMet(exercises: ExerciseLine[], most: number): (Mistake & { exercise: string; checked: number })[] {
  const all = exercises.flatMap(({ name, checked, mistakes }) =>
    mistakes.map((mistake) => ({ ...mistake, exercise: name, checked })),
  );
  return all.sort((one, other) => other.learners - one.learners).slice(0, most);
}

/** A day of the server, which it says in UTC, as people here write it. */
export function dayOf(day: string | null): string {
  if (day === null) return "–";
  return new Date(day).toLocaleDateString(undefined, { timeZone: "UTC" });
}

function at(list: string, id: string): string {
  return `${list}/${encodeURIComponent(id)}`;
}
