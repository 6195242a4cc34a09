// Which lines are drawn between two columns of tokens: a few of the largest weights of each query.

export interface Line {
  query: number;
  key: number;
  weight: number;
}

// Smaller weights have no line, and a query has so many at most.
export const LEAST = 0.01;
const MOST = 16;

/** Of a window `(queries, keys)`, the weights of at least `least`, at most `most` a query. */
export function linesOf(weights: Float32Array, queries: number, keys: number, least = LEAST, most = MOST): Line[] {
  const lines: Line[] = [];
  for (let query = 0; query < queries; query++) {
    const row: Line[] = [];
    for (let key = 0; key < keys; key++) {
      const weight = weights[query * keys + key]!;
      if (weight >= least) row.push({ query, key, weight });
    }
    row.sort((a, b) => b.weight - a.weight);
    lines.push(...row.slice(0, most));
  }
  return lines;
}
