import { Bounded } from "./bounded.js";

const MOST_SESSIONS = 500;
const MOST_BEFORE = 10;

/** A conversation that ended under an id that may be used again. */
interface Ended {
  reason: string;
  /** The request that tells the service of it, as long as nobody knows whether the service heard. */
  teller: object | undefined;
}

/**
 * The conversations behind OpenClaw's session ids. A compaction may give a conversation a new id; here, and at the
 * service, it keeps the one it began with.
 */
export class Sessions {
  readonly #roots = new Bounded<string, string>(MOST_SESSIONS);
  readonly #byKey = new Bounded<string, string>(MOST_SESSIONS);
  readonly #ended = new Bounded<string, Ended>(MOST_SESSIONS);
  readonly #episodes = new Bounded<string, number>(MOST_SESSIONS);
  /** The conversation before one that has another id. */
  readonly #before = new Bounded<string, string>(MOST_SESSIONS);
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

  /** Whether a run was in this conversation. */
  isKnown(sessionId: string): boolean {
    const root = this.root(sessionId);
    return this.#byKey.entries().some(([, known]) => known === root);
  }

  /** A conversation ended; what comes under its id, or under `next`, from now on is a new one. */
  ended(sessionId: string, reason: string, next?: string): void {
    const root = this.root(sessionId);
    this.#open.delete(root);
    this.#ended.set(root, { reason, teller: undefined });
    this.#episodes.set(root, this.episode(root) + 1);
    if (next !== undefined && this.root(next) !== root) this.#before.set(this.root(next), root);
  }

  /** How many conversations under this id have ended. */
  episode(sessionId: string): number {
    return this.#episodes.get(this.root(sessionId)) ?? 0;
  }

  /** The ids of a conversation and of those before it, the last first. */
  line(sessionId: string): string[] {
    const ids = [this.root(sessionId)];
    for (let id = this.#before.get(ids[0] ?? ""); id !== undefined; id = this.#before.get(id)) {
      if (ids.length > MOST_BEFORE || ids.includes(id)) break;
      ids.push(id);
    }
    return ids;
  }

  /** Why the conversation before ended, as long as the service has not taken a request of the new one. */
  justEnded(sessionId: string): string | undefined {
    return this.#ended.get(this.root(sessionId))?.reason;
  }

  /**
   * Why the conversation before ended, if this request is the one to say so. One at a time says it: a request that
   * said it in vain gives it back (`unheard`), and the next one says it. Where meanwhile another request of the new
   * conversation was taken without it, nobody says it any more (`heard`): it would end that one too. Then the end is
   * still told by its own post.
   */
  tell(sessionId: string, request: object): string | undefined {
    const ended = this.#ended.get(this.root(sessionId));
    if (ended === undefined || ended.teller !== undefined) return undefined;
    ended.teller = request;
    return ended.reason;
  }

  /** A request found nobody. */
  unheard(sessionId: string, request: object): void {
    const ended = this.#ended.get(this.root(sessionId));
    if (ended?.teller === request) ended.teller = undefined;
  }

  /** The service took a request of the new conversation; gives whether that request told it of the end. */
  heard(sessionId: string, request: object): boolean {
    const root = this.root(sessionId);
    const told = this.#ended.get(root)?.teller === request;
    this.#ended.delete(root);
    return told;
  }

  /** A conversation has an answer. */
  begun(sessionId: string, sessionKey: string | undefined): void {
    this.#open.set(this.root(sessionId), sessionKey);
  }

  /** Ids and keys of the conversations that have an answer and have not ended. */
  open(): [string, string | undefined][] {
    return this.#open.entries();
  }
}
