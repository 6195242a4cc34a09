// How wide a text is, and how it is made to fit.

// Arial and Liberation Sans have the same widths. Names of real fonts: a file must not depend on the page's styles.
export const FONTS = 'Arial, "Liberation Sans", Helvetica, "Noto Sans", "DejaVu Sans", sans-serif';

let context: CanvasRenderingContext2D | null | undefined;

/** The width of one line of text, in pixels. */
export function widthOf(text: string, size = 12, bold = false): number {
  // Outside of a browser nothing measures: letters are a little wider than half their height.
  if (context === undefined) {
    const canMeasure = typeof CanvasRenderingContext2D !== "undefined";
    context = canMeasure ? document.createElement("canvas").getContext("2d") : null;
  }
  if (!context) return 0.55 * size * [...text].length;
  context.font = fontOf(size, bold);
  return context.measureText(text).width;
}

export function fontOf(size: number, bold: boolean): string {
  return `${bold ? "600 " : ""}${size}px ${FONTS}`;
}

/** Shortens a text to a width in pixels. */
export function fitted(text: string, most: number, measure: (text: string) => number): string {
  if (measure(text) <= most) return text;
  let length = Math.max(1, Math.floor((text.length * most) / measure(text)) - 1);
  while (length > 1 && measure(`${text.slice(0, length)}…`) > most) length--;
  return `${text.slice(0, length)}…`;
}

/** Breaks a text between words into lines of a width in pixels. */
export function wrapped(text: string, most: number, size = 12, bold = false): string[] {
  const lines: string[] = [];
  let line = "";
  for (const word of text.split(" ")) {
    const longer = line ? `${line} ${word}` : word;
    if (line && widthOf(longer, size, bold) > most) {
      lines.push(line);
      line = word;
    } else line = longer;
  }
  return [...lines, line].map((one) => fitted(one, most, (part) => widthOf(part, size, bold)));
}
