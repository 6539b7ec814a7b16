import { Bounded } from "./bounded.js";
import type { MessageContext, MessageReceivedEvent, MessageSentEvent } from "./host.js";
import { bareWords, type Turn, type Turns } from "./turns.js";

/** A message that went out to a channel. */
interface Sent {
  channel: string;
  conversation: string | undefined;
  sessionKey: string | undefined;
  messageId: string;
  words: string;
  sentAt: number;
}

/** Which message somebody points at, and from where. What is not known is left out. */
export interface Pointer {
  messageId: string;
  channel: string | undefined;
  conversation: string | undefined;
  sessionKey: string | undefined;
}

interface Quote {
  pointer: Pointer;
  at: number;
}

const MOST_MESSAGES = 500;
const QUOTE_MILLISECONDS = 10_000;
const FEEDBACK_COMMAND = /^\s*\/(?:good|bad)\b/i;

/** Messages of channels, so that a reaction or a quoting reply finds the turn that it means. */
export class Messages {
  readonly #sent = new Bounded<string, Sent>(MOST_MESSAGES);
  readonly #quotes = new Bounded<string, Quote>(MOST_MESSAGES);

  sent(event: MessageSentEvent, context: MessageContext, now: number): void {
    const { messageId } = event;
    if (!event.success || messageId === undefined) return;
    const message: Sent = {
      channel: context.channelId,
      conversation: context.conversationId,
      sessionKey: event.sessionKey ?? context.sessionKey,
      messageId,
      words: bareWords(event.content),
      sentAt: now,
    };
    this.#sent.set([message.channel, message.conversation, messageId].join("\n"), message);
  }

  /** A feedback command that quotes a message means that message; the command itself is not told so. */
  received(event: MessageReceivedEvent, context: MessageContext, now: number): void {
    const sessionKey = event.sessionKey ?? context.sessionKey;
    if (sessionKey === undefined || !FEEDBACK_COMMAND.test(event.content)) return;
    if (event.replyToId === undefined) {
      this.#quotes.delete(sessionKey);
      return;
    }
    const { channelId: channel, conversationId: conversation } = context;
    this.#quotes.set(sessionKey, {
      pointer: { messageId: event.replyToId, channel, conversation, sessionKey },
      at: now,
    });
  }

  /** What the command that was just received in a session quotes, once. */
  takeQuote(sessionKey: string | undefined, now: number): Pointer | undefined {
    if (sessionKey === undefined) return undefined;
    const quote = this.#quotes.get(sessionKey);
    this.#quotes.delete(sessionKey);
    return quote !== undefined && now - quote.at < QUOTE_MILLISECONDS ? quote.pointer : undefined;
  }

  /**
   * The turn of the conversation `sessionId` that a message was sent for: the last whose words the message has, or,
   * for a message without words, the one that was answered last before it. Where two messages could be meant, or the
   * message is not from here, there is none.
   */
  turn(pointer: Pointer, sessionId: string, turns: Turns): Turn | undefined {
    const meant = this.#sent.latest().filter((message) => matches(message, pointer));
    const [message] = meant;
    if (message === undefined || meant.length > 1) return undefined;
    if (message.words === "") return turns.last(sessionId, message.sentAt);
    return turns.of(sessionId).find((turn) => turn.words !== "" && overlap(turn.words, message.words));
  }
}

function matches(message: Sent, pointer: Pointer): boolean {
  return (
    message.messageId === pointer.messageId &&
    agrees(message.channel.toLowerCase(), pointer.channel?.toLowerCase()) &&
    sameConversation(message.conversation, pointer.conversation) &&
    agrees(message.sessionKey, pointer.sessionKey)
  );
}

function agrees(one: string | undefined, other: string | undefined): boolean {
  return one === undefined || other === undefined || one === other;
}

/** Some places write the channel before a conversation's id (`telegram:42`), others the id alone. */
function sameConversation(one: string | undefined, other: string | undefined): boolean {
  return agrees(one?.replace(/^.*:/, ""), other?.replace(/^.*:/, ""));
}

/** A channel may send an answer in pieces, or put something around it. */
function overlap(answer: string, message: string): boolean {
  return answer.includes(message) || message.includes(answer);
}
