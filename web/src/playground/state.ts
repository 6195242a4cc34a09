// What can be set in the playground, as the server takes it; the address holds what is not as it begins.

export interface Choice {
  name: string;
  title: string;
  words: readonly string[];
}

export interface Slider {
  name: string;
  title: string;
  least: number;
  most: number;
  /** Only for these kinds of attention. */
  kinds?: readonly string[];
}

export type State = Record<string, string | number>;

// The server's own defaults, so that an address without parameters shows what the server would.
export const DEFAULTS: State = {
  kind: "causal",
  length: 48,
  memory_length: 32,
  embed_dim: 64,
  num_heads: 4,
  temperature: 1,
  positions: "none",
  init: "matched",
  seed: 0,
  text: "",
  made: "repeated",
  window: 8,
  step: 4,
  blocks: 2,
  global_tokens: 2,
  rank: 16,
};

export const KINDS = ["self", "cross", "causal", "window", "strided", "random", "global", "linear", "low rank", "additive"];
const WITH_POSITIONS = ["self", "causal", "window", "strided", "random", "global"];
export const INITS = ["matched", "xavier", "small", "zero"];
export const MADE = ["repeated", "random", "clusters", "smooth"];
export const WIDTHS = [8, 16, 32, 64, 128, 256, 512];

export const SLIDERS: readonly Slider[] = [
  { name: "length", title: "Tokens", least: 1, most: 256 },
  { name: "memory_length", title: "Memory tokens", least: 1, most: 256, kinds: ["cross"] },
  { name: "window", title: "Window", least: 1, most: 64, kinds: ["window"] },
  { name: "step", title: "Step", least: 1, most: 32, kinds: ["strided"] },
  { name: "blocks", title: "Random blocks", least: 1, most: 16, kinds: ["random"] },
  { name: "global_tokens", title: "Global tokens", least: 1, most: 32, kinds: ["global"] },
  { name: "rank", title: "Slots", least: 1, most: 64, kinds: ["low rank"] },
];

/** Position schemes that go with a kind: rotary and ALiBi need scores that are products of the text's own tokens. */
export function positionsFor(kind: string): string[] {
  const added = ["none", "sinusoidal", "learned"];
  if (WITH_POSITIONS.includes(kind)) return [...added, "rotary", "alibi"];
  return added;
}

/** Numbers of heads that share so many numbers a token; each gets an even part, as rotary positions need it. */
export function headsFor(width: number): number[] {
  return [1, 2, 4, 8, 16].filter((heads) => width % heads === 0 && (width / heads) % 2 === 0);
}

/** The state of an address: what it says, and defaults for the rest. */
export function stateOf(play: Record<string, string>): State {
  const state: State = { ...DEFAULTS };
  for (const [name, text] of Object.entries(play)) {
    const initial = DEFAULTS[name];
    if (typeof initial === "string") state[name] = text;
    else if (typeof initial === "number" && text !== "" && Number.isFinite(Number(text))) state[name] = Number(text);
  }
  return state;
}

/** What an address says of a state. */
export function playOf(state: State): Record<string, string> {
  const said = Object.entries(state).filter(([name, value]) => value !== DEFAULTS[name]);
  return Object.fromEntries(said.map(([name, value]) => [name, String(value)]));
}

/** A state after one change, with what no longer goes together put right. */
export function changed(state: State, name: string, value: string | number): State {
  const next = { ...state, [name]: value };
  if (!positionsFor(String(next["kind"])).includes(String(next["positions"]))) next["positions"] = "none";
  const heads = headsFor(Number(next["embed_dim"]));
  if (!heads.includes(Number(next["num_heads"]))) next["num_heads"] = heads.at(-1)!;
  return next;
}
