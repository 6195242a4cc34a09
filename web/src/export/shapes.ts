// A picture as a list of shapes, the first one lowest: what an SVG, a canvas and the server's PDF are all drawn from.

export interface Text {
  kind: "text";
  /** Where the baseline begins, ends or has its middle. */
  x: number;
  y: number;
  text: string;
  color: string;
  size: number;
  anchor: "start" | "middle" | "end";
  /** Degrees, clockwise. */
  angle: number;
  bold: boolean;
  /** Pixels that it may be wide. */
  most: number | null;
}

export interface Line {
  kind: "line";
  points: [number, number][];
  color: string;
  width: number;
  opacity: number;
  dashed: boolean;
}

export interface Rect {
  kind: "rect";
  x: number;
  y: number;
  width: number;
  height: number;
  fill: string | null;
  stroke: string | null;
  thickness: number;
  opacity: number;
}

export interface Circle {
  kind: "circle";
  x: number;
  y: number;
  radius: number;
  fill: string | null;
  stroke: string | null;
  thickness: number;
  opacity: number;
}

export interface Image {
  kind: "image";
  x: number;
  y: number;
  width: number;
  height: number;
  /** A PNG, as a data address. */
  data: string;
  /** Which part of its width and height the box holds, from the left and from above. */
  shown: [number, number];
  /** Whether pixels run into each other: a photograph's, but not those of a map. */
  smooth: boolean;
}

export type Shape = Text | Line | Rect | Circle | Image;

/** Colors are `#rrggbb`, lengths pixels. */
export interface Drawing {
  width: number;
  height: number;
  background: string;
  /** Of the document. */
  title: string;
  shapes: Shape[];
}
