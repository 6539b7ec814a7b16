import { address } from "./address.js";
import { canSend } from "./headers.js";
import type { GatewayStopEvent, SessionEndEvent } from "./host.js";
import { within, type Post } from "./outbox.js";
import type { Settings } from "./settings.js";
import type { State } from "./state.js";

const ROUTE = "/rl/session-done";
/** OpenClaw gives all plug-ins together two seconds when it ends. */
const SHUTDOWN_MILLISECONDS = 1_500;
/** What OpenClaw calls a shutdown; it has other words for a restart and for a new copy of a plug-in. */
const SHUTDOWN = "gateway stopping";

export function isSessionDone(post: Post): boolean {
  return post.url.endsWith(ROUTE);
}

/**
 * Tell the service that a conversation is over. `new`, `reset`, `idle`, `daily`, `deleted`, `shutdown` and what OpenClaw
 * has no name for are ends. `compaction` is none: the conversation goes on, perhaps under another id. `restart` is none
 * either: the gateway is back in a moment, and people go on where they were.
 *
 * Only at `shutdown` does the returned promise wait for the post, as the program ends after it.
 */
export function sessionEnded(
  event: SessionEndEvent,
  sessionKey: string | undefined,
  settings: Settings,
  state: State,
): Promise<void> | undefined {
  const { nextSessionId } = event;
  const reason = canSend(event.reason) ? event.reason : "unknown";
  if (reason === "compaction") {
    if (nextSessionId !== undefined) state.sessions.continued(event.sessionId, nextSessionId);
    return undefined;
  }
  if (reason === "restart" || !settings.sessionTracking) return undefined;
  const sessionId = state.sessions.root(event.sessionId);
  if (reason === "shutdown" && state.sessions.justEnded(sessionId) === reason) return undefined;
  state.sessions.ended(sessionId, reason, nextSessionId);
  const { url, apiKey } = address(settings, state);
  if (url === undefined) return undefined; // the next request, which shows the address, tells of it
  const posted = state.outbox.post({
    method: "POST",
    url: url + ROUTE,
    apiKey,
    headers: { "X-Session-Done": "true", ...(canSend(sessionId) ? { "X-Session-Id": sessionId } : {}) },
    body: {
      session_id: sessionId,
      session_key: sessionKey,
      reason,
      next_session_id: nextSessionId,
    },
    sessionId,
  });
  if (reason !== "shutdown") return undefined;
  return within(
    posted.then(() => undefined),
    SHUTDOWN_MILLISECONDS,
    undefined,
  );
}

/**
 * OpenClaw tells the ends of a shutdown only for conversations that it saw begin in a channel since it started; those of
 * its dashboard and older ones end here. Then the program waits, a moment, for what was not sent yet.
 */
export function gatewayStopped(event: GatewayStopEvent, settings: Settings, state: State): Promise<void> {
  if (event.reason === SHUTDOWN) {
    for (const [sessionId, sessionKey] of state.sessions.open()) {
      void sessionEnded({ sessionId, reason: "shutdown" }, sessionKey, settings, state);
    }
  }
  return within(state.outbox.flush(), SHUTDOWN_MILLISECONDS, undefined);
}
