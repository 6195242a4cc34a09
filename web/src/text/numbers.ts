// How numbers are written: few digits, a real minus sign, thin spaces between thousands.

const THIN = "\u2009";

/** A count or a position. */
export function whole(value: number): string {
  const digits = String(Math.abs(Math.round(value)));
  // Four digits are read well without a space.
  const spaced = digits.length < 5 ? digits : digits.replace(/\B(?=(\d{3})+$)/g, THIN);
  return value < 0 ? `−${spaced}` : spaced;
}

/** So many digits at most, powers of ten where a number is small. */
export function short(value: number | null | undefined, digits = 3): string {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  if (!Number.isFinite(value)) return value > 0 ? "∞" : "−∞";
  if (value !== 0 && (Math.abs(value) < 1e-3 || Math.abs(value) >= 1e6)) {
    const [mantissa = "", exponent = ""] = value.toExponential(digits - 1).split("e");
    return `${signed(String(Number(mantissa)))}·10${raised(Number(exponent))}`;
  }
  return signed(String(Number(value.toPrecision(digits))));
}

function signed(text: string): string {
  return text.replace("-", "−");
}

function raised(exponent: number): string {
  return String(exponent).replace(/[-\d]/g, (sign) => (sign === "-" ? "⁻" : "⁰¹²³⁴⁵⁶⁷⁸⁹"[Number(sign)]!));
}

export function plural(count: number, one: string, many = `${one}s`): string {
  return `${whole(count)} ${count === 1 ? one : many}`;
}
