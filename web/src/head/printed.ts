// The map of a head as paper shows it.
import { drawFrame, type Frame } from "./frame";
import { canvasPen } from "./pens";

/** Draws a map and what lies around it on a canvas, with two of its pixels for one of the screen's at least. */
export function drawPrinted(canvas: HTMLCanvasElement, map: HTMLCanvasElement, frame: Frame): void {
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
