import { Bounded } from "./bounded.js";

const MAX_SESSIONS = 500;
const MAX_PREDECESSORS = 10;

/** The end of a conversation whose id may be reused. */
interface EndNotice {
  reason: string;
  /** The request that carries the notice, until the service has accepted or missed it. */
  carrier: object | undefined;
}

/**
 * The conversations behind OpenClaw's session ids. A compaction may give a conversation a new id; the plug-in and the
 * service keep the first one.
 */
export class Sessions {
  readonly #roots = new Bounded<string, string>(MAX_SESSIONS);
  readonly #byKey = new Bounded<string, string>(MAX_SESSIONS);
  readonly #endNotices = new Bounded<string, EndNotice>(MAX_SESSIONS);
  readonly #episodes = new Bounded<string, number>(MAX_SESSIONS);
  /** The previous conversation of a chat, if it had another id. */
  readonly #predecessors = new Bounded<string, string>(MAX_SESSIONS);
  /** The session key of each open conversation, if known. */
  readonly #open = new Bounded<string, string | undefined>(MAX_SESSIONS);

  /** The first id of a conversation. */
  root(sessionId: string): string {
    return this.#roots.get(sessionId) ?? sessionId;
  }

  /** Record that a conversation continues under another id. */
  continued(previous: string, next: string): void {
    if (next !== previous) this.#roots.set(next, this.root(previous));
  }

  /** Record the current conversation of a session key. */
  note(sessionKey: string | undefined, sessionId: string | undefined): void {
    if (sessionKey !== undefined && sessionId !== undefined) this.#byKey.set(sessionKey, this.root(sessionId));
  }

  byKey(sessionKey: string | undefined): string | undefined {
    return sessionKey === undefined ? undefined : this.#byKey.get(sessionKey);
  }

  /** True if a hook has announced a run of this conversation. */
  isKnown(sessionId: string): boolean {
    const root = this.root(sessionId);
    return this.#byKey.entries().some(([, known]) => known === root);
  }

  /** Record an end: later requests under this id, or under `next`, belong to a new conversation. */
  ended(sessionId: string, reason: string, next?: string): void {
    const root = this.root(sessionId);
    this.#open.delete(root);
    this.#endNotices.set(root, { reason, carrier: undefined });
    this.#episodes.set(root, this.episode(root) + 1);
    if (next !== undefined && this.root(next) !== root) this.#predecessors.set(this.root(next), root);
  }

  /** Number of ended conversations under this id. */
  episode(sessionId: string): number {
    return this.#episodes.get(this.root(sessionId)) ?? 0;
  }

  /** The ids of a conversation and its predecessors, newest first. */
  line(sessionId: string): string[] {
    const ids = [this.root(sessionId)];
    for (let id = this.#predecessors.get(ids[0] ?? ""); id !== undefined; id = this.#predecessors.get(id)) {
      if (ids.length > MAX_PREDECESSORS || ids.includes(id)) break;
      ids.push(id);
    }
    return ids;
  }

  /** The reason of the last end, until the service has accepted a request of the new conversation. */
  justEnded(sessionId: string): string | undefined {
    return this.#endNotices.get(this.root(sessionId))?.reason;
  }

  /**
   * Claim the notice that the previous conversation ended; returns the reason if this request is to carry it. One request
   * at a time carries it: one that fails releases it for the next. Once the service has accepted any request of the new
   * conversation the notice is dropped, because it would end the new conversation too; the end still has its own post.
   */
  claimEndNotice(sessionId: string, request: object): string | undefined {
    const notice = this.#endNotices.get(this.root(sessionId));
    if (notice === undefined || notice.carrier !== undefined) return undefined;
    notice.carrier = request;
    return notice.reason;
  }

  /** Release the notice of a request that did not reach the service. */
  releaseEndNotice(sessionId: string, request: object): void {
    const notice = this.#endNotices.get(this.root(sessionId));
    if (notice?.carrier === request) notice.carrier = undefined;
  }

  /** Drop the notice: the service accepted a request of the new conversation. True if that request carried it. */
  dropEndNotice(sessionId: string, request: object): boolean {
    const root = this.root(sessionId);
    const carried = this.#endNotices.get(root)?.carrier === request;
    this.#endNotices.delete(root);
    return carried;
  }

  /** Record that a conversation has an answer. */
  begun(sessionId: string, sessionKey: string | undefined): void {
    this.#open.set(this.root(sessionId), sessionKey);
  }

  /** Ids and keys of conversations that have an answer and have not ended. */
  open(): [string, string | undefined][] {
    return this.#open.entries();
  }
}
