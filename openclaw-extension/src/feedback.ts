import { randomUUID } from "node:crypto";

import { address } from "./address.js";
import type { CommandContext } from "./host.js";
import { within } from "./outbox.js";
import type { Settings } from "./settings.js";
import type { State } from "./state.js";

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
  const sessionId =
    context.sessionId === undefined ? state.sessions.byKey(context.sessionKey) : state.sessions.root(context.sessionId);
  if (sessionId === undefined) return "OpenClaw does not say which session this is, so there is no answer to rate.";
  const now = Date.now();
  const quote = state.messages.takeQuote(context.sessionKey, now);
  const quoted = quote === undefined ? undefined : state.messages.turn(quote, sessionId, state.turns);
  const turn = quoted ?? state.turns.last(sessionId);
  const why = (context.args ?? "").trim().slice(0, LONGEST_TEXT);
  const posted = state.outbox.post({
    method: "POST",
    url: `${url}/rl/feedback`,
    apiKey,
    body: {
      session_id: sessionId,
      turn_id: turn?.turnId,
      score: name === "good" ? 1 : -1,
      text: why,
      source: "command",
      feedback_id: `fb_${randomUUID().replaceAll("-", "")}`,
    },
    sessionId,
  });
  const reply = await within(posted, REPLY_MILLISECONDS, { kind: "unreachable", message: "no answer yet" });
  switch (reply.kind) {
    case "done":
      return `${thumb} noted for ${quoted === undefined ? "my last answer" : "the answer you quoted"}.`;
    case "unreachable":
      return `${thumb} kept: openclaw-rl is away (${reply.message}) and will hear of it when it is back.`;
    case "refused":
      return `${thumb} not taken: ${reply.message}`;
  }
}
