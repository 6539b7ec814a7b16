import type { ChatMessage } from "./host.js";

/** A reaction that OpenClaw tells the model about: to which message of which channel. */
export interface Reaction {
  channel: string;
  messageId: string;
}

const LINE = /System: \[[^\]\n]*\] (\S+) reaction added: \S+ by [^\n"]*? on msg ([^\s"\\]+)/g;
const MOST = 20;

/**
 * The reactions told at the end of a request. OpenClaw has no hook for them: it puts a line into the context of the
 * next request of that session.
 */
export function toldReactions(messages: readonly ChatMessage[]): Reaction[] {
  const found: Reaction[] = [];
  for (const message of messages.toReversed()) {
    if (message.role !== "user") break;
    for (const [, channel, messageId] of contentText(message.content).matchAll(LINE)) {
      if (channel !== undefined && messageId !== undefined) found.push({ channel, messageId });
    }
  }
  return found.slice(0, MOST);
}

function contentText(content: unknown): string {
  if (typeof content === "string") return content;
  if (!Array.isArray(content)) return "";
  return content.map((part: { text?: unknown } | null) => (typeof part?.text === "string" ? part.text : "")).join("\n");
}
