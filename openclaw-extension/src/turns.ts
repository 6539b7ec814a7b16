import { Bounded } from "./bounded.js";
import type { AnswerMessage } from "./host.js";

/** An answered main turn; `turnId` is the service's id. */
export interface Turn {
  turnId: string;
  sessionId: string;
  /** The session's episode at the request. */
  episode: number;
  runId: string | undefined;
  /** The answer's letters and digits, to compare it with what a channel made of it. */
  words: string;
  /** Start of the response in milliseconds since 1970: no part of it can have been sent before. */
  respondedAt: number;
}

const MAX_SESSIONS = 200;
const MAX_TURNS = 50;
const MAX_CHARACTERS = 16_000;

/** The latest answered main turns of each session, in the order in which the answers completed. */
export class Turns {
  readonly #sessions = new Bounded<string, Turn[]>(MAX_SESSIONS);

  answered(call: Omit<Turn, "words">, answer: AnswerMessage): void {
    const turn = { ...call, words: bareWords(textOf(answer)) };
    this.#sessions.set(turn.sessionId, [...(this.#sessions.get(turn.sessionId) ?? []), turn].slice(-MAX_TURNS));
  }

  /** The last answered turn of an episode, or of an earlier one if it has none. */
  last(sessionId: string, episode: number): Turn | undefined {
    const turns = this.of(sessionId);
    return turns.find((turn) => turn.episode === episode) ?? turns[0];
  }

  /** The turns of a session, newest answer first. */
  of(sessionId: string): Turn[] {
    return (this.#sessions.get(sessionId) ?? []).toReversed();
  }
}

/** The letters and digits of a text in lower case; if it has none, its symbols. */
export function bareWords(text: string): string {
  const plain = text.normalize("NFKC").toLowerCase();
  const words = plain.replace(/[^\p{L}\p{N}]+/gu, "");
  return (words === "" ? plain.replace(/[\s\u{FE0F}]+/gu, "") : words).slice(0, MAX_CHARACTERS);
}

function textOf(answer: AnswerMessage): string {
  return answer.content.map((part) => (part.type === "text" ? (part.text ?? "") : "")).join("");
}
