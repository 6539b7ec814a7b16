import { randomUUID } from "node:crypto";

import { address } from "./address.js";
import type { CommandContext } from "./host.js";
import { withTimeout } from "./outbox.js";
import type { Settings } from "./settings.js";
import type { State } from "./state.js";
import type { Turn } from "./turns.js";

/** A chat command waits no longer than this for the service. */
const REPLY_MILLISECONDS = 1_500;
const MAX_TEXT = 4_000;

/** Run `/good` or `/bad`; returns the answer for the chat. */
export async function giveFeedback(
  name: "good" | "bad",
  context: CommandContext,
  settings: Settings,
  state: State,
): Promise<string> {
  const thumb = name === "good" ? "👍" : "👎";
  const { url, apiKey } = address(settings, state);
  if (url === undefined) return "openclaw-rl has no service address: set url in its configuration.";
  const lastRun = state.sessions.byKey(context.sessionKey);
  const conversations = candidateConversations(context, lastRun, state);
  const sessionId = lastRun ?? conversations[0];
  if (sessionId === undefined) return "There is no answer to rate: OpenClaw did not name a session.";
  const comment = (context.args ?? "").trim();
  const quote = state.quotes.take(context.sessionKey, name, comment, Date.now());
  let turn: Turn | undefined;
  if (quote === undefined) {
    turn = lastTurn(conversations, state);
  } else {
    const turns = conversations.flatMap((id) => state.turns.of(id));
    turn = state.messages.turn(quote, turns);
    if (turn === undefined) {
      return `${thumb} not recorded: I do not know which answer you quoted. Send /${name} without a quote to rate my last one.`;
    }
  }
  const posted = state.outbox.post({
    method: "POST",
    url: `${url}/rl/feedback`,
    apiKey,
    body: {
      session_id: turn?.sessionId ?? sessionId,
      turn_id: turn?.turnId,
      score: name === "good" ? 1 : -1,
      text: comment.slice(0, MAX_TEXT),
      source: "command",
      feedback_id: `fb_${randomUUID().replaceAll("-", "")}`,
    },
    sessionId: turn?.sessionId ?? sessionId,
  });
  const reply = await withTimeout(posted, REPLY_MILLISECONDS, { kind: "unreachable", message: "no answer yet" });
  switch (reply.kind) {
    case "done":
      return `${thumb} recorded for ${quote === undefined ? "my last answer" : "the answer you quoted"}.`;
    case "unreachable":
      return `${thumb} saved: openclaw-rl does not answer (${reply.message}). It will be sent when the service is back.`;
    case "refused":
      return `${thumb} not recorded: ${reply.message}`;
  }
}

/**
 * The conversation of a command, its predecessors, and the conversation of the last run under the same session key: if
 * the chat's conversation is gone, OpenClaw gives the command an id that was never used.
 */
function candidateConversations(context: CommandContext, lastRun: string | undefined, state: State): string[] {
  const ids = [context.sessionId, lastRun].flatMap((id) => (id === undefined ? [] : state.sessions.line(id)));
  return [...new Set(ids)];
}

/** The last turn of the current episode, or of the previous one if the current has none. */
function lastTurn(conversations: readonly string[], state: State): Turn | undefined {
  for (const id of conversations) {
    const turn = state.turns.last(id, state.sessions.episode(id));
    if (turn !== undefined) return turn;
  }
  return undefined;
}
