import { callHeaders, describeCall, type Call } from "./headers.js";
import type { AnswerMessage, AnswerStream, Logger, Model, ModelResponse, StreamFn, WrapContext } from "./host.js";
import { isSessionDone } from "./session-end.js";
import { key, PROVIDER, type Settings } from "./settings.js";
import type { State } from "./state.js";

/**
 * OpenClaw's way to our provider, with headers on the requests and an eye on the answers. Whatever goes wrong here, the
 * request goes out as it would have without. `simple`: for direct completions, outside of agent runs.
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
      remember(call, simple, model, options?.apiKey, state);
      headers = callHeaders(call, model, modelContext, options, settings, state);
      watch = new Watch(call, state);
    } catch (error) {
      logger.warn(`openclaw-rl: a request goes without its headers: ${String(error)}`);
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

function remember(call: Call, simple: boolean, model: Model, apiKey: string | undefined, state: State): void {
  if (model.baseUrl !== undefined) state.shown.url = model.baseUrl;
  const shown = key(apiKey);
  if (shown !== undefined) state.shown.apiKey = shown;
  if (call.run !== undefined) state.untold = 0;
  else if (!simple && call.turnType === undefined) state.untold += 1;
}

/** What becomes of one model call. */
class Watch {
  /** Whether the service took the request; `undefined` before it is known. */
  #taken: boolean | undefined;
  #kind: string | undefined;
  #turnId: string | undefined;
  #respondedAt = Date.now();

  constructor(
    private readonly call: Call,
    private readonly state: State,
  ) {
    this.#kind = call.turnType;
  }

  /** The head of a response. More than one comes where OpenClaw tries again. */
  responded({ status, headers = {} }: Partial<ModelResponse>): void {
    this.#respondedAt = Date.now();
    this.#kind = headers["x-openclaw-rl-kind"] ?? this.call.turnType;
    this.#turnId = headers["x-openclaw-rl-turn"];
    if (status !== undefined && status >= 200 && status < 300) this.#tookIt();
    else this.failed();
  }

  /** No answer came of it. */
  failed(): void {
    this.#taken = false;
    this.#unheard();
  }

  /** The answer is complete. */
  answered(answer: AnswerMessage): void {
    if (answer.stopReason === "error" || answer.stopReason === "aborted") {
      if (this.#taken === undefined) this.failed();
      return;
    }
    if (this.#taken === undefined) this.#tookIt();
    const { sessionId, episode, runId, run } = this.call;
    if (this.#taken !== true || this.#kind !== "main" || sessionId === undefined) return;
    if (this.#isPresent(sessionId)) this.state.sessions.begun(sessionId, run?.sessionKey);
    if (this.#turnId === undefined) return;
    const turn = { turnId: this.#turnId, sessionId, episode, runId, respondedAt: this.#respondedAt };
    this.state.turns.answered(turn, answer);
  }

  #tookIt(): void {
    this.#taken = true;
    const { sessionId } = this.call;
    if (sessionId === undefined || !this.#isPresent(sessionId)) return;
    if (this.#kind === "side") {
      this.#unheard(); // the service hears of an end from main requests only
    } else if (this.state.sessions.heard(sessionId, this.call)) {
      this.state.outbox.cancel((post) => isSessionDone(post) && post.sessionId === sessionId);
    }
  }

  #unheard(): void {
    const { sessionId } = this.call;
    if (sessionId !== undefined) this.state.sessions.unheard(sessionId, this.call);
  }

  /** Whether the conversation of the call goes on: a request that overlaps its end says nothing of the next one. */
  #isPresent(sessionId: string): boolean {
    return this.state.sessions.episode(sessionId) === this.call.episode;
  }
}

async function follow(answer: AnswerStream | Promise<AnswerStream>, watch: Watch): Promise<void> {
  try {
    watch.answered(await (await answer).result());
  } catch {
    watch.failed(); // OpenClaw has the same failure from the same promise, and tells of it.
  }
}
