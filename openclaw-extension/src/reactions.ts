import type { ChatMessage } from "./host.js";

/** A reaction that OpenClaw reports to the model; `messageId` is missing if the channel does not name the message. */
export interface Reaction {
  channel: string;
  messageId: string | undefined;
}

const MARK = " reaction added: ";
/** Every length is bounded, so that a pasted megabyte of similar text does not delay the request. */
const LINE = /System: \[[^\][]{0,80}\] (\S{1,60}) reaction added: (.{1,600})/;
/** The last `msg` names the message; names that people chose may precede it. */
const MESSAGE = /^.* msg ([^\s"\\]{1,200})/;
const MAX_REACTIONS = 50;

/**
 * Read the reactions at the end of a request. OpenClaw has no hook for them: it adds a line to the context of the next
 * request of that session, several lines as one JSON string.
 */
export function readReactions(messages: readonly ChatMessage[]): Reaction[] {
  const found: Reaction[] = [];
  for (const message of messages.toReversed()) {
    if (message.role !== "user") break;
    for (const line of contentText(message.content).split(/\\n|\n/)) {
      if (!line.includes(MARK)) continue;
      const [, channel, rest] = LINE.exec(line) ?? [];
      if (channel === undefined || rest === undefined) continue;
      found.push({ channel, messageId: MESSAGE.exec(rest)?.[1] });
      if (found.length === MAX_REACTIONS) return found;
    }
  }
  return found;
}

function contentText(content: unknown): string {
  if (typeof content === "string") return content;
  if (!Array.isArray(content)) return "";
  return content.map((part: { text?: unknown } | null) => (typeof part?.text === "string" ? part.text : "")).join("\n");
}
