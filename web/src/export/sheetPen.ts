// Draws onto a sheet: each stroke becomes a shape, moved to where the pen stands.
import type { Pen } from "../head/frame";
import { fitted, widthOf } from "./measure";
import { PAPER, type Colors } from "./paper";
import type { Image, Shape } from "./shapes";
import type { Theme } from "../color/ramps";

export interface Lettering {
  color?: string;
  size?: number;
  anchor?: "start" | "middle" | "end";
  angle?: number;
  bold?: boolean;
  /** Pixels; a wider text is shortened. */
  most?: number;
}

export class SheetPen implements Pen {
  readonly colors: Colors;

  constructor(
    readonly theme: Theme,
    readonly shapes: Shape[] = [],
    private readonly left = 0,
    private readonly top = 0,
  ) {
    this.colors = PAPER[theme];
  }

  /** A pen for the same sheet that counts from a point of this one's. */
  at(x: number, y: number): SheetPen {
    return new SheetPen(this.theme, this.shapes, this.left + x, this.top + y);
  }

  text(text: string, x: number, y: number, lettering: Lettering = {}): void {
    const { color = this.colors.ink, size = 12, anchor = "start", angle = 0, bold = false, most = null } = lettering;
    const short = most === null ? text : fitted(text, most, (part) => widthOf(part, size, bold));
    if (short === "") return;
    this.shapes.push({ kind: "text", ...this.place(x, y), text: short, color, size, anchor, angle, bold, most });
  }

  rect(x: number, y: number, width: number, height: number, fill: string | null, opacity = 1): void {
    // What is thinner than a hair is no bar: some programs draw a line for it.
    if (width < 0.05 || height < 0.05) return;
    const look = { fill, stroke: null, thickness: 1, opacity };
    this.shapes.push({ kind: "rect", ...this.place(x, y), width, height, ...look });
  }

  outline(x: number, y: number, width: number, height: number, stroke: string, thickness: number): void {
    const look = { fill: null, stroke, thickness, opacity: 1 };
    this.shapes.push({ kind: "rect", ...this.place(x, y), width, height, ...look });
  }

  line(points: [number, number][], color: string, width = 1, opacity = 1, dashed = false): void {
    const moved = points.map(([x, y]): [number, number] => [this.left + x, this.top + y]);
    this.shapes.push({ kind: "line", points: moved, color, width, opacity, dashed });
  }

  circle(x: number, y: number, radius: number, fill: string, opacity = 1): void {
    this.shapes.push({ kind: "circle", ...this.place(x, y), radius, fill, stroke: null, thickness: 1, opacity });
  }

  image(data: string, x: number, y: number, width: number, height: number, look: Partial<Pick<Image, "shown" | "smooth">> = {}): void {
    this.shapes.push({ kind: "image", ...this.place(x, y), width, height, data, shown: [1, 1], smooth: false, ...look });
  }

  private place(x: number, y: number) {
    return { x: this.left + x, y: this.top + y };
  }
}
