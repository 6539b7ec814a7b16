import { Messages } from "./messages.js";
import { Outbox } from "./outbox.js";
import { Quotes } from "./quotes.js";
import { Runs } from "./runs.js";
import { Sessions } from "./sessions.js";
import { Turns } from "./turns.js";

/**
 * What is remembered between hooks, model calls and commands; all of it in memory, and bounded. OpenClaw registers a
 * plug-in several times in one process, so it cannot live in a module.
 */
export interface State {
  runs: Runs;
  sessions: Sessions;
  turns: Turns;
  messages: Messages;
  quotes: Quotes;
  outbox: Outbox;
  /** Address and key as the last request showed them, for a provider whose entry does not tell. */
  shown: { url?: string; apiKey?: string };
  /** Model calls of agent runs since a hook last told of one: many mean that the hooks are not allowed. */
  untold: number;
}

/** Its number changes with the shape of `State`: an older copy of the plug-in may still be loaded beside this one. */
const KEY = Symbol.for("openclaw-rl.state.1");

export function sharedState(): State {
  const holder = globalThis as { [KEY]?: State | undefined };
  return (holder[KEY] ??= freshState());
}

export function freshState(outbox = new Outbox()): State {
  return {
    runs: new Runs(),
    sessions: new Sessions(),
    turns: new Turns(),
    messages: new Messages(),
    quotes: new Quotes(),
    outbox,
    shown: {},
    untold: 0,
  };
}
