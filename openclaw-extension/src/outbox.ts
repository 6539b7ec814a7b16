import { ask, type Reply, type Request } from "./service.js";

export interface Post extends Request {
  /** The conversation of the post. */
  sessionId: string | undefined;
  body: Record<string, unknown>;
}

interface Queued {
  post: Post;
  since: number;
  /** Resolves the caller's promise with the result of the first attempt; `undefined` after that. */
  resolve: ((reply: Reply) => void) | undefined;
}

const MAX_POSTS = 100;
const MAX_AGE = 3_600_000;
const TIMEOUT = 3_000;
/** The service is up, but fails on this post. */
const INTERNAL_ERROR = 500;
const RETRY_DELAYS = [1_000, 5_000, 15_000, 60_000];

/**
 * Sends posts to the service in order, one at a time. While the service is away it keeps at most `MAX_POSTS` of them,
 * for at most an hour. It never throws. A post on which the service fails delays only posts of the same session; an
 * address that does not answer delays only posts to that address.
 */
export class Outbox {
  #queue: Queued[] = [];
  #sending: Promise<void> | undefined;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #failures = 0;

  constructor(
    private readonly send: (request: Request, timeout: number) => Promise<Reply> = ask,
    private readonly now: () => number = Date.now,
  ) {}

  get size(): number {
    return this.#queue.length;
  }

  /** Queue a post. Resolves to the result of the first attempt; if the service did not answer, the post is retried. */
  post(post: Post): Promise<Reply> {
    return new Promise((resolve) => {
      this.#queue.push({ post, since: this.now(), resolve });
      for (const dropped of this.#queue.splice(0, this.#queue.length - MAX_POSTS)) {
        dropped.resolve?.({ kind: "unreachable", message: "too many posts were waiting" });
      }
      void this.#start();
    });
  }

  /** Remove matching posts that were not sent yet. */
  cancel(unwanted: (post: Post) => boolean): void {
    const kept: Queued[] = [];
    for (const queued of this.#queue) {
      if (unwanted(queued.post)) queued.resolve?.({ kind: "unreachable", message: "cancelled" });
      else kept.push(queued);
    }
    this.#queue = kept;
  }

  /** Retry every queued post now. Resolves when all are sent or the service does not answer. */
  async flush(): Promise<void> {
    await this.#sending;
    await this.#start();
  }

  #start(): Promise<void> {
    this.#sending ??= this.#drain();
    return this.#sending;
  }

  async #drain(): Promise<void> {
    await Promise.resolve(); // so that `#start` has set `#sending` before this method clears it
    clearTimeout(this.#timer);
    const blocked = new Set<string>();
    const isBlocked = ({ post }: Queued): boolean => blocked.has(address(post)) || blocked.has(conversation(post));
    let failure: Reply | undefined;
    for (let first = this.#queue[0]; first !== undefined; first = this.#queue.find((one) => !isBlocked(one))) {
      const reply = await this.#attempt(first);
      first.resolve?.(reply);
      first.resolve = undefined;
      if (reply.kind === "unreachable" && this.now() - first.since < MAX_AGE) {
        blocked.add(reply.status === INTERNAL_ERROR ? conversation(first.post) : address(first.post));
        failure = reply;
        continue;
      }
      this.#failures = 0;
      this.#queue = this.#queue.filter((queued) => queued !== first);
    }
    if (failure !== undefined && this.#queue.length > 0) this.#retryLater(failure);
    this.#sending = undefined; // no await since the queue was read, so a later post starts a new drain
  }

  async #attempt(queued: Queued): Promise<Reply> {
    try {
      return await this.send(withAge(queued.post, (this.now() - queued.since) / 1_000), TIMEOUT);
    } catch (error) {
      return { kind: "refused", status: 0, message: String(error) };
    }
  }

  /** The service does not answer: report that to all callers, and schedule a retry. */
  #retryLater(reply: Reply): void {
    for (const queued of this.#queue) {
      queued.resolve?.(reply);
      queued.resolve = undefined;
    }
    const delay = RETRY_DELAYS[Math.min(this.#failures, RETRY_DELAYS.length - 1)];
    this.#failures += 1;
    this.#timer = setTimeout(() => void this.#start(), delay);
    this.#timer.unref(); // do not keep the process alive for a retry
  }
}

function address(post: Post): string {
  return post.url.split("/", 3).join("/");
}

function conversation(post: Post): string {
  return `${address(post)} ${post.sessionId ?? ""}`;
}

/** Add the age in seconds instead of a time stamp: clocks of two machines may differ. */
function withAge(post: Post, seconds: number): Post {
  return { ...post, body: { ...post.body, age_seconds: Math.max(0, seconds) } };
}

/** Resolve to the promise's value, or to `fallback` after a timeout. */
export async function withTimeout<Value>(
  promise: Promise<Value>,
  milliseconds: number,
  fallback: Value,
): Promise<Value> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const timeout = new Promise<Value>((resolve) => {
    timer = setTimeout(() => {
      resolve(fallback);
    }, milliseconds);
  });
  try {
    return await Promise.race([promise, timeout]);
  } finally {
    clearTimeout(timer);
  }
}
