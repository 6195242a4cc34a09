// Whether the notebook around is dark, which may be another answer than the system's.

export function isDark(body: HTMLElement = document.body): boolean {
  const { jpThemeLight, vscodeThemeKind } = body.dataset;
  if (jpThemeLight !== undefined) return jpThemeLight === "false";
  if (vscodeThemeKind !== undefined) return !vscodeThemeKind.includes("light");
  return matchMedia("(prefers-color-scheme: dark)").matches;
}

/** Calls `hear` when the notebook changes its theme; returns what ends that. */
export function onTheme(hear: () => void): () => void {
  const observer = new MutationObserver(hear);
  observer.observe(document.body, { attributes: true, attributeFilter: ["data-jp-theme-light", "data-vscode-theme-kind"] });
  return () => observer.disconnect();
}
