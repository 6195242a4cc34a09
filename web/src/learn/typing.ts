// What an editor of Python does beyond a field of text: indentation.
const STEP = "    ";

export interface Edit {
  /** What is replaced, and by what. */
  start: number;
  end: number;
  text: string;
}

/** What a key does at a selection; null where the field does it by itself. */
export function edit(key: string, shift: boolean, value: string, start: number, end: number): Edit | null {
  const line = value.lastIndexOf("\n", start - 1) + 1;
  if (key === "Enter" && !shift) {
    const before = value.slice(line, start);
    const indent = /^ */.exec(before)![0];
    return { start, end, text: `\n${indent}${before.trimEnd().endsWith(":") ? STEP : ""}` };
  }
  if (key !== "Tab") return null;
  if (!shift && start === end) return { start, end, text: STEP.slice((start - line) % STEP.length) };
  // Of several lines each is moved.
  const lines = value.slice(line, end).split("\n");
  const moved = lines.map((one) => {
    if (shift) return one.replace(/^ {1,4}/, "");
    return one && STEP + one;
  });
  return { start: line, end, text: moved.join("\n") };
}
