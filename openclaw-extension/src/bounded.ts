/** A map that keeps the last `limit` entries written. */
export class Bounded<Key, Value> {
  readonly #entries = new Map<Key, Value>();

  constructor(private readonly limit: number) {}

  get size(): number {
    return this.#entries.size;
  }

  get(key: Key): Value | undefined {
    return this.#entries.get(key);
  }

  set(key: Key, value: Value): void {
    this.#entries.delete(key);
    this.#entries.set(key, value);
    for (const oldest of this.#entries.keys()) {
      if (this.#entries.size <= this.limit) break;
      this.#entries.delete(oldest);
    }
  }

  delete(key: Key): void {
    this.#entries.delete(key);
  }

  /** All entries, oldest write first. */
  entries(): [Key, Value][] {
    return [...this.#entries];
  }

  /** All values, newest write first. */
  latest(): Value[] {
    return [...this.#entries.values()].reverse();
  }
}
