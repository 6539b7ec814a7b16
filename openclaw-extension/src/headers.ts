import type { Headers, Model, ModelContext, StreamOptions } from "./host.js";
import { toldReactions } from "./reactions.js";
import { readCallId, runKind, turnType, type TurnType } from "./run-kind.js";
import type { Run } from "./runs.js";
import type { Settings } from "./settings.js";
import type { State } from "./state.js";

/** What is known of one model call. */
export interface Call {
  run: Run | undefined;
  /** The conversation it belongs to. */
  sessionId: string | undefined;
  turnType: TurnType | undefined;
}

const LONGEST = 256;

/** `simple`: the call is a direct completion, outside of an agent run. */
export function describeCall(
  options: StreamOptions | undefined,
  simple: boolean,
  settings: Settings,
  state: State,
): Call {
  const id = readCallId(options?.requestId);
  const run = state.runs.get(id.runId);
  const sessionId = options?.sessionId ?? run?.sessionId ?? id.compactedSession;
  return {
    run,
    sessionId: sessionId === undefined ? undefined : state.sessions.root(sessionId),
    turnType: turnType(runKind(id, run, simple), settings.mainRuns),
  };
}

/** The headers of a call, those included that it had. What the user set in the configuration stands. */
export function callHeaders(
  call: Call,
  model: Model,
  context: ModelContext,
  options: StreamOptions | undefined,
  settings: Settings,
  state: State,
): Headers {
  const ours: Record<string, string | undefined> = {
    "X-Turn-Type": call.turnType,
    "X-OpenClaw-Reactions": reactedTurns(call, context, state),
  };
  if (settings.sessionTracking) {
    Object.assign(ours, {
      "X-Session-Id": call.sessionId,
      "X-Session-New": call.turnType === "main" ? state.sessions.justEnded(call.sessionId) : undefined,
      "X-Run-Id": call.run?.runId,
      "X-Agent-Id": call.run?.agentId,
      "X-OpenClaw-Session-Key": call.run?.sessionKey,
      "X-OpenClaw-Trigger": call.run?.trigger,
      "X-OpenClaw-Input": call.run?.input,
    });
  }
  const given = { ...model.headers, ...options?.headers };
  const taken = new Set(Object.keys(given).map((name) => name.toLowerCase()));
  const added = Object.entries(ours).filter(
    (entry): entry is [string, string] => !taken.has(entry[0].toLowerCase()) && canSend(entry[1]),
  );
  return { ...options?.headers, ...Object.fromEntries(added) };
}

/** Whether a value can stand in a header. One that cannot would fail the whole request; the body tells the same. */
export function canSend(value: string | undefined): value is string {
  return value !== undefined && /^[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?$/.test(value) && value.length <= LONGEST;
}

/** `message=turn` for each reaction told in this request whose turn is known. */
function reactedTurns(call: Call, context: ModelContext, state: State): string | undefined {
  const { run, sessionId } = call;
  if (sessionId === undefined) return undefined;
  const found = new Map<string, string>();
  for (const { channel, messageId } of toldReactions(context.messages)) {
    const pointer = { messageId, channel, conversation: run?.chatId, sessionKey: run?.sessionKey };
    const turn = state.messages.turn(pointer, sessionId, state.turns);
    if (turn !== undefined) found.set(encodeURIComponent(messageId), turn.turnId);
  }
  const pairs = [...found].map(([messageId, turnId]) => `${messageId}=${turnId}`);
  while (pairs.join(";").length > LONGEST) pairs.pop();
  return pairs.length > 0 ? pairs.join(";") : undefined;
}
