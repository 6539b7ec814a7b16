import { Bounded } from "./bounded.js";

const MOST_SESSIONS = 500;

/**
 * The conversations behind OpenClaw's session ids. A compaction may give a conversation a new id; here, and at the
 * service, it keeps the one it began with.
 */
export class Sessions {
  readonly #roots = new Bounded<string, string>(MOST_SESSIONS);
  readonly #byKey = new Bounded<string, string>(MOST_SESSIONS);
  readonly #ended = new Bounded<string, string>(MOST_SESSIONS);
  /** With the session key, where one is known. */
  readonly #open = new Bounded<string, string | undefined>(MOST_SESSIONS);

  /** The id that a conversation began with. */
  root(sessionId: string): string {
    return this.#roots.get(sessionId) ?? sessionId;
  }

  /** A conversation goes on under another id. */
  continued(previous: string, next: string): void {
    if (next !== previous) this.#roots.set(next, this.root(previous));
  }

  /** The conversation that a session key stands for at the moment. */
  note(sessionKey: string | undefined, sessionId: string | undefined): void {
    if (sessionKey !== undefined && sessionId !== undefined) this.#byKey.set(sessionKey, this.root(sessionId));
  }

  byKey(sessionKey: string | undefined): string | undefined {
    return sessionKey === undefined ? undefined : this.#byKey.get(sessionKey);
  }

  /** A conversation ended; what comes under its id from now on is a new one. */
  ended(sessionId: string, reason: string): void {
    this.#open.delete(this.root(sessionId));
    this.#ended.set(this.root(sessionId), reason);
  }

  /** Why the conversation before ended, as long as the new one under its id has no answer; else `undefined`. */
  justEnded(sessionId: string | undefined): string | undefined {
    return sessionId === undefined ? undefined : this.#ended.get(this.root(sessionId));
  }

  /** A conversation has an answer. */
  begun(sessionId: string, sessionKey: string | undefined): void {
    this.#ended.delete(this.root(sessionId));
    this.#open.set(this.root(sessionId), sessionKey);
  }

  /** Ids and keys of the conversations that have an answer and have not ended. */
  open(): [string, string | undefined][] {
    return this.#open.entries();
  }
}
