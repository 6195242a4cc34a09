// A drawing as SVG: text is text, lines are lines, and nothing depends on a page's styles.
import { FONTS } from "./measure";
import type { Circle, Drawing, Image, Rect, Shape } from "./shapes";

const digits = (value: number) => String(Math.round(100 * value) / 100);
// Programs know one name of it or another.
const CRISP = 'image-rendering="pixelated" style="image-rendering:optimizeSpeed;image-rendering:crisp-edges;image-rendering:pixelated"';

/** A text as XML holds it: what XML may not hold at all is left out. */
export function escaped(text: string): string {
  return text
    .replace(/[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/g, "\ufffd")
    .replace(/[\u0000-\u0008\u000b\u000c\u000e-\u001f\ufffe\uffff]/g, "")
    .replace(/[&<>"]/g, (sign) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[sign]!);
}

export function svgOf({ width, height, background, title, shapes }: Drawing): string {
  const size = `width="${digits(width)}" height="${digits(height)}" viewBox="0 0 ${digits(width)} ${digits(height)}"`;
  return [
    '<?xml version="1.0" encoding="UTF-8"?>',
    `<svg xmlns="http://www.w3.org/2000/svg" ${size} font-family="${FONTS.replaceAll('"', "'")}" font-size="12">`,
    `<title>${escaped(title)}</title>`,
    `<rect width="${digits(width)}" height="${digits(height)}" fill="${background}"/>`,
    ...shapes.map(element),
    "</svg>\n",
  ].join("\n");
}

function element(shape: Shape): string {
  switch (shape.kind) {
    case "text": {
      const rotated = shape.angle ? ` rotate(${digits(shape.angle)})` : "";
      const look = [
        `transform="translate(${digits(shape.x)} ${digits(shape.y)})${rotated}"`,
        `text-anchor="${shape.anchor}" fill="${shape.color}"`,
        ...(shape.size === 12 ? [] : [`font-size="${digits(shape.size)}"`]),
        ...(shape.bold ? ['font-weight="600"'] : []),
      ];
      // Blanks at the ends belong to the text, too.
      return `<text ${look.join(" ")} xml:space="preserve">${escaped(shape.text)}</text>`;
    }
    case "line": {
      const points = shape.points.map(([x, y]) => `${digits(x)},${digits(y)}`).join(" ");
      const dashes = shape.dashed ? ' stroke-dasharray="4 3"' : "";
      const stroke = `stroke="${shape.color}" stroke-width="${digits(shape.width)}"${opacity(shape.opacity)}`;
      return `<polyline points="${points}" fill="none" ${stroke}${dashes}/>`;
    }
    case "rect":
      return `<rect ${box(shape)} ${look(shape)}/>`;
    case "circle":
      return `<circle cx="${digits(shape.x)}" cy="${digits(shape.y)}" r="${digits(shape.radius)}" ${look(shape)}/>`;
    case "image":
      return image(shape);
  }
}

function box({ x, y, width, height }: { x: number; y: number; width: number; height: number }): string {
  return `x="${digits(x)}" y="${digits(y)}" width="${digits(width)}" height="${digits(height)}"`;
}

function look({ fill, stroke, thickness, opacity: value }: Rect | Circle): string {
  const outline = stroke ? ` stroke="${stroke}" stroke-width="${digits(thickness)}"` : "";
  return `fill="${fill ?? "none"}"${outline}${opacity(value)}`;
}

function opacity(value: number): string {
  return value < 1 ? ` opacity="${Math.round(1000 * value) / 1000}"` : "";
}

function image(shape: Image): string {
  const [wide, tall] = [shape.width / shape.shown[0], shape.height / shape.shown[1]];
  const crisp = shape.smooth ? "" : ` ${CRISP}`;
  const drawn = `preserveAspectRatio="none"${crisp} href="${shape.data}"`;
  if (shape.shown[0] === 1 && shape.shown[1] === 1) return `<image ${box(shape)} ${drawn}/>`;
  // An inner drawing shows nothing beyond its own box.
  return `<svg ${box(shape)}><image ${box({ x: 0, y: 0, width: wide, height: tall })} ${drawn}/></svg>`;
}
