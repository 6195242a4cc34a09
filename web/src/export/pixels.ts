// Colors as the PNG of an image: a pixel for each cell, enlarged so that no program has to.
import type { Rgb } from "../color/ramps";
import { paint } from "../color/scale";

// Pixels of a side up to which cells are enlarged, and the most for one cell.
const WANTED = 1200;
const LARGEST = 16;

/** Cells of codes, colored by a table, as a data address. */
export function dataOfCodes(codes: Uint16Array, rows: number, columns: number, table: Uint32Array): string {
  const image = new ImageData(columns, rows);
  paint(codes, table, image);
  return dataOfImage(image);
}

/** A ramp from left to right. */
export function dataOfRamp(ramp: readonly Rgb[]): string {
  const image = new ImageData(ramp.length, 1);
  ramp.forEach((color, place) => image.data.set([...color, 255], 4 * place));
  return dataOfImage(image);
}

export function dataOfImage(image: ImageData): string {
  const small = canvasOf(image.width, image.height);
  small.getContext("2d")!.putImageData(image, 0, 0);
  const factor = Math.max(1, Math.min(LARGEST, Math.floor(WANTED / Math.max(image.width, image.height))));
  if (factor === 1) return small.toDataURL("image/png");
  const large = canvasOf(factor * image.width, factor * image.height);
  const context = large.getContext("2d")!;
  context.imageSmoothingEnabled = false;
  context.drawImage(small, 0, 0, large.width, large.height);
  return large.toDataURL("image/png");
}

function canvasOf(width: number, height: number): HTMLCanvasElement {
  const canvas = document.createElement("canvas");
  canvas.width = width;
  canvas.height = height;
  return canvas;
}

/** `#rrggbb`. */
export function hex([red, green, blue]: Rgb): string {
  return `#${[red, green, blue].map((value) => value.toString(16).padStart(2, "0")).join("")}`;
}
