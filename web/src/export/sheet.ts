// Pictures of views that are no map: lines between tokens, and the overview as it stands on the page.
import type { Line } from "../head/lines";
import { svgPen } from "../head/pens";
import type { Picture } from "./picture";

export interface Sheet {
  width: number;
  height: number;
  /** Pixels of each column of tokens, and of one line of text. */
  column: number;
  row: number;
  queries: string[];
  keys: string[];
  lines: Line[];
  colors: { ink: string; accent: string; page: string };
  font: string;
}

/** The lines between two columns of tokens. */
export function picturesOfLines({ width, height, column, row, queries, keys, lines, colors, font }: Sheet): Picture {
  const y = (place: number) => (place + 0.5) * row;
  const text = () => {
    const elements = lines.map(({ query, key, weight }) => {
      const ends = `x1="${column}" y1="${y(query)}" x2="${width - column}" y2="${y(key)}"`;
      return `<line ${ends} stroke="${colors.accent}" stroke-width="${1 + 3 * weight}" opacity="${Math.sqrt(weight)}"/>`;
    });
    const pen = svgPen(elements);
    const most = column - 8;
    queries.forEach((token, place) => pen.text(token, most, y(place) + 4, { color: colors.ink, anchor: "end", most }));
    keys.forEach((token, place) => pen.text(token, width - most, y(place) + 4, { color: colors.ink, anchor: "start", most }));
    const opening = `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" font-family="${font.replaceAll('"', "'")}" font-size="12">`;
    return [opening, `<rect width="${width}" height="${height}" fill="${colors.page}"/>`, ...elements, "</svg>"].join("\n");
  };
  return {
    svg: () => new Blob([text()], { type: "image/svg+xml" }),
    async png() {
      const image = new Image();
      image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text())}`;
      await image.decode();
      return written(width, height, (context) => context.drawImage(image, 0, 0, width, height));
    },
  };
}

/** The overview: its small maps with their names, where they stand. */
export function pictureOfTiles(root: HTMLElement): Promise<Blob> {
  const frame = root.getBoundingClientRect();
  const page = getComputedStyle(root.closest(".regard")!);
  return written(frame.width, frame.height, (context) => {
    context.fillStyle = page.getPropertyValue("--panel");
    context.fillRect(0, 0, frame.width, frame.height);
    context.imageSmoothingEnabled = false;
    for (const canvas of root.querySelectorAll("canvas")) {
      const box = canvas.getBoundingClientRect();
      context.drawImage(canvas, box.left - frame.left, box.top - frame.top, box.width, box.height);
    }
    for (const element of root.querySelectorAll<HTMLElement>(".chip, .layer, h3")) {
      const box = element.getBoundingClientRect();
      const style = getComputedStyle(element);
      context.fillStyle = style.backgroundColor;
      context.fillRect(box.left - frame.left, box.top - frame.top, box.width, box.height);
      context.fillStyle = style.color;
      context.font = `12px ${page.fontFamily}`;
      const words = [...element.querySelectorAll("b, :scope > span")].map((word) => word.lastChild?.textContent ?? "");
      const text = words.length > 0 ? words.join(" ") : element.innerText;
      context.fillText(text, box.left - frame.left + 6, box.bottom - frame.top - 6, box.width - 8);
    }
  });
}

function written(width: number, height: number, draw: (context: CanvasRenderingContext2D) => void): Promise<Blob> {
  const canvas = document.createElement("canvas");
  canvas.width = 2 * width;
  canvas.height = 2 * height;
  const context = canvas.getContext("2d")!;
  context.scale(2, 2);
  draw(context);
  return new Promise((resolve, reject) => {
    canvas.toBlob((blob) => (blob ? resolve(blob) : reject(new Error("The browser made no picture."))), "image/png");
  });
}
