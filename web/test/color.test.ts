import { describe, expect, it } from "vitest";
import { floatToHalf } from "../src/carrier/half";
import { BLOCKED, contrast, diverging, inkOn, sequential, type Rgb, type Theme } from "../src/color/ramps";
import { colorTable, decadesFor, largest, logOf, partOf, SCALES, type Shading } from "../src/color/scale";

const THEMES: Theme[] = ["light", "dark"];
const packed = ([red, green, blue]: Rgb) => ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0;
const shading = (scale: Shading["scale"], top = Math.log(0.5)): Shading => ({ scale, top, decades: 4 });

describe("ramps", () => {
  it("have lightness that goes one way, so that order survives in gray", () => {
    for (const theme of THEMES) {
      const white: Rgb = [255, 255, 255];
      const contrasts = sequential[theme].map((color) => contrast(color, white));
      const signs = contrasts.slice(1).map((value, index) => Math.sign(value - contrasts[index]!));
      const wanted = theme === "light" ? 1 : -1;
      // Rounding to 8 bits may stand still, but must not go back by more than it.
      expect(signs.filter((sign) => sign === -wanted).length).toBeLessThan(6);
      expect(contrast(sequential[theme][0]!, sequential[theme][255]!)).toBeGreaterThan(9);
    }
  });

  it("leave text on every color readable", () => {
    for (const theme of THEMES) {
      for (const color of [...sequential[theme], ...diverging[theme]]) {
        expect(contrast(color, inkOn(color))).toBeGreaterThanOrEqual(4.5);
      }
    }
  });

  it("tell both sides of a difference apart in deuteranopia", () => {
    for (const theme of THEMES) {
      const [low, high] = [diverging[theme][30]!, diverging[theme][225]!];
      // What is blue to whom red and green are one: the difference of blue and the mean of the others.
      const blueness = ([red, green, blue]: Rgb) => blue - (red + green) / 2;
      expect(blueness(low) - blueness(high)).toBeGreaterThan(80);
    }
  });
});

describe("tables", () => {
  it("give masked cells a color of their own, and weight 0 the first of the ramp", () => {
    for (const theme of THEMES) {
      for (const scale of SCALES) {
        const counts = new Uint32Array(65536).fill(1);
        const table = colorTable({ ...shading(scale), counts }, theme);
        expect(table[0x7e00]).toBe(packed(BLOCKED[theme]));
        expect(table[0xfc00]).toBe(packed(sequential[theme][0]!));
      }
    }
  });

  it("give the top the last color, and never less to a larger weight", () => {
    for (const scale of ["linear", "root", "log"] as const) {
      expect(partOf(Math.log(0.5), shading(scale))).toBe(1);
      expect(partOf(0, shading(scale))).toBe(1);
      const parts = Array.from({ length: 200 }, (_, step) => partOf(-step / 10, shading(scale)));
      for (let step = 1; step < parts.length; step++) expect(parts[step]!).toBeLessThanOrEqual(parts[step - 1]!);
    }
  });

  it("follow the scales' formulas", () => {
    expect(partOf(Math.log(0.125), shading("linear"))).toBeCloseTo(0.25, 12);
    expect(partOf(Math.log(0.125), shading("root"))).toBeCloseTo(0.5, 12);
    expect(partOf(Math.log(0.005), shading("log"))).toBeCloseTo(0.5, 12);
    expect(partOf(Math.log(1e-9), shading("log"))).toBe(0);
    for (const scale of ["linear", "root", "log"] as const) {
      for (const part of [0.1, 0.5, 0.9]) expect(partOf(logOf(part, shading(scale)), shading(scale))).toBeCloseTo(part, 12);
    }
  });

  it("rank by what is seen: half of the cells lie below the middle of the ramp", () => {
    const counts = new Uint32Array(65536);
    const logs = [-9, -7, -3, -1].map((log) => floatToHalf(log));
    for (const code of logs) counts[code] = 10;
    const table = colorTable({ ...shading("rank"), counts }, "light");
    const places = logs.map((code) => sequential.light.findIndex((color) => packed(color) === table[code]));
    expect(places).toEqual([32, 96, 159, 223]);
    // A weight that was not counted stands with the next smaller one.
    expect(table[floatToHalf(-2)]).toBe(table[floatToHalf(-3)]);
  });

  it("find the largest weight beside masked ones", () => {
    expect(largest(Uint16Array.from([0x7e00, floatToHalf(-3), floatToHalf(-0.5), 0xfc00]))).toBeCloseTo(-0.5, 3);
    expect(largest(Uint16Array.from([0xfc00, 0x7e00]))).toBe(-Infinity);
  });

  it("show more powers of ten where more keys share a weight", () => {
    expect(decadesFor(10)).toBe(3);
    expect(decadesFor(1000)).toBe(4);
    expect(decadesFor(131072)).toBe(7);
  });
});
