// The safetensors format: eight bytes of length, a JSON header, then the arrays, little-endian.

export type Data = Float32Array | Float64Array | Uint16Array | Int32Array | BigInt64Array | Uint8Array | Int8Array;

export interface Tensor {
  dtype: string;
  shape: number[];
  data: Data;
}

export interface Arrays {
  arrays: Record<string, Tensor>;
  /** The JSON text of the metadata's entry `json`, parsed; null where there is none. */
  json: unknown;
}

type Entry = { dtype: string; shape: number[]; data_offsets: [number, number] };

// float16 stays a code of 16 bits: colors are looked up by it.
const KINDS: Record<string, { new (buffer: ArrayBuffer): Data; readonly BYTES_PER_ELEMENT: number }> = {
  F16: Uint16Array,
  F32: Float32Array,
  F64: Float64Array,
  I32: Int32Array,
  I64: BigInt64Array,
  U8: Uint8Array,
  BOOL: Uint8Array,
  I8: Int8Array,
};

export function parseSafetensors(buffer: ArrayBuffer): Arrays {
  if (buffer.byteLength < 8) throw new Error(`safetensors: 8 bytes of length expected, got ${buffer.byteLength}`);
  const length = Number(new DataView(buffer).getBigUint64(0, true));
  if (8 + length > buffer.byteLength) {
    throw new Error(`safetensors: a header of ${length} bytes expected, got ${buffer.byteLength - 8}`);
  }
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 8, length))) as Record<string, unknown>;
  const metadata = header["__metadata__"] as Record<string, string> | undefined;
  const arrays: Record<string, Tensor> = {};
  for (const [name, entry] of Object.entries(header)) {
    if (name !== "__metadata__") arrays[name] = read(buffer, 8 + length, name, entry as Entry);
  }
  return { arrays, json: metadata?.["json"] === undefined ? null : JSON.parse(metadata["json"]) };
}

function read(buffer: ArrayBuffer, start: number, name: string, entry: Entry): Tensor {
  const kind = KINDS[entry.dtype];
  if (!kind) throw new Error(`safetensors: ${name} is ${entry.dtype}, which is not read here`);
  const [from, to] = entry.data_offsets;
  const count = entry.shape.reduce((product, size) => product * size, 1);
  if (to - from !== count * kind.BYTES_PER_ELEMENT || start + to > buffer.byteLength) {
    throw new Error(`safetensors: ${name} needs ${count * kind.BYTES_PER_ELEMENT} bytes, got ${to - from}`);
  }
  // A copy, as the header may leave the data at an odd place, where no typed array can begin.
  return { dtype: entry.dtype, shape: entry.shape, data: new kind(buffer.slice(start + from, start + to)) };
}

export function array(arrays: Arrays, name: string): Tensor {
  const found = arrays.arrays[name];
  if (!found) throw new Error(`${name} expected among ${Object.keys(arrays.arrays).join(", ") || "no arrays"}`);
  return found;
}

export function floats(arrays: Arrays, name: string): Float32Array {
  const { data, dtype } = array(arrays, name);
  if (!(data instanceof Float32Array)) throw new Error(`${name} must be float32, got ${dtype}`);
  return data;
}

export function codes(arrays: Arrays, name: string): Uint16Array {
  const { data, dtype } = array(arrays, name);
  if (!(data instanceof Uint16Array)) throw new Error(`${name} must be float16, got ${dtype}`);
  return data;
}

/** The same format, written: for pages and tests. */
export function writeSafetensors(arrays: Record<string, Tensor>, json?: unknown): ArrayBuffer {
  const header: Record<string, unknown> = {};
  if (json !== undefined) header["__metadata__"] = { json: JSON.stringify(json) };
  let end = 0;
  for (const [name, { dtype, shape, data }] of Object.entries(arrays)) {
    header[name] = { dtype, shape, data_offsets: [end, end + data.byteLength] };
    end += data.byteLength;
  }
  const text = new TextEncoder().encode(JSON.stringify(header));
  const whole = new Uint8Array(8 + text.length + end);
  new DataView(whole.buffer).setBigUint64(0, BigInt(text.length), true);
  whole.set(text, 8);
  let place = 8 + text.length;
  for (const { data } of Object.values(arrays)) {
    whole.set(new Uint8Array(data.buffer, data.byteOffset, data.byteLength), place);
    place += data.byteLength;
  }
  return whole.buffer;
}
