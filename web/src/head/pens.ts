// The two ways to draw a frame: on a canvas, and as the elements of an SVG.
import type { Pen } from "./frame";

/** Shortens a text to a width in pixels. */
function fitted(text: string, most: number, measure: (text: string) => number): string {
  if (measure(text) <= most) return text;
  let length = Math.max(1, Math.floor((text.length * most) / measure(text)) - 1);
  while (length > 1 && measure(`${text.slice(0, length)}…`) > most) length--;
  return `${text.slice(0, length)}…`;
}

export function canvasPen(context: CanvasRenderingContext2D, font: string): Pen {
  return {
    text(text, x, y, { color, angle = 0, anchor, bold = false, most }) {
      context.save();
      context.font = `${bold ? "600 " : ""}12px ${font}`;
      context.fillStyle = color;
      context.textAlign = anchor;
      context.translate(x, y);
      context.rotate((angle * Math.PI) / 180);
      context.fillText(fitted(text, most, (one) => context.measureText(one).width), 0, 0);
      context.restore();
    },
    rect(x, y, width, height, color, opacity = 1) {
      context.globalAlpha = opacity;
      context.fillStyle = color;
      context.fillRect(x, y, width, height);
      context.globalAlpha = 1;
    },
    outline(x, y, width, height, color, thickness) {
      context.strokeStyle = color;
      context.lineWidth = thickness;
      context.strokeRect(x, y, width, height);
    },
  };
}

function escaped(text: string): string {
  return text.replace(/[&<>"]/g, (sign) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[sign]!);
}

const digits = (value: number) => String(Math.round(100 * value) / 100);

/** Draws into a list of elements. */
export function svgPen(elements: string[]): Pen {
  // No text can be measured without a page; letters of 12 pixels are about 6.6 wide.
  const measure = (text: string) => 6.6 * text.length;
  return {
    text(text, x, y, { color, angle = 0, anchor, bold = false, most }) {
      const rotated = angle ? ` rotate(${angle})` : "";
      const weight = bold ? ' font-weight="600"' : "";
      const place = `transform="translate(${digits(x)} ${digits(y)})${rotated}" text-anchor="${anchor}"`;
      elements.push(`<text ${place} fill="${color}"${weight}>${escaped(fitted(text, most, measure))}</text>`);
    },
    rect(x, y, width, height, color, opacity = 1) {
      const box = `x="${digits(x)}" y="${digits(y)}" width="${digits(width)}" height="${digits(height)}"`;
      elements.push(`<rect ${box} fill="${color}"${opacity < 1 ? ` fill-opacity="${opacity}"` : ""}/>`);
    },
    outline(x, y, width, height, color, thickness) {
      const box = `x="${digits(x)}" y="${digits(y)}" width="${digits(width)}" height="${digits(height)}"`;
      elements.push(`<rect ${box} fill="none" stroke="${color}" stroke-width="${thickness}"/>`);
    },
  };
}
