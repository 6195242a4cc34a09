// Draws a frame on a canvas.
import { fitted } from "../export/measure";
import type { Pen } from "./frame";

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
