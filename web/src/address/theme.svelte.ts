// Light or dark: what the system says, until the reader says something else.
import type { Theme } from "../color/ramps";

export type Choice = "auto" | Theme;
const NAME = "regard-theme";

export class ThemeStore {
  choice = $state<Choice>("auto");
  private systemDark = $state(false);
  /** Whether the page is being printed. */
  isPrinted = $state(false);
  theme = $derived.by((): Theme => {
    if (this.isPrinted) return "light";
    if (this.choice !== "auto") return this.choice;
    if (this.systemDark) return "dark";
    return "light";
  });

  constructor() {
    const system = matchMedia("(prefers-color-scheme: dark)");
    this.systemDark = system.matches;
    system.addEventListener("change", () => (this.systemDark = system.matches));
    try {
      const saved = localStorage.getItem(NAME);
      if (saved === "light" || saved === "dark") this.choice = saved;
    } catch {
      // A page opened from a file may have no storage; the system's choice holds.
    }
  }

  /** Says what surrounds the explorer, where that is not the system alone. */
  system(isDark: boolean): void {
    this.systemDark = isDark;
  }

  /** Paper is light, whatever the screen is. */
  print(isPrinted: boolean): void {
    this.isPrinted = isPrinted;
  }

  choose(choice: Choice): void {
    this.choice = choice;
    try {
      localStorage.setItem(NAME, choice);
    } catch {
      // As above.
    }
  }
}
