import { address } from "./address.js";
import { canSend } from "./headers.js";
import type { GatewayStopEvent, SessionEndEvent } from "./host.js";
import { withTimeout, type Post } from "./outbox.js";
import type { Settings } from "./settings.js";
import type { State } from "./state.js";

const ROUTE = "/rl/session-done";
/** At shutdown, OpenClaw gives all plug-ins together two seconds. */
const SHUTDOWN_MILLISECONDS = 1_500;
/** OpenClaw's reason for a shutdown; restarts and replaced plug-ins have others. */
const SHUTDOWN = "gateway stopping";

export function isSessionDone(post: Post): boolean {
  return post.url.endsWith(ROUTE);
}

/**
 * Report the end of a conversation to the service. `new`, `reset`, `idle`, `daily`, `deleted`, `shutdown` and unknown
 * reasons end it. `compaction` does not: the conversation continues, perhaps under another id. `restart` does not
 * either: the gateway is back in a moment and its conversations continue.
 *
 * The returned promise waits for the post only at `shutdown`, because the process ends after it.
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
  if (url === undefined) return undefined; // the next request shows the address and carries the notice
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
  return withTimeout(
    posted.then(() => undefined),
    SHUTDOWN_MILLISECONDS,
    undefined,
  );
}

/**
 * At shutdown OpenClaw reports the end only of conversations that began in a channel since it started; this ends those
 * of its dashboard and older ones. Then wait briefly for posts that were not sent yet.
 */
export function gatewayStopped(event: GatewayStopEvent, settings: Settings, state: State): Promise<void> {
  if (event.reason === SHUTDOWN) {
    for (const [sessionId, sessionKey] of state.sessions.open()) {
      void sessionEnded({ sessionId, reason: "shutdown" }, sessionKey, settings, state);
    }
  }
  return withTimeout(state.outbox.flush(), SHUTDOWN_MILLISECONDS, undefined);
}
