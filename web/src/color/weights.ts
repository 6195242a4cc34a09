// Colors of exact weights that are there as numbers, without the way through codes and tables.
import { BLOCKED, sequential, type Theme } from "./ramps";
import { partOf, type Shading } from "./scale";

/** An image of weights `(rows, columns)`; `allowed` is 0 where the mask allows no pair. */
export function imageOf(
  weights: Float32Array,
  allowed: Uint8Array | null,
  rows: number,
  columns: number,
  shading: Shading,
  theme: Theme,
): ImageData {
  const image = new ImageData(columns, rows);
  const ramp = sequential[theme];
  const blocked = BLOCKED[theme];
  const top = Math.exp(shading.top);
  for (let place = 0; place < weights.length; place++) {
    const weight = weights[place]!;
    let color = blocked;
    if (!allowed || allowed[place]) color = ramp[Math.round(255 * part(weight, top, shading))]!;
    const at = 4 * place;
    image.data[at] = color[0];
    image.data[at + 1] = color[1];
    image.data[at + 2] = color[2];
    image.data[at + 3] = 255;
  }
  return image;
}

// Logarithms and exponentials of a hundred thousand weights would take longer than the server.
function part(weight: number, top: number, shading: Shading): number {
  if (shading.scale === "linear") return Math.min(1, weight / top);
  if (shading.scale === "root") return Math.min(1, Math.sqrt(weight / top));
  return partOf(Math.log(weight), shading);
}
