// Reads what the page carries: a description (JSON) and the numbers (one compressed block of bytes).
// Knows how numbers are packed; knows nothing of how they are drawn.

// `new Response` here only collects a stream: the page never asks anything of any network.
async function readRecord() {
  const description = JSON.parse(document.getElementById("description").textContent);
  const text = atob(document.getElementById("numbers").textContent);
  const packed = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) packed[i] = text.charCodeAt(i);
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  description.bytes = await new Response(stream).arrayBuffer();
  return description;
}

const halves = (() => {
  const table = new Float32Array(65536);
  for (let bits = 0; bits < 65536; bits++) {
    const sign = bits & 0x8000 ? -1 : 1,
      exponent = (bits >> 10) & 31,
      fraction = bits & 1023;
    table[bits] =
      sign *
      (exponent === 0
        ? fraction * 2 ** -24
        : exponent === 31
          ? fraction
            ? NaN
            : Infinity
          : (1 + fraction / 1024) * 2 ** (exponent - 15));
  }
  return table;
})();

const WIDTH = { log8: 1, f16: 2, f32: 4, i32: 4 };

// One [sequence, head] slice of a packed array. An axis of size 1 stands for every index.
function unpack(record, part, sequence, head) {
  const [sequences, heads, ...rest] = part.shape;
  const which = Math.min(sequence, sequences - 1) * heads + Math.min(head, heads - 1);
  const size = rest.reduce((a, b) => a * b, 1);
  const start = part.at + which * size * WIDTH[part.code];
  if (part.code === "f32") return new Float32Array(record.bytes, start, size);
  if (part.code === "i32") return new Int32Array(record.bytes, start, size);
  if (part.code === "f16")
    return Float32Array.from(new Uint16Array(record.bytes, start, size), (bits) => halves[bits]);
  const top = unpack(record, part.top, sequence, head)[0];
  const levels = Float32Array.from({ length: 256 }, (_, code) =>
    code === 0 ? 0 : top * 10 ** ((-part.decades * (255 - code)) / 254),
  );
  return Float32Array.from(new Uint8Array(record.bytes, start, size), (code) => levels[code]);
}

const largest = (values) => values.reduce((a, b) => (b > a ? b : a), 0);

// The value of the strongest shade: the largest, or eight times an even share where no value stands out. `most` is
// the largest value there can be.
function topOf(values, most) {
  let sum = 0,
    count = 0;
  for (const value of values) {
    if (value > 0) {
      sum += value;
      count += 1;
    }
  }
  return Math.max(largest(values), Math.min(most, (8 * sum) / (count || 1)));
}

// The picture of one head, or the mean of several heads of calls with the same shape; null without a map.
function pictureOf(record, heads, sequence) {
  const parts = heads.map((head) => {
    const { call, head: within } = record.heads[head];
    const source = record.calls[call].picture;
    return (
      source && {
        source,
        mean: unpack(record, source.mean, sequence, within),
        peak: source.peak && unpack(record, source.peak, sequence, within),
      }
    );
  });
  if (!parts.every(Boolean)) return null;
  const { source, mean: first } = parts[0];
  const mean =
    parts.length === 1
      ? first
      : first.map((_, i) => parts.reduce((sum, part) => sum + part.mean[i], 0) / parts.length);
  const peak = !source.peak
    ? mean
    : parts.length === 1
      ? parts[0].peak
      : mean.map((_, i) => parts.reduce((most, part) => Math.max(most, part.peak[i]), 0));
  const call = record.calls[record.heads[heads[0]].call];
  return {
    mean,
    peak,
    exact: !source.peak,
    digits: source.mean.code === "f16" ? 3 : 2, // as many as the packing is good for
    cell: source.cell,
    heads: parts.length,
    height: source.mean.shape[2],
    width: source.mean.shape[3],
    firstCell: Math.floor(call.offset / source.cell),
    offset: call.offset,
    queries: call.queries,
    keys: call.keys,
    top: { mean: topOf(mean, 1), peak: topOf(peak, 1) },
  };
}

// The cell of one query and one key, both counted from 0 within the call.
function cellAt(picture, query, key) {
  const row = Math.floor((picture.offset + query) / picture.cell) - picture.firstCell;
  return row * picture.width + Math.floor(key / picture.cell);
}

// Weights along one query (over keys) or one key (over queries), one value per token.
function lineOf(picture, axis, index, pool) {
  const length = axis === "query" ? picture.keys : picture.queries,
    line = new Float32Array(length);
  for (let i = 0; i < length; i++) {
    line[i] = picture[pool][axis === "query" ? cellAt(picture, index, i) : cellAt(picture, i, index)];
  }
  return line;
}

// A series over the tokens of one call ("entropy", "received", …) for one head; null if the page has none.
function seriesOf(record, head, name, sequence) {
  const { call, head: within } = record.heads[head];
  const part = record.calls[call].series[name];
  return part ? unpack(record, part, sequence, within) : null;
}
