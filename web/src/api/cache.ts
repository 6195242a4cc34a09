// Answers by their path, the latest used last; the oldest go where all together would be too large.

interface Entry {
  answer: Promise<unknown>;
  bytes: number;
}

export class Cache {
  private readonly entries = new Map<string, Entry>();
  private bytes = 0;

  constructor(private readonly most: number) {}

  get<T>(path: string, ask: () => Promise<T>, size: number | ((answer: T) => number)): Promise<T> {
    const entry = this.entries.get(path);
    if (entry) {
      this.entries.delete(path);
      this.entries.set(path, entry);
      return entry.answer as Promise<T>;
    }
    const answer = ask();
    const added: Entry = { answer, bytes: 0 };
    this.entries.set(path, added);
    answer.then(
      (value) => {
        let bytes = size;
        if (typeof bytes === "function") bytes = bytes(value);
        added.bytes = bytes;
        this.bytes += bytes;
        this.shrink();
      },
      // A failure is asked again, as a server may have come back.
      () => this.entries.delete(path),
    );
    return answer;
  }

  get size(): number {
    return this.entries.size;
  }

  private shrink(): void {
    for (const [path, entry] of this.entries) {
      if (this.bytes <= this.most) return;
      // What is still under way has no bytes yet.
      if (entry.bytes === 0) continue;
      this.entries.delete(path);
      this.bytes -= entry.bytes;
    }
  }
}
