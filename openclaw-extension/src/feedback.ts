import { randomUUID } from "node:crypto";

import { address } from "./address.js";
import type { CommandContext } from "./host.js";
import { within } from "./outbox.js";
import type { Settings } from "./settings.js";
import type { State } from "./state.js";
import type { Turn } from "./turns.js";

const REPLY_MILLISECONDS = 1_500;
const LONGEST_TEXT = 4_000;

/** What a `/good` or `/bad` does; gives the answer for the chat. */
export async function giveFeedback(
  name: "good" | "bad",
  context: CommandContext,
  settings: Settings,
  state: State,
): Promise<string> {
  const thumb = name === "good" ? "👍" : "👎";
  const { url, apiKey } = address(settings, state);
  if (url === undefined) return "openclaw-rl does not know the address of its service: set url in its configuration.";
  const lastRun = state.sessions.byKey(context.sessionKey);
  const conversations = conversationsOf(context, lastRun, state);
  const sessionId = lastRun ?? conversations[0];
  if (sessionId === undefined) return "OpenClaw does not say which session this is, so there is no answer to rate.";
  const said = (context.args ?? "").trim();
  const quote = state.quotes.take(context.sessionKey, name, said, Date.now());
  let turn: Turn | undefined;
  if (quote === undefined) {
    turn = lastTurn(conversations, state);
  } else {
    const turns = conversations.flatMap((id) => state.turns.of(id));
    turn = state.messages.turn(quote, turns);
    if (turn === undefined) {
      return `${thumb} not taken: which answer you quote is not known here. Without a quote /${name} is about my last.`;
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
      text: said.slice(0, LONGEST_TEXT),
      source: "command",
      feedback_id: `fb_${randomUUID().replaceAll("-", "")}`,
    },
    sessionId: turn?.sessionId ?? sessionId,
  });
  const reply = await within(posted, REPLY_MILLISECONDS, { kind: "unreachable", message: "no answer yet" });
  switch (reply.kind) {
    case "done":
      return `${thumb} noted for ${quote === undefined ? "my last answer" : "the answer you quoted"}.`;
    case "unreachable":
      return `${thumb} kept: openclaw-rl is away (${reply.message}) and will hear of it when it is back.`;
    case "refused":
      return `${thumb} not taken: ${reply.message}`;
  }
}

/**
 * The conversation that a command is about, those before it, and the one that the last run of its key was in: in a chat
 * whose conversation is gone OpenClaw gives the command an id that was never used.
 */
function conversationsOf(context: CommandContext, lastRun: string | undefined, state: State): string[] {
  const ids = [context.sessionId, lastRun].flatMap((id) => (id === undefined ? [] : state.sessions.line(id)));
  return [...new Set(ids)];
}

/** The last turn of the present episode; where it has none, of the one that ended before it. */
function lastTurn(conversations: readonly string[], state: State): Turn | undefined {
  for (const id of conversations) {
    const turn = state.turns.last(id, state.sessions.episode(id));
    if (turn !== undefined) return turn;
  }
  return undefined;
}
