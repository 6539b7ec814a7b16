import { Bounded } from "./bounded.js";
import type { MessageContext, MessageSentEvent } from "./host.js";
import { bareWords, type Turn } from "./turns.js";

/** A message sent to a channel. */
interface Sent extends Place {
  messageId: string;
  channel: string;
  runId: string | undefined;
  words: string;
  sentAt: number;
}

/** Location of a message; unknown parts are `undefined`. */
interface Place {
  channel: string | undefined;
  account: string | undefined;
  conversation: string | undefined;
  sessionKey: string | undefined;
}

/** A reference to a message, by a reaction or a quote. */
export interface Pointer extends Place {
  messageId: string;
}

const MAX_MESSAGES = 500;
/** Minimum letters of a partial match: one or two words occur in any answer. */
const MIN_PART = 16;

/** Messages sent to channels; finds the turn that a reaction or a quote refers to. */
export class Messages {
  readonly #sent = new Bounded<string, Sent>(MAX_MESSAGES);

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
   * Find the turn whose answer a message shows: a turn with exactly its words, else one whose answer contains the message
   * or is contained in it. Turns that began to answer after the message was sent are excluded: OpenClaw may send blocks
   * of an answer before it is complete, but not before it begins. Returns `undefined` for an unknown message or several
   * matching turns.
   */
  turn(pointer: Pointer, turns: readonly Turn[]): Turn | undefined {
    const found = this.#sent.latest().filter((message) => matches(message, pointer));
    const [message] = found;
    if (message === undefined || found.length > 1 || message.words === "") return undefined;
    const candidates = turns.filter((turn) => couldBe(turn, message));
    if (candidates.some((turn) => turn.words === message.words)) return this.#sameWords(message, turns);
    return only(candidates.filter((turn) => isPart(message.words, turn.words) || wraps(message.words, turn.words)));
  }

  /**
   * Find the turn with exactly a message's words. Short answers repeat, so a turn matched by an earlier message is
   * excluded: two equal answers, each sent before the next began, match one message each.
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

/** True for one of several messages into which a channel split an answer. */
function isPart(message: string, answer: string): boolean {
  return message.length >= MIN_PART && answer.includes(message);
}

/** True for an answer to which a channel added something, at most as much text as the answer itself. */
function wraps(message: string, answer: string): boolean {
  return answer.length >= MIN_PART && answer.length * 2 >= message.length && message.includes(answer);
}

function matches(message: Sent, pointer: Pointer): boolean {
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

/** OpenClaw writes a conversation as `telegram:group:-100:topic:5` in some hooks, as the bare chat id in others. */
function bareConversation(written: string | undefined): string | undefined {
  return written?.replace(/^(?:[a-z][\w-]*:)+/i, "").replace(/:(?:topic|thread):[^:]*$/i, "");
}
