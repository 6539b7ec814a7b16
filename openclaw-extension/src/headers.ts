import type { Headers, Model, ModelContext, StreamOptions } from "./host.js";
import { readReactions } from "./reactions.js";
import { readCallId, runKind, turnType, type TurnType } from "./run-kind.js";
import type { Run } from "./runs.js";
import type { Settings } from "./settings.js";
import type { State } from "./state.js";

/** One model call, as far as its id and the hooks describe it. */
export interface Call {
  /** From the call's id; `run` comes from the hooks. */
  runId: string | undefined;
  run: Run | undefined;
  /** The conversation, by its first id. */
  sessionId: string | undefined;
  /** Number of earlier conversations under the same id. */
  episode: number;
  turnType: TurnType | undefined;
}

const NEW = "X-Session-New";
const REACTIONS = "X-OpenClaw-Reactions";
/** Header value if the request reports reactions and the turn of none is known. */
const NONE_KNOWN = "-";
const MAX_VALUE = 256;
const MAX_REACTIONS = 4_000;

/** `simple`: a direct completion outside an agent run. */
export function describeCall(
  options: StreamOptions | undefined,
  simple: boolean,
  settings: Settings,
  state: State,
): Call {
  const id = readCallId(options?.requestId);
  const run = state.runs.get(id.runId ?? id.compacted);
  const compacted = id.compacted !== undefined && state.sessions.isKnown(id.compacted) ? id.compacted : undefined;
  const currentId = options?.sessionId ?? run?.sessionId ?? compacted;
  const sessionId = currentId === undefined ? undefined : state.sessions.root(currentId);
  return {
    runId: id.runId,
    run,
    sessionId,
    episode: sessionId === undefined ? 0 : state.sessions.episode(sessionId),
    turnType: turnType(runKind(id, run, simple), settings.mainRuns),
  };
}

/**
 * The headers of a call: the caller's own and ours. Ours never replace a header that the user configured. A call that
 * gets `X-Session-New` must later accept or release that notice (see `Sessions`).
 */
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
    [REACTIONS]: reactedTurns(call, context, state),
  };
  if (settings.sessionTracking) {
    Object.assign(ours, {
      "X-Session-Id": call.sessionId,
      "X-Run-Id": call.run?.runId,
      "X-Agent-Id": call.run?.agentId,
      "X-OpenClaw-Session-Key": call.run?.sessionKey,
      "X-OpenClaw-Trigger": call.run?.trigger,
      "X-OpenClaw-Input": call.run?.input,
    });
  }
  const given = { ...model.headers, ...options?.headers };
  const taken = new Set(Object.keys(given).map((name) => name.toLowerCase()));
  const isFree = (name: string): boolean => !taken.has(name.toLowerCase());
  const added = Object.entries(ours).filter((entry): entry is [string, string] => {
    return isFree(entry[0]) && canSend(entry[1], entry[0] === REACTIONS ? MAX_REACTIONS : MAX_VALUE);
  });
  const headers = { ...options?.headers, ...Object.fromEntries(added) };
  if (!settings.sessionTracking || call.turnType === "side" || call.sessionId === undefined || !isFree(NEW)) {
    return headers;
  }
  const reason = state.sessions.claimEndNotice(call.sessionId, call);
  return reason === undefined ? headers : { ...headers, [NEW]: reason };
}

/** True if a value is valid in a header. An invalid one would fail the whole request; the body carries it too. */
export function canSend(value: string | undefined, maxLength = MAX_VALUE): value is string {
  return value !== undefined && /^[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?$/.test(value) && value.length <= maxLength;
}

/**
 * `message=turn` for each reaction in this request whose turn is known. If none is known the value says so, because the
 * service would otherwise assume the last answer.
 */
function reactedTurns(call: Call, context: ModelContext, state: State): string | undefined {
  const reactions = readReactions(context.messages);
  if (reactions.length === 0) return undefined;
  const { run, sessionId } = call;
  const turns = sessionId === undefined ? [] : state.sessions.line(sessionId).flatMap((id) => state.turns.of(id));
  const found = new Map<string, string | undefined>();
  for (const { channel, messageId } of reactions) {
    if (messageId === undefined) continue;
    const here = run?.channel === undefined || run.channel.toLowerCase() === channel.toLowerCase();
    const pointer = {
      messageId,
      channel,
      // If a channel names no chat, OpenClaw repeats the channel's name here.
      account: here ? run?.accountId : undefined,
      conversation: here && run?.chatId !== run?.channel ? run?.chatId : undefined,
      sessionKey: run?.sessionKey,
    };
    const turnId = state.messages.turn(pointer, turns)?.turnId;
    const name = encodeURIComponent(messageId);
    found.set(name, !found.has(name) || found.get(name) === turnId ? turnId : undefined);
  }
  const pairs = [...found].flatMap(([name, turnId]) => (turnId === undefined ? [] : [`${name}=${turnId}`]));
  while (pairs.join(";").length > MAX_REACTIONS) pairs.pop();
  return pairs.length > 0 ? pairs.join(";") : NONE_KNOWN;
}
