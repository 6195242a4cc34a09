// A drawing on a canvas, and as a PNG of twice its size.
import { fontOf } from "./measure";
import type { Drawing, Image as Picture, Shape } from "./shapes";

// Pixels of a side and of all, beyond which browsers make no canvas.
const MOST_SIDE = 16384;
const MOST_PIXELS = 2 ** 27;

/** The PNG, and its size in pixels. */
export async function pngOf(drawing: Drawing, scale = 2): Promise<{ blob: Blob; width: number; height: number }> {
  const [width, height] = [Math.round(drawing.width * scale), Math.round(drawing.height * scale)];
  if (Math.max(width, height) > MOST_SIDE || width * height > MOST_PIXELS) {
    throw new Error(`A picture of ${width} × ${height} pixels is more than a browser can make: take the SVG or the PDF.`);
  }
  const canvas = document.createElement("canvas");
  canvas.width = width;
  canvas.height = height;
  const context = canvas.getContext("2d")!;
  context.scale(scale, scale);
  context.fillStyle = drawing.background;
  context.fillRect(0, 0, drawing.width, drawing.height);
  // Pictures are unpacked first, so that shapes come in their order.
  const pictures = new Map<string, HTMLImageElement>();
  for (const shape of drawing.shapes) {
    if (shape.kind === "image" && !pictures.has(shape.data)) pictures.set(shape.data, await unpacked(shape));
  }
  for (const shape of drawing.shapes) draw(context, shape, pictures);
  const blob = await new Promise<Blob | null>((resolve) => canvas.toBlob(resolve, "image/png"));
  if (!blob) throw new Error("The browser could not draw the picture.");
  return { blob, width, height };
}

async function unpacked({ data }: Picture): Promise<HTMLImageElement> {
  const image = new Image();
  image.src = data;
  await image.decode();
  return image;
}

function draw(context: CanvasRenderingContext2D, shape: Shape, pictures: Map<string, HTMLImageElement>): void {
  context.save();
  if ("opacity" in shape) context.globalAlpha = shape.opacity;
  if (shape.kind === "text") {
    context.font = fontOf(shape.size, shape.bold);
    context.fillStyle = shape.color;
    context.textAlign = shape.anchor === "middle" ? "center" : shape.anchor;
    context.translate(shape.x, shape.y);
    context.rotate((shape.angle * Math.PI) / 180);
    context.fillText(shape.text, 0, 0);
  } else if (shape.kind === "line") {
    context.strokeStyle = shape.color;
    context.lineWidth = shape.width;
    if (shape.dashed) context.setLineDash([4, 3]);
    context.beginPath();
    shape.points.forEach(([x, y], index) => (index ? context.lineTo(x, y) : context.moveTo(x, y)));
    context.stroke();
  } else if (shape.kind === "image") {
    const image = pictures.get(shape.data)!;
    const [wide, tall] = [image.naturalWidth * shape.shown[0], image.naturalHeight * shape.shown[1]];
    context.imageSmoothingEnabled = shape.smooth;
    context.drawImage(image, 0, 0, wide, tall, shape.x, shape.y, shape.width, shape.height);
  } else {
    context.beginPath();
    if (shape.kind === "rect") context.rect(shape.x, shape.y, shape.width, shape.height);
    else context.arc(shape.x, shape.y, shape.radius, 0, 2 * Math.PI);
    if (shape.fill) {
      context.fillStyle = shape.fill;
      context.fill();
    }
    if (shape.stroke) {
      context.strokeStyle = shape.stroke;
      context.lineWidth = shape.thickness;
      context.stroke();
    }
  }
  context.restore();
}
