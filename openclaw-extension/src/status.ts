import { address } from "./address.js";
import { ask, field, type Reply } from "./service.js";
import type { Settings } from "./settings.js";
import type { State } from "./state.js";

const TIMEOUT = 2_000;
/** This many consecutive calls of unannounced runs mean that a permission is missing. */
const MANY_UNANNOUNCED = 3;

/** The answer to `/rl`. */
export async function statusText(settings: Settings, state: State): Promise<string> {
  const { url, apiKey } = address(settings, state);
  if (url === undefined) return "openclaw-rl has no service address: set url in its configuration.";
  const reply = await ask({ method: "GET", url: `${url}/rl/status`, apiKey }, TIMEOUT);
  return [...describeReply(reply, url), ...warnings(state)].join("\n");
}

function describeReply(reply: Reply, url: string): string[] {
  switch (reply.kind) {
    case "done":
      return describeStatus(reply.body, Date.now() / 1000);
    case "refused":
      return [`openclaw-rl at ${url} refused: ${reply.message}`];
    case "unreachable":
      return [`openclaw-rl at ${url} does not answer: ${reply.message}`];
  }
}

/** The lines for the service's status. `now` in seconds since 1970. */
export function describeStatus(status: unknown, now: number): string[] {
  const backlog = field(status, "backlog");
  const change = field(status, "last_change");
  const lines = [
    `Version ${count(field(field(status, "version"), "live"))} is live; training is ${word(field(status, "training"))}.`,
    `${interactions(status, change)}; ${count(field(backlog, "unjudged"))} waiting for the judge, ` +
      `${count(field(backlog, "ready"))} ready for training.`,
  ];
  const time = field(change, "time");
  if (typeof time === "number") {
    lines.push(`Last change: version ${count(field(change, "version"))}, ${ago(now - time)}.`);
  }
  const untrained = field(status, "why_untrained");
  if (typeof untrained === "string" && untrained !== "") lines.push(`Not trained yet: ${untrained}.`);
  return lines;
}

function interactions(status: unknown, change: unknown): string {
  const since = field(change, "interactions");
  return typeof since === "number"
    ? `${plural(since, "interaction")} since the last change`
    : `${plural(Number(field(status, "interactions") ?? 0), "interaction")} so far`;
}

function warnings(state: State): string[] {
  const notes: string[] = [];
  if (state.outbox.size > 0) notes.push(`${plural(state.outbox.size, "message")} to the service waiting in OpenClaw.`);
  if (state.unannounced >= MANY_UNANNOUNCED) {
    notes.push(
      "OpenClaw does not report runs to this plug-in: set plugins.entries.openclaw-rl.hooks.allowConversationAccess " +
        "to true.",
    );
  }
  return notes;
}

function count(value: unknown): string {
  return typeof value === "number" ? String(value) : "?";
}

function word(value: unknown): string {
  return typeof value === "string" ? value : "unknown";
}

function plural(number: number, noun: string): string {
  return `${number} ${noun}${number === 1 ? "" : "s"}`;
}

function ago(seconds: number): string {
  if (seconds < 60) return "just now";
  if (seconds < 3_600) return `${plural(Math.floor(seconds / 60), "minute")} ago`;
  if (seconds < 86_400) return `${plural(Math.floor(seconds / 3_600), "hour")} ago`;
  return `${plural(Math.floor(seconds / 86_400), "day")} ago`;
}
