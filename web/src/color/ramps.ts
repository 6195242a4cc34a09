// Ramps of 256 colors whose lightness changes evenly in OKLab, so that equal steps look equal in every color vision.

export type Theme = "light" | "dark";
export type Rgb = readonly [number, number, number];
type Stop = readonly [lightness: number, chroma: number, hue: number];

const SEQUENTIAL: Record<Theme, readonly Stop[]> = {
  light: [
    [0.99, 0.003, 250],
    [0.81, 0.085, 232],
    [0.63, 0.145, 252],
    [0.45, 0.17, 270],
    [0.27, 0.12, 285],
  ],
  dark: [
    [0.215, 0.012, 270],
    [0.4, 0.125, 282],
    [0.585, 0.15, 258],
    [0.77, 0.115, 215],
    [0.955, 0.075, 165],
  ],
};

// Blue below 0, vermilion above: a pair that red-green color blindness tells apart.
const DIVERGING: Record<Theme, readonly Stop[]> = {
  light: [
    [0.36, 0.1, 250],
    [0.62, 0.11, 240],
    [0.975, 0.002, 90],
    [0.66, 0.145, 48],
    [0.4, 0.12, 42],
  ],
  dark: [
    [0.86, 0.09, 232],
    [0.6, 0.12, 246],
    [0.225, 0.008, 270],
    [0.62, 0.15, 46],
    [0.87, 0.1, 65],
  ],
};

// Where the mask allows no pair. It must look like no weight at all, not like a weight of 0.
export const BLOCKED: Record<Theme, Rgb> = { light: [226, 226, 228], dark: [46, 47, 54] };

function oklab([lightness, chroma, hue]: Stop): Rgb {
  const angle = (hue * Math.PI) / 180;
  return [lightness, chroma * Math.cos(angle), chroma * Math.sin(angle)];
}

function srgb([L, a, b]: Rgb): Rgb {
  const l = (L + 0.3963377774 * a + 0.2158037573 * b) ** 3;
  const m = (L - 0.1055613458 * a - 0.0638541728 * b) ** 3;
  const s = (L - 0.0894841775 * a - 1.291485548 * b) ** 3;
  return [
    encode(4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s),
    encode(-1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s),
    encode(-0.0041960863 * l - 0.7034186147 * m + 1.707614701 * s),
  ];
}

function encode(part: number): number {
  const clipped = Math.min(1, Math.max(0, part));
  if (clipped <= 0.0031308) return Math.round(255 * 12.92 * clipped);
  return Math.round(255 * (1.055 * clipped ** (1 / 2.4) - 0.055));
}

function between(stops: readonly Stop[], part: number): Rgb {
  const points = stops.map(oklab);
  const place = part * (points.length - 1);
  const left = Math.min(points.length - 2, Math.floor(place));
  const [from, to] = [points[left]!, points[left + 1]!];
  const mix = (axis: 0 | 1 | 2) => from[axis] + (place - left) * (to[axis] - from[axis]);
  return srgb([mix(0), mix(1), mix(2)]);
}

function ramp(stops: readonly Stop[]): Rgb[] {
  return Array.from({ length: 256 }, (_, index) => between(stops, index / 255));
}

export const sequential: Record<Theme, Rgb[]> = { light: ramp(SEQUENTIAL.light), dark: ramp(SEQUENTIAL.dark) };
export const diverging: Record<Theme, Rgb[]> = { light: ramp(DIVERGING.light), dark: ramp(DIVERGING.dark) };

export function css([red, green, blue]: Rgb): string {
  return `rgb(${red} ${green} ${blue})`;
}

/** The color of a part between 0 and 1. */
export function shade(colors: Rgb[], part: number): Rgb {
  return colors[Math.round(255 * Math.min(1, Math.max(0, part)))]!;
}

function luminance(color: Rgb): number {
  const [red, green, blue] = color.map((value) => {
    const part = value / 255;
    if (part <= 0.04045) return part / 12.92;
    return ((part + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * red! + 0.7152 * green! + 0.0722 * blue!;
}

/** WCAG's contrast of two colors, from 1 to 21. */
export function contrast(one: Rgb, other: Rgb): number {
  const [high, low] = [luminance(one), luminance(other)].sort((a, b) => b - a);
  return (high! + 0.05) / (low! + 0.05);
}

// Black itself: with any other dark ink there are colors on which neither reaches 4.5.
const DARK_INK: Rgb = [0, 0, 0];
const LIGHT_INK: Rgb = [255, 255, 255];

/** The ink that is easier to read on a color. */
export function inkOn(color: Rgb): Rgb {
  if (contrast(color, DARK_INK) >= contrast(color, LIGHT_INK)) return DARK_INK;
  return LIGHT_INK;
}
