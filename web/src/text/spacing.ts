// Where a space stands between tokens, as their tokenizer writes it.
import { beginsWord, goesOn } from "./texts";

/** For each token whether it is set apart from the one before. */
export function spaces(tokens: string[]): boolean[] {
  const marksStarts = tokens.some(beginsWord);
  const marksRests = tokens.some(goesOn);
  return tokens.map((token) => {
    if (marksStarts) return beginsWord(token);
    if (marksRests) return !goesOn(token);
    return true;
  });
}
