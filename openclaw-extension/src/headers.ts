import type { Headers, Model, ModelContext, StreamOptions } from "./host.js";
import { toldReactions } from "./reactions.js";
import { readCallId, runKind, turnType, type TurnType } from "./run-kind.js";
import type { Run } from "./runs.js";
import type { Settings } from "./settings.js";
import type { State } from "./state.js";

/** What is known of one model call. */
export interface Call {
  /** As its id says; `run` is what hooks told of it. */
  runId: string | undefined;
  run: Run | undefined;
  /** The conversation it belongs to. */
  sessionId: string | undefined;
  /** Which of the conversations under that id. */
  episode: number;
  turnType: TurnType | undefined;
}

const NEW = "X-Session-New";
const REACTIONS = "X-OpenClaw-Reactions";
/** Reactions are told, and the turn of none of them is known. */
const NONE_KNOWN = "-";
const LONGEST = 256;
const LONGEST_REACTIONS = 4_000;

/** `simple`: the call is a direct completion, outside of an agent run. */
export function describeCall(
  options: StreamOptions | undefined,
  simple: boolean,
  settings: Settings,
  state: State,
): Call {
  const id = readCallId(options?.requestId);
  const run = state.runs.get(id.runId ?? id.compacted);
  const compacted = id.compacted !== undefined && state.sessions.isKnown(id.compacted) ? id.compacted : undefined;
  const told = options?.sessionId ?? run?.sessionId ?? compacted;
  const sessionId = told === undefined ? undefined : state.sessions.root(told);
  return {
    runId: id.runId,
    run,
    sessionId,
    episode: sessionId === undefined ? 0 : state.sessions.episode(sessionId),
    turnType: turnType(runKind(id, run, simple), settings.mainRuns),
  };
}

/**
 * The headers of a call, those included that it had. What the user set in the configuration stands. A call that is given
 * `X-Session-New` has to say later whether the service heard it.
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
    return isFree(entry[0]) && canSend(entry[1], entry[0] === REACTIONS ? LONGEST_REACTIONS : LONGEST);
  });
  const headers = { ...options?.headers, ...Object.fromEntries(added) };
  if (!settings.sessionTracking || call.turnType === "side" || call.sessionId === undefined || !isFree(NEW)) {
    return headers;
  }
  const ended = state.sessions.tell(call.sessionId, call);
  return ended === undefined ? headers : { ...headers, [NEW]: ended };
}

/** Whether a value can stand in a header. One that cannot would fail the whole request; the body tells the same. */
export function canSend(value: string | undefined, longest = LONGEST): value is string {
  return value !== undefined && /^[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?$/.test(value) && value.length <= longest;
}

/**
 * `message=turn` for each reaction told in this request whose turn is known, or that none is: the service then does not
 * take the last answer for it.
 */
function reactedTurns(call: Call, context: ModelContext, state: State): string | undefined {
  const told = toldReactions(context.messages);
  if (told.length === 0) return undefined;
  const { run, sessionId } = call;
  const turns = sessionId === undefined ? [] : state.sessions.line(sessionId).flatMap((id) => state.turns.of(id));
  const found = new Map<string, string | undefined>();
  for (const { channel, messageId } of told) {
    if (messageId === undefined) continue;
    const here = run?.channel === undefined || run.channel.toLowerCase() === channel.toLowerCase();
    const pointer = {
      messageId,
      channel,
      // Of a channel that names no chat OpenClaw gives the channel's own name.
      account: here ? run?.accountId : undefined,
      conversation: here && run?.chatId !== run?.channel ? run?.chatId : undefined,
      sessionKey: run?.sessionKey,
    };
    const turnId = state.messages.turn(pointer, turns)?.turnId;
    const name = encodeURIComponent(messageId);
    found.set(name, !found.has(name) || found.get(name) === turnId ? turnId : undefined);
  }
  const pairs = [...found].flatMap(([name, turnId]) => (turnId === undefined ? [] : [`${name}=${turnId}`]));
  while (pairs.join(";").length > LONGEST_REACTIONS) pairs.pop();
  return pairs.length > 0 ? pairs.join(";") : NONE_KNOWN;
}
