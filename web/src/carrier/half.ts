// float16 codes: what each of the 65 536 stands for.

let values: Float32Array | null = null;

export function halfToFloat(code: number): number {
  const sign = code & 0x8000 ? -1 : 1;
  const exponent = (code >> 10) & 0x1f;
  const fraction = code & 0x3ff;
  if (exponent === 0) return sign * fraction * 2 ** -24;
  if (exponent === 31) return fraction ? NaN : sign * Infinity;
  return sign * 2 ** (exponent - 15) * (1 + fraction / 1024);
}

/** The value of every code, made once. */
export function halfValues(): Float32Array {
  values ??= Float32Array.from({ length: 65536 }, (_, code) => halfToFloat(code));
  return values;
}

/** The code of the nearest float16; used where exact weights are drawn with the colors of tiles. */
export function floatToHalf(value: number): number {
  if (Number.isNaN(value)) return 0x7e00;
  const sign = value < 0 || Object.is(value, -0) ? 0x8000 : 0;
  const size = Math.abs(value);
  if (size >= 65520) return sign | 0x7c00;
  if (size < 2 ** -14) return sign | Math.round(size * 2 ** 24);
  const exponent = Math.floor(Math.log2(size));
  // Rounding up may carry into the exponent, which the sum of the codes does by itself.
  return sign | (((exponent + 15) << 10) + Math.round((size / 2 ** exponent - 1) * 1024));
}
