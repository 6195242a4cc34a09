// Legends on a sheet: what colors stand for.
import { BLOCKED, diverging, sequential, type Rgb } from "../color/ramps";
import { endsOf, type Shading } from "../color/scale";
import { widthOf } from "./measure";
import { dataOfRamp, hex } from "./pixels";
import type { Part } from "./sheet";
import type { SheetPen } from "./sheetPen";

const BAR = 180;
const THICK = 10;

/** The colors of weights, and of masked pairs. */
export function weightLegend(shading: Shading): Part {
  const ends = endsOf(shading);
  return {
    width: 470,
    height: 28,
    draw(pen) {
      const after = bar(pen, "weight", sequential[pen.theme], ends);
      pen.rect(after, 1, THICK, THICK, hex(BLOCKED[pen.theme]));
      pen.outline(after, 1, THICK, THICK, pen.colors["strong-line"], 0.5);
      pen.text("masked", after + THICK + 5, THICK, { size: 11, color: pen.colors.soft });
    },
  };
}

/** The colors of a number between two ends. */
export function rampLegend(name: string, ends: [string, string, string], isDiverging: boolean): Part {
  return {
    width: 470,
    height: 28,
    draw: (pen) => void bar(pen, name, (isDiverging ? diverging : sequential)[pen.theme], ends),
  };
}

/** Draws name, bar and numbers; where the next thing may begin. */
function bar(pen: SheetPen, name: string, ramp: readonly Rgb[], [low, middle, high]: [string, string, string]): number {
  const look = { size: 11, color: pen.colors.soft } as const;
  const start = widthOf(name, 11) + 10;
  pen.text(name, 0, THICK, look);
  pen.image(dataOfRamp(ramp), start, 1, BAR, THICK);
  pen.outline(start, 1, BAR, THICK, pen.colors["strong-line"], 0.5);
  pen.text(low, start, THICK + 15, look);
  pen.text(middle, start + BAR / 2, THICK + 15, { ...look, anchor: "middle" });
  pen.text(high, start + BAR, THICK + 15, { ...look, anchor: "end" });
  return start + BAR + 18;
}
