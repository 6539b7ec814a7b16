import { Bounded } from "./bounded.js";
import type { AnswerMessage } from "./host.js";

/** A main turn that was answered, by the id that the service gave it. */
export interface Turn {
  turnId: string;
  sessionId: string;
  /** Which of the session's episodes it was asked in. */
  episode: number;
  runId: string | undefined;
  /** Its words without spaces, marks and signs, so that what a channel made of them can be compared. */
  words: string;
  /** When its response began, in milliseconds since 1970: no part of it can have been sent before. */
  respondedAt: number;
}

const MOST_SESSIONS = 200;
const MOST_TURNS = 50;
const MOST_WORDS = 16_000;

/** The latest answered main turns of each session, in the order in which their answers were complete. */
export class Turns {
  readonly #sessions = new Bounded<string, Turn[]>(MOST_SESSIONS);

  answered(told: Omit<Turn, "words">, answer: AnswerMessage): void {
    const turn = { ...told, words: bareWords(textOf(answer)) };
    this.#sessions.set(turn.sessionId, [...(this.#sessions.get(turn.sessionId) ?? []), turn].slice(-MOST_TURNS));
  }

  /** The turn of an episode that was answered last; where the episode has none, of those before it. */
  last(sessionId: string, episode: number): Turn | undefined {
    const turns = this.of(sessionId);
    return turns.find((turn) => turn.episode === episode) ?? turns[0];
  }

  /** The turns of a session, the one answered last first. */
  of(sessionId: string): Turn[] {
    return (this.#sessions.get(sessionId) ?? []).toReversed();
  }
}

/** Letters and digits of a text, in lower case; of a text that has none, its signs. */
export function bareWords(text: string): string {
  const plain = text.normalize("NFKC").toLowerCase();
  const words = plain.replace(/[^\p{L}\p{N}]+/gu, "");
  return (words === "" ? plain.replace(/[\s\u{FE0F}]+/gu, "") : words).slice(0, MOST_WORDS);
}

function textOf(answer: AnswerMessage): string {
  return answer.content.map((part) => (part.type === "text" ? (part.text ?? "") : "")).join("");
}
