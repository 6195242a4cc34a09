// Reads what a page carries: one deflated block of JSON and the arrays that it describes. `encode.py` is the other half.
import { halfValues } from "../carrier/half";

export interface Part {
  at: number;
  shape: number[];
  code: "f16" | "f32" | "i32" | "log8" | "bits";
  /** Of `log8`: the value of the highest level of each head, and how many powers of ten lie below it. */
  top?: Part;
  decades?: number;
}

const LEVELS = 254;

export class Block {
  readonly index: unknown;
  private readonly start: number;

  constructor(private readonly buffer: ArrayBuffer) {
    const length = new DataView(buffer).getUint32(0, true);
    this.start = 4 + length;
    this.index = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, length)));
  }

  /** The numbers of one head, or of the first axis whatever it is; an axis of one head stands for all. */
  floats(part: Part, head = 0): Float32Array {
    const [at, size] = this.place(part, head);
    if (part.code === "f32") return new Float32Array(this.buffer, this.start + part.at + 4 * at, size);
    if (part.code === "i32") return Float32Array.from(new Int32Array(this.buffer, this.start + part.at + 4 * at, size));
    if (part.code === "f16") {
      const values = halfValues();
      const codes = new Uint16Array(this.buffer, this.start + part.at + 2 * at, size);
      return Float32Array.from(codes, (code) => values[code]!);
    }
    if (part.code === "log8") {
      const levels = this.levels(part, head);
      const codes = new Uint8Array(this.buffer, this.start + part.at + at, size);
      return Float32Array.from(codes, (code) => levels[code]!);
    }
    throw new Error(`${part.code} holds no numbers`);
  }

  /** One number for each bit: 1 where it is set. */
  bits(part: Part, head = 0): Uint8Array {
    const [at, size] = this.place(part, head);
    const bytes = new Uint8Array(this.buffer, this.start + part.at);
    const bits = new Uint8Array(size);
    for (let index = 0; index < size; index++) bits[index] = (bytes[(at + index) >> 3]! >> ((at + index) & 7)) & 1;
    return bits;
  }

  /** Where a head's values begin, and how many they are. */
  private place({ shape }: Part, head: number): [at: number, size: number] {
    const [heads = 1, ...rest] = shape;
    const size = rest.reduce((product, length) => product * length, 1);
    return [Math.min(head, heads - 1) * size, size];
  }

  private levels({ top, decades = 0 }: Part, head: number): Float32Array {
    const most = this.floats({ ...top!, shape: [top!.shape[0]!, 1] }, head)[0]!;
    return Float32Array.from({ length: LEVELS + 2 }, (_, code) => {
      if (code === 0) return 0;
      return most * 10 ** ((-decades * (LEVELS + 1 - code)) / LEVELS);
    });
  }
}

/** The block in a text of base64. */
export async function unpack(text: string): Promise<Block> {
  const packed = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Block(await new Response(stream).arrayBuffer());
}
