// What is seen of a map, as a PNG and as an SVG.
import { drawFrame, type Frame } from "../head/frame";
import { canvasPen, svgPen } from "../head/pens";

export interface Picture {
  png(): Promise<Blob>;
  svg(): Blob;
}

export function pictureOf(map: HTMLCanvasElement, frame: Frame): Picture {
  const { width, height, sides, colors } = frame;
  const [inner, outer] = [width - sides.left - sides.right, height - sides.top - sides.bottom];
  return {
    png() {
      const canvas = document.createElement("canvas");
      drawSheet(canvas, map, frame);
      return new Promise((resolve, reject) => {
        canvas.toBlob((blob) => (blob ? resolve(blob) : reject(new Error("The browser made no picture."))), "image/png");
      });
    },
    svg() {
      const elements: string[] = [];
      drawFrame(svgPen(elements), frame);
      const box = `x="${sides.left}" y="${sides.top}" width="${inner}" height="${outer}"`;
      const text = [
        `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}"`,
        ` font-family="${frame.font.replaceAll('"', "'")}" font-size="12">`,
        `<rect width="${width}" height="${height}" fill="${colors.page}"/>`,
        `<image ${box} preserveAspectRatio="none" image-rendering="pixelated" href="${map.toDataURL("image/png")}"/>`,
        ...elements,
        "</svg>",
      ].join("\n");
      return new Blob([text], { type: "image/svg+xml" });
    },
  };
}

/** Draws a map and what lies around it on a canvas, with two of its pixels for one of the screen's at least. */
export function drawSheet(canvas: HTMLCanvasElement, map: HTMLCanvasElement, frame: Frame): void {
  const { width, height, sides, colors } = frame;
  const ratio = Math.max(2, devicePixelRatio);
  canvas.width = width * ratio;
  canvas.height = height * ratio;
  const context = canvas.getContext("2d")!;
  context.scale(ratio, ratio);
  context.fillStyle = colors.page;
  context.fillRect(0, 0, width, height);
  context.imageSmoothingEnabled = false;
  context.drawImage(map, sides.left, sides.top, width - sides.left - sides.right, height - sides.top - sides.bottom);
  drawFrame(canvasPen(context, frame.font), frame);
}

/** Has the browser keep a file. */
export function save(blob: Blob, name: string): void {
  const address = URL.createObjectURL(blob);
  const link = document.createElement("a");
  link.href = address;
  link.download = name;
  link.click();
  // The browser reads the address after the click has returned.
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}
