import { ask, type Reply, type Request } from "./service.js";

export interface Post extends Request {
  /** The conversation that the post is about. */
  sessionId: string | undefined;
  body: Record<string, unknown>;
}

interface Waiting {
  post: Post;
  since: number;
  /** Tells whoever posted how the first try went; forgotten after that. */
  told: ((reply: Reply) => void) | undefined;
}

const MOST_WAITING = 100;
const LONGEST_WAIT = 3_600_000;
const TIMEOUT = 3_000;
/** The service is there, but this post is too much for it. */
const STUMBLED = 500;
const PAUSES = [1_000, 5_000, 15_000, 60_000];

/**
 * Posts to the service, in the order they came, one at a time. While the service is away they wait here, at most
 * `MOST_WAITING` of them for at most an hour; nobody waits for them, and nothing of it is ever thrown. One that the
 * service stumbles over holds up those of its own session only, and an address where nobody is only those to it.
 */
export class Outbox {
  #waiting: Waiting[] = [];
  #sending: Promise<void> | undefined;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #failures = 0;

  constructor(
    private readonly send: (request: Request, timeout: number) => Promise<Reply> = ask,
    private readonly now: () => number = Date.now,
  ) {}

  get size(): number {
    return this.#waiting.length;
  }

  /** Send soon. Resolves to how the first try went; a post that found nobody is kept and tried again. */
  post(post: Post): Promise<Reply> {
    return new Promise((resolve) => {
      this.#waiting.push({ post, since: this.now(), told: resolve });
      for (const dropped of this.#waiting.splice(0, this.#waiting.length - MOST_WAITING)) {
        dropped.told?.({ kind: "unreachable", message: "too much was waiting" });
      }
      void this.#start();
    });
  }

  /** Take back posts that were not sent yet. */
  cancel(unwanted: (post: Post) => boolean): void {
    const kept: Waiting[] = [];
    for (const waiting of this.#waiting) {
      if (unwanted(waiting.post)) waiting.told?.({ kind: "unreachable", message: "taken back" });
      else kept.push(waiting);
    }
    this.#waiting = kept;
  }

  /** Try everything that waits once more. Resolves when all is sent, or the service was found to be away. */
  async flush(): Promise<void> {
    await this.#sending;
    await this.#start();
  }

  #start(): Promise<void> {
    this.#sending ??= this.#drain();
    return this.#sending;
  }

  async #drain(): Promise<void> {
    await Promise.resolve(); // so that `#sending` is set before it is taken back
    clearTimeout(this.#timer);
    const held = new Set<string>();
    const isHeld = ({ post }: Waiting): boolean => held.has(address(post)) || held.has(conversation(post));
    let away: Reply | undefined;
    for (let first = this.#waiting[0]; first !== undefined; first = this.#waiting.find((one) => !isHeld(one))) {
      const reply = await this.#try(first);
      first.told?.(reply);
      first.told = undefined;
      if (reply.kind === "unreachable" && this.now() - first.since < LONGEST_WAIT) {
        held.add(reply.status === STUMBLED ? conversation(first.post) : address(first.post));
        away = reply;
        continue;
      }
      this.#failures = 0;
      this.#waiting = this.#waiting.filter((waiting) => waiting !== first);
    }
    if (away !== undefined && this.#waiting.length > 0) this.#later(away);
    this.#sending = undefined; // in the same breath as the last look: a post that comes now starts anew
  }

  async #try(waiting: Waiting): Promise<Reply> {
    try {
      return await this.send(aged(waiting.post, (this.now() - waiting.since) / 1_000), TIMEOUT);
    } catch (error) {
      return { kind: "refused", status: 0, message: String(error) };
    }
  }

  /** The service is away: tell everyone who hoped for it, and try again after a while. */
  #later(reply: Reply): void {
    for (const waiting of this.#waiting) {
      waiting.told?.(reply);
      waiting.told = undefined;
    }
    const pause = PAUSES[Math.min(this.#failures, PAUSES.length - 1)];
    this.#failures += 1;
    this.#timer = setTimeout(() => void this.#start(), pause);
    this.#timer.unref(); // a program that ends does not stay for this
  }
}

function address(post: Post): string {
  return post.url.split("/", 3).join("/");
}

function conversation(post: Post): string {
  return `${address(post)} ${post.sessionId ?? ""}`;
}

/** The post, with how long ago it was meant to be sent: clocks of two machines may differ. */
function aged(post: Post, seconds: number): Post {
  return { ...post, body: { ...post.body, age_seconds: Math.max(0, seconds) } };
}

/** What a promise gives within a time, else `otherwise`. */
export async function within<Value>(promise: Promise<Value>, milliseconds: number, otherwise: Value): Promise<Value> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const late = new Promise<Value>((resolve) => {
    timer = setTimeout(() => {
      resolve(otherwise);
    }, milliseconds);
  });
  try {
    return await Promise.race([promise, late]);
  } finally {
    clearTimeout(timer);
  }
}
