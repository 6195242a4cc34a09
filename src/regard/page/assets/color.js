// From a weight to a color: the scales, two perceptually even ramps, and the legend that explains them.

// Lightness falls (light page) or rises (dark page) linearly in OKLab, so equal steps look equal.
const RAMPS = {
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

function oklab([lightness, chroma, hue]) {
  const angle = (hue * Math.PI) / 180;
  return [lightness, chroma * Math.cos(angle), chroma * Math.sin(angle)];
}

function srgb([L, a, b]) {
  const l = (L + 0.3963377774 * a + 0.2158037573 * b) ** 3;
  const m = (L - 0.1055613458 * a - 0.0638541728 * b) ** 3;
  const s = (L - 0.0894841775 * a - 1.291485548 * b) ** 3;
  return [
    4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s,
    -1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s,
    -0.0041960863 * l - 0.7034186147 * m + 1.707614701 * s,
  ].map((c) => {
    const clipped = Math.min(1, Math.max(0, c));
    return Math.round(255 * (clipped <= 0.0031308 ? 12.92 * clipped : 1.055 * clipped ** (1 / 2.4) - 0.055));
  });
}

function makeRamp(stops) {
  const points = stops.map(oklab),
    steps = points.length - 1;
  return Array.from({ length: 256 }, (_, i) => {
    const place = (i / 255) * steps,
      left = Math.min(steps - 1, Math.floor(place)),
      t = place - left;
    return srgb(points[left].map((value, axis) => value + t * (points[left + 1][axis] - value)));
  });
}

const darkMode = matchMedia("(prefers-color-scheme: dark)");
const ramps = { light: makeRamp(RAMPS.light), dark: makeRamp(RAMPS.dark) };
const ramp = () => ramps[darkMode.matches ? "dark" : "light"];

// Each scale sends 0 … top to 0 … 1; `inverse` says which weight a shade stands for.
const DECADES = 4;
const SCALES = {
  linear: { shade: (part) => part, inverse: (shade) => shade },
  root: { shade: Math.sqrt, inverse: (shade) => shade * shade },
  log: {
    shade: (part) => (part <= 10 ** -DECADES ? 0 : 1 + Math.log10(part) / DECADES),
    inverse: (shade) => 10 ** (DECADES * (shade - 1)),
  },
};

function shadeOf(weight, top, scale) {
  return top > 0 ? Math.min(1, SCALES[scale].shade(weight / top)) : 0;
}

const css = ([r, g, b], opacity = 1) => `rgb(${r} ${g} ${b} / ${opacity})`;
const colorOf = (shade) => ramp()[Math.round(255 * shade)];

// Ink that is readable on a shade: dark on light and light on dark.
function inkOn(shade) {
  const [r, g, b] = colorOf(shade);
  return 0.299 * r + 0.587 * g + 0.114 * b > 140 ? "#15161a" : "#ffffff";
}

// A canvas of one pixel per cell, to be scaled when drawn.
function raster(values, width, height, top, scale) {
  const canvas = document.createElement("canvas");
  canvas.width = width;
  canvas.height = height;
  const context = canvas.getContext("2d"),
    image = context.createImageData(width, height);
  for (let i = 0; i < values.length; i++) {
    const [r, g, b] = colorOf(shadeOf(values[i], top, scale));
    image.data.set([r, g, b, 255], 4 * i);
  }
  context.putImageData(image, 0, 0);
  return canvas;
}

function drawLegend(holder, name, top, scale) {
  holder.querySelector(".scale-name").textContent = name;
  const canvas = holder.querySelector("canvas"),
    context = canvas.getContext("2d");
  canvas.width = 256;
  canvas.height = 1;
  ramp().forEach((color, i) => {
    context.fillStyle = css(color);
    context.fillRect(i, 0, 1, 1);
  });
  const ticks = [0, 0.5, 1].map((shade) => {
    const below = scale === "log" && shade === 0 ? "≤ " : "";
    return element("span", {}, below + significant(top * SCALES[scale].inverse(shade), 3));
  });
  holder.querySelector(".ticks").replaceChildren(...ticks);
}
