import { callHeaders, describeCall, type Call } from "./headers.js";
import type { AnswerStream, Logger, Model, ModelResponse, StreamFn, WrapContext } from "./host.js";
import { isSessionDone } from "./session-end.js";
import { PROVIDER, type Settings } from "./settings.js";
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
    let watch: Watch;
    try {
      const call = describeCall(options, simple, settings, state);
      remember(call, simple, model, options?.apiKey, state);
      const headers = callHeaders(call, model, modelContext, options, settings, state);
      watch = { call, headers, turnId: undefined };
    } catch (error) {
      logger.warn(`openclaw-rl: a request goes without its headers: ${String(error)}`);
      return inner(model, modelContext, options);
    }
    const answer = inner(model, modelContext, {
      ...options,
      headers: watch.headers,
      onResponse: (response, own) => {
        watch.turnId = mainTurn(response, watch.call);
        return options?.onResponse?.(response, own);
      },
    });
    void follow(answer, watch, state);
    return answer;
  };
}

interface Watch {
  call: Call;
  headers: Record<string, string>;
  /** The id that the service gave this call, where it is a main turn. */
  turnId: string | undefined;
}

function remember(call: Call, simple: boolean, model: Model, apiKey: string | undefined, state: State): void {
  if (model.baseUrl !== undefined) state.shown.url = model.baseUrl;
  if (apiKey !== undefined) state.shown.apiKey = apiKey;
  if (call.run !== undefined) state.untold = 0;
  else if (!simple && call.turnType === undefined) state.untold += 1;
}

function mainTurn(response: ModelResponse, call: Call): string | undefined {
  if (response.status < 200 || response.status >= 300) return undefined;
  const kind = response.headers["x-openclaw-rl-kind"] ?? call.turnType;
  return kind === "main" ? response.headers["x-openclaw-rl-turn"] : undefined;
}

/** Note a main turn once its answer is complete. */
async function follow(answer: AnswerStream | Promise<AnswerStream>, watch: Watch, state: State): Promise<void> {
  try {
    const message = await (await answer).result();
    const { sessionId } = watch.call;
    if (watch.turnId === undefined || sessionId === undefined) return;
    if (message.stopReason === "error" || message.stopReason === "aborted") return;
    state.turns.answered(sessionId, watch.turnId, message, Date.now());
    state.sessions.begun(sessionId, watch.call.run?.sessionKey);
    // Sent only now, the end of the conversation before would end this one.
    state.outbox.cancel((post) => isSessionDone(post) && post.sessionId === sessionId);
  } catch {
    // OpenClaw has the same failure from the same promise, and tells of it.
  }
}
