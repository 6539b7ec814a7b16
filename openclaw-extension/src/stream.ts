import { callHeaders, describeCall, type Call } from "./headers.js";
import type { AnswerMessage, AnswerStream, Logger, Model, ModelResponse, StreamFn, WrapContext } from "./host.js";
import { isSessionDone } from "./session-end.js";
import { key, PROVIDER, type Settings } from "./settings.js";
import type { State } from "./state.js";

/**
 * Wrap OpenClaw's model calls to our provider: add headers to requests and watch the answers. If anything fails here, the
 * request is sent without them. `simple`: for direct completions outside agent runs.
 */
export function wrapStream<Stream extends AnswerStream>(
  context: WrapContext<Stream>,
  simple: boolean,
  settings: Settings,
  state: State,
  logger: Logger,
): StreamFn<Stream> | undefined {
  const inner = context.streamFn;
  if (inner === undefined || context.provider !== PROVIDER) return undefined;
  return (model, modelContext, options) => {
    if (model.provider !== undefined && model.provider !== PROVIDER) return inner(model, modelContext, options);
    let watch: Watch;
    let headers: Record<string, string>;
    try {
      const call = describeCall(options, simple, settings, state);
      observe(call, simple, model, options?.apiKey, state);
      headers = callHeaders(call, model, modelContext, options, settings, state);
      watch = new Watch(call, state);
    } catch (error) {
      logger.warn(`openclaw-rl: sent a request without its headers: ${String(error)}`);
      return inner(model, modelContext, options);
    }
    let answer: Stream | Promise<Stream>;
    try {
      answer = inner(model, modelContext, {
        ...options,
        headers,
        onResponse: (response, own) => {
          watch.responded(response);
          return options?.onResponse?.(response, own);
        },
      });
    } catch (error) {
      watch.failed();
      throw error;
    }
    void follow(answer, watch);
    return answer;
  };
}

function observe(call: Call, simple: boolean, model: Model, apiKey: string | undefined, state: State): void {
  if (model.baseUrl !== undefined) state.observed.url = model.baseUrl;
  const observedKey = key(apiKey);
  if (observedKey !== undefined) state.observed.apiKey = observedKey;
  if (call.run !== undefined) state.unannounced = 0;
  else if (!simple && call.turnType === undefined) state.unannounced += 1;
}

/** Follows one model call to its end. */
class Watch {
  /** True if the service accepted the request; `undefined` until known. */
  #accepted: boolean | undefined;
  #kind: string | undefined;
  #turnId: string | undefined;
  #respondedAt = Date.now();

  constructor(
    private readonly call: Call,
    private readonly state: State,
  ) {
    this.#kind = call.turnType;
  }

  /** Handle a response's status and headers. OpenClaw may retry, so several can come. */
  responded({ status, headers = {} }: Partial<ModelResponse>): void {
    this.#respondedAt = Date.now();
    this.#kind = headers["x-openclaw-rl-kind"] ?? this.call.turnType;
    this.#turnId = headers["x-openclaw-rl-turn"];
    if (status !== undefined && status >= 200 && status < 300) this.#accept();
    else this.failed();
  }

  /** Handle a failed request. */
  failed(): void {
    this.#accepted = false;
    this.#releaseNotice();
  }

  /** Handle a complete answer. */
  answered(answer: AnswerMessage): void {
    if (answer.stopReason === "error" || answer.stopReason === "aborted") {
      if (this.#accepted === undefined) this.failed();
      return;
    }
    if (this.#accepted === undefined) this.#accept();
    const { sessionId, episode, runId, run } = this.call;
    if (this.#accepted !== true || this.#kind !== "main" || sessionId === undefined) return;
    if (this.#isCurrent(sessionId)) this.state.sessions.begun(sessionId, run?.sessionKey);
    if (this.#turnId === undefined) return;
    const turn = { turnId: this.#turnId, sessionId, episode, runId, respondedAt: this.#respondedAt };
    this.state.turns.answered(turn, answer);
  }

  #accept(): void {
    this.#accepted = true;
    const { sessionId } = this.call;
    if (sessionId === undefined || !this.#isCurrent(sessionId)) return;
    if (this.#kind === "side") {
      this.#releaseNotice(); // the service reads the notice on main requests only
    } else if (this.state.sessions.dropEndNotice(sessionId, this.call)) {
      this.state.outbox.cancel((post) => isSessionDone(post) && post.sessionId === sessionId);
    }
  }

  #releaseNotice(): void {
    const { sessionId } = this.call;
    if (sessionId !== undefined) this.state.sessions.releaseEndNotice(sessionId, this.call);
  }

  /** True if the call's conversation has not ended: a request that overlaps the end is no part of the next one. */
  #isCurrent(sessionId: string): boolean {
    return this.state.sessions.episode(sessionId) === this.call.episode;
  }
}

async function follow(answer: AnswerStream | Promise<AnswerStream>, watch: Watch): Promise<void> {
  try {
    watch.answered(await (await answer).result());
  } catch {
    watch.failed(); // OpenClaw gets the same failure from the same promise, and reports it
  }
}
