import { Bounded } from "./bounded.js";
import type { MessageContext, MessageReceivedEvent } from "./host.js";
import type { Pointer } from "./messages.js";
import { bareWords } from "./turns.js";

/** A feedback command as it came in, before it is run. */
interface Asked {
  command: string;
  words: string;
  /** The message that it quotes. */
  pointer: Pointer | undefined;
  at: number;
}

const MOST_SESSIONS = 200;
const MOST_ASKED = 20;
/** A command is run at once, also beside a run at work; one that was not run by then never is. */
const LONGEST_WAIT = 30_000;
const COMMAND = /^\s*(?:[<@]\S{1,100}\s+)?\/(good|bad)(?:@\S{1,100})?(?:\s+(.*))?$/is;

/** Which message a feedback command quotes: the command itself is not told so, only whoever sees messages come in. */
export class Quotes {
  readonly #asked = new Bounded<string, Asked[]>(MOST_SESSIONS);

  received(event: MessageReceivedEvent, context: MessageContext, now: number): void {
    const sessionKey = event.sessionKey ?? context.sessionKey;
    const [, command, rest] = COMMAND.exec(event.content) ?? [];
    if (sessionKey === undefined || command === undefined) return;
    const { channelId: channel, accountId: account, conversationId: conversation } = context;
    const messageId = event.replyToId;
    const pointer = messageId === undefined ? undefined : { messageId, channel, account, conversation, sessionKey };
    const asked = { command: command.toLowerCase(), words: bareWords(rest ?? ""), pointer, at: now };
    this.#asked.set(sessionKey, [...(this.#asked.get(sessionKey) ?? []), asked].slice(-MOST_ASKED));
  }

  /** What the command that is run now quotes. Others may have come in since: it is known by its words. */
  take(sessionKey: string | undefined, command: string, args: string, now: number): Pointer | undefined {
    if (sessionKey === undefined) return undefined;
    const waiting = (this.#asked.get(sessionKey) ?? []).filter((asked) => now - asked.at < LONGEST_WAIT);
    const words = bareWords(args);
    const found =
      waiting.findLast((asked) => asked.command === command && asked.words === words) ??
      waiting.findLast((asked) => asked.command === command);
    const rest = waiting.filter((asked) => asked !== found);
    if (rest.length > 0) this.#asked.set(sessionKey, rest);
    else this.#asked.delete(sessionKey);
    return found?.pointer;
  }
}
