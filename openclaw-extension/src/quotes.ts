import { Bounded } from "./bounded.js";
import type { MessageContext, MessageReceivedEvent } from "./host.js";
import type { Pointer } from "./messages.js";
import { bareWords } from "./turns.js";

/** A feedback command that came in and has not run yet. */
interface PendingCommand {
  command: string;
  words: string;
  /** The quoted message. */
  pointer: Pointer | undefined;
  receivedAt: number;
}

const MAX_SESSIONS = 200;
const MAX_PENDING = 20;
/** OpenClaw runs a command at once, even during an agent run; one that did not run by then never will. */
const MAX_WAIT = 30_000;
const COMMAND = /^\s*(?:[<@]\S{1,100}\s+)?\/(good|bad)(?:@\S{1,100})?(?:\s+(.*))?$/is;

/** The messages that feedback commands quote: OpenClaw reports a quote to the message hook, not to the command. */
export class Quotes {
  readonly #pending = new Bounded<string, PendingCommand[]>(MAX_SESSIONS);

  received(event: MessageReceivedEvent, context: MessageContext, now: number): void {
    const sessionKey = event.sessionKey ?? context.sessionKey;
    const [, command, rest] = COMMAND.exec(event.content) ?? [];
    if (sessionKey === undefined || command === undefined) return;
    const { channelId: channel, accountId: account, conversationId: conversation } = context;
    const messageId = event.replyToId;
    const pointer = messageId === undefined ? undefined : { messageId, channel, account, conversation, sessionKey };
    const pending = { command: command.toLowerCase(), words: bareWords(rest ?? ""), pointer, receivedAt: now };
    this.#pending.set(sessionKey, [...(this.#pending.get(sessionKey) ?? []), pending].slice(-MAX_PENDING));
  }

  /** Take the message quoted by the command that runs now. Others may have come in since, so its words identify it. */
  take(sessionKey: string | undefined, command: string, args: string, now: number): Pointer | undefined {
    if (sessionKey === undefined) return undefined;
    const waiting = (this.#pending.get(sessionKey) ?? []).filter((pending) => now - pending.receivedAt < MAX_WAIT);
    const words = bareWords(args);
    const found =
      waiting.findLast((pending) => pending.command === command && pending.words === words) ??
      waiting.findLast((pending) => pending.command === command);
    const rest = waiting.filter((pending) => pending !== found);
    if (rest.length > 0) this.#pending.set(sessionKey, rest);
    else this.#pending.delete(sessionKey);
    return found?.pointer;
  }
}
