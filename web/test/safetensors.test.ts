import { describe, expect, it } from "vitest";
import { floatToHalf, halfToFloat, halfValues } from "../src/carrier/half";
import { array, codes, floats, parseSafetensors, writeSafetensors } from "../src/carrier/safetensors";

describe("safetensors", () => {
  it("reads what it wrote, wherever the data begin", () => {
    for (const name of ["w", "we", "wei", "weig", "weigh"]) {
      const data = Float32Array.from([1, -2.5, NaN, Infinity]);
      const file = writeSafetensors({ [name]: { dtype: "F32", shape: [2, 2], data } }, { cell: 7 });
      const { arrays, json } = parseSafetensors(file);
      expect(arrays[name]!.shape).toEqual([2, 2]);
      expect([...(arrays[name]!.data as Float32Array)]).toEqual([...data]);
      expect(json).toEqual({ cell: 7 });
    }
  });

  it("reads a file as the format's description has it", () => {
    const header = '{"a":{"dtype":"F16","shape":[2],"data_offsets":[0,4]}}';
    const bytes = new Uint8Array(8 + header.length + 4);
    bytes[0] = header.length;
    bytes.set(new TextEncoder().encode(header), 8);
    bytes.set([0x00, 0x3c, 0x00, 0xfc], 8 + header.length);
    const answer = parseSafetensors(bytes.buffer);
    expect([...codes(answer, "a")]).toEqual([0x3c00, 0xfc00]);
    expect(answer.json).toBeNull();
  });

  it("says what is wrong with a file", () => {
    expect(() => parseSafetensors(new ArrayBuffer(3))).toThrow("8 bytes of length expected, got 3");
    const long = new ArrayBuffer(16);
    new DataView(long).setBigUint64(0, 99n, true);
    expect(() => parseSafetensors(long)).toThrow("a header of 99 bytes expected, got 8");
    const short = writeSafetensors({ a: { dtype: "F32", shape: [3], data: new Float32Array(2) } });
    expect(() => parseSafetensors(short)).toThrow("a needs 12 bytes, got 8");
    const odd = writeSafetensors({ a: { dtype: "BF16", shape: [1], data: new Uint16Array(1) } });
    expect(() => parseSafetensors(odd)).toThrow("a is BF16");
  });

  it("says which array is missing or of another type", () => {
    const answer = parseSafetensors(writeSafetensors({ a: { dtype: "F32", shape: [1], data: new Float32Array(1) } }));
    expect(() => array(answer, "b")).toThrow("b expected among a");
    expect(() => codes(answer, "a")).toThrow("a must be float16, got F32");
    expect(floats(answer, "a")).toHaveLength(1);
  });
});

describe("float16", () => {
  it("knows the values of the standard", () => {
    const known: [number, number][] = [[0x3c00, 1], [0xc000, -2], [0x7bff, 65504], [0x0001, 2 ** -24], [0x0400, 2 ** -14]];
    for (const [code, value] of known) expect(halfToFloat(code)).toBe(value);
    expect(halfToFloat(0xfc00)).toBe(-Infinity);
    expect(halfToFloat(0x7e00)).toBeNaN();
  });

  it("finds every code again", () => {
    const values = halfValues();
    const codes = [...values.keys()].filter((code) => !Number.isNaN(values[code]!));
    expect(codes.length).toBe(65536 - 2 * 1023);
    expect(codes.filter((code) => floatToHalf(values[code]!) !== code)).toEqual([]);
  });

  it("rounds to one of the two nearest", () => {
    for (let step = 0; step < 2000; step++) {
      const value = -Math.exp(step / 150 - 8);
      const error = Math.abs(halfToFloat(floatToHalf(value)) - value);
      expect(error).toBeLessThanOrEqual(2 ** -11 * Math.abs(value) + 2 ** -25);
    }
  });
});
