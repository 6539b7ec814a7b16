import { Bounded } from "./bounded.js";
import type { MessageContext, MessageSentEvent } from "./host.js";
import { bareWords, type Turn } from "./turns.js";

/** A message that went out to a channel. */
interface Sent extends Place {
  messageId: string;
  channel: string;
  runId: string | undefined;
  words: string;
  sentAt: number;
}

/** Where messages are. What is not known is left out. */
interface Place {
  channel: string | undefined;
  account: string | undefined;
  conversation: string | undefined;
  sessionKey: string | undefined;
}

/** Which message somebody points at, and from where. */
export interface Pointer extends Place {
  messageId: string;
}

const MOST_MESSAGES = 500;
/** So many letters tell which answer they are a part of; a word or two are in any. */
const LEAST_PART = 16;

/** Messages that went out to channels, so that a reaction or a quote finds the turn that it means. */
export class Messages {
  readonly #sent = new Bounded<string, Sent>(MOST_MESSAGES);

  sent(event: MessageSentEvent, context: MessageContext, now: number): void {
    const { messageId } = event;
    if (!event.success || messageId === undefined) return;
    const message: Sent = {
      channel: context.channelId,
      account: context.accountId,
      conversation: context.conversationId,
      sessionKey: event.sessionKey ?? context.sessionKey,
      messageId,
      runId: event.runId ?? context.runId,
      words: bareWords(event.content),
      sentAt: now,
    };
    this.#sent.set([message.channel, message.account, message.conversation, messageId].join("\n"), message);
  }

  /**
   * Which of these turns a message was sent for: the one with exactly its words, else the one that it is a part of or
   * holds. None that began to answer after the message was sent: blocks of an answer are sent before it is complete,
   * but not before it begins. Where several fit, or the message is not from here, there is none.
   */
  turn(pointer: Pointer, turns: readonly Turn[]): Turn | undefined {
    const meant = this.#sent.latest().filter((message) => isMeant(message, pointer));
    const [message] = meant;
    if (message === undefined || meant.length > 1 || message.words === "") return undefined;
    const earlier = turns.filter((turn) => couldBe(turn, message));
    if (earlier.some((turn) => turn.words === message.words)) return this.#sameWords(message, turns);
    return only(earlier.filter((turn) => isPart(message.words, turn.words) || fills(turn.words, message.words)));
  }

  /**
   * The turn with exactly a message's words. Short answers repeat: one that an earlier message was sent for is taken, so
   * that of two alike, each sent before the next was begun, each has its own.
   */
  #sameWords(message: Sent, turns: readonly Turn[]): Turn | undefined {
    const taken = new Set<Turn>();
    for (const [, other] of this.#sent.entries()) {
      if (other.words !== message.words || !inSamePlace(other, message)) continue;
      const fits = only(turns.filter((turn) => turn.words === other.words && couldBe(turn, other) && !taken.has(turn)));
      if (other === message) return fits;
      if (fits !== undefined) taken.add(fits);
    }
    return undefined;
  }
}

function only<Value>(values: readonly Value[]): Value | undefined {
  return values.length === 1 ? values[0] : undefined;
}

function couldBe(turn: Turn, message: Sent): boolean {
  return turn.words !== "" && turn.respondedAt <= message.sentAt && agrees(turn.runId, message.runId);
}

/** A channel may get an answer in parts. */
function isPart(message: string, answer: string): boolean {
  return message.length >= LEAST_PART && answer.includes(message);
}

/** A channel may put something around an answer, but not much. */
function fills(answer: string, message: string): boolean {
  return answer.length >= LEAST_PART && answer.length * 2 >= message.length && message.includes(answer);
}

function isMeant(message: Sent, pointer: Pointer): boolean {
  return message.messageId === pointer.messageId && inSamePlace(message, pointer);
}

function inSamePlace(one: Place, other: Place): boolean {
  return (
    agrees(one.channel?.toLowerCase(), other.channel?.toLowerCase()) &&
    agrees(one.account, other.account) &&
    agrees(bareConversation(one.conversation), bareConversation(other.conversation)) &&
    agrees(one.sessionKey, other.sessionKey)
  );
}

function agrees(one: string | undefined, other: string | undefined): boolean {
  return one === undefined || other === undefined || one === other;
}

/** Some places write `telegram:group:-100:topic:5` for a conversation, others the chat's id alone. */
function bareConversation(written: string | undefined): string | undefined {
  return written?.replace(/^(?:[a-z][\w-]*:)+/i, "").replace(/:(?:topic|thread):[^:]*$/i, "");
}
