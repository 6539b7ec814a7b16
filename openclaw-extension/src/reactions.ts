import type { ChatMessage } from "./host.js";

/** A reaction that OpenClaw tells the model about: to which message of which channel, where the channel names it. */
export interface Reaction {
  channel: string;
  messageId: string | undefined;
}

const MARK = " reaction added: ";
/** Every length is bounded: whoever pastes a megabyte of something alike holds up no request. */
const LINE = /System: \[[^\][]{0,80}\] (\S{1,60}) reaction added: (.{1,600})/;
/** What a channel writes last names the message; before it stand names that people chose. */
const MESSAGE = /^.* msg ([^\s"\\]{1,200})/;
const MOST = 50;

/**
 * The reactions told at the end of a request. OpenClaw has no hook for them: it puts a line into the context of the
 * next request of that session, where several lines are one JSON string.
 */
export function toldReactions(messages: readonly ChatMessage[]): Reaction[] {
  const found: Reaction[] = [];
  for (const message of messages.toReversed()) {
    if (message.role !== "user") break;
    for (const line of contentText(message.content).split(/\\n|\n/)) {
      if (!line.includes(MARK)) continue;
      const [, channel, rest] = LINE.exec(line) ?? [];
      if (channel === undefined || rest === undefined) continue;
      found.push({ channel, messageId: MESSAGE.exec(rest)?.[1] });
      if (found.length === MOST) return found;
    }
  }
  return found;
}

function contentText(content: unknown): string {
  if (typeof content === "string") return content;
  if (!Array.isArray(content)) return "";
  return content.map((part: { text?: unknown } | null) => (typeof part?.text === "string" ? part.text : "")).join("\n");
}
