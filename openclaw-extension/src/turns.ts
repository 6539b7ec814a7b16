import { Bounded } from "./bounded.js";
import type { AnswerMessage } from "./host.js";

/** A main turn that was answered, by the id that the service gave it. */
export interface Turn {
  turnId: string;
  /** Its words without spaces, marks and signs, so that what a channel made of them can be compared. */
  words: string;
  /** Whether a person could read it as an answer: it has words, and calls no tool. */
  final: boolean;
  /** Milliseconds since 1970. */
  answeredAt: number;
}

const MOST_SESSIONS = 200;
const MOST_TURNS = 50;
const MOST_WORDS = 4_000;

/** The latest answered main turns of each conversation. */
export class Turns {
  readonly #sessions = new Bounded<string, Turn[]>(MOST_SESSIONS);

  answered(sessionId: string, turnId: string, answer: AnswerMessage, now: number): void {
    const words = bareWords(textOf(answer));
    const final = words !== "" && answer.stopReason !== "toolUse";
    const turn = { turnId, words, final, answeredAt: now };
    this.#sessions.set(sessionId, [...(this.#sessions.get(sessionId) ?? []), turn].slice(-MOST_TURNS));
  }

  /** The answer that a person saw last: the last final one, or the last of all where none was. */
  last(sessionId: string, until = Infinity): Turn | undefined {
    const turns = this.of(sessionId).filter((turn) => turn.answeredAt <= until);
    return turns.find((turn) => turn.final) ?? turns[0];
  }

  /** The turns of a conversation, the last first. */
  of(sessionId: string): Turn[] {
    return (this.#sessions.get(sessionId) ?? []).toReversed();
  }
}

/** Letters and digits of a text, in lower case, up to a length that tells two answers apart. */
export function bareWords(text: string): string {
  return text
    .toLowerCase()
    .replace(/[^\p{L}\p{N}]+/gu, "")
    .slice(0, MOST_WORDS);
}

function textOf(answer: AnswerMessage): string {
  return answer.content.map((part) => (part.type === "text" ? (part.text ?? "") : "")).join("");
}
