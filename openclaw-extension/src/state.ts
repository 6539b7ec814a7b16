import { Messages } from "./messages.js";
import { Outbox } from "./outbox.js";
import { Quotes } from "./quotes.js";
import { Runs } from "./runs.js";
import { Sessions } from "./sessions.js";
import { Turns } from "./turns.js";

/**
 * Everything kept between hooks, model calls and commands: in memory, and bounded. OpenClaw loads a plug-in several
 * times in one process, so a module variable would not be shared.
 */
export interface State {
  runs: Runs;
  sessions: Sessions;
  turns: Turns;
  messages: Messages;
  quotes: Quotes;
  outbox: Outbox;
  /** Address and key of the last request, for a provider whose entry does not contain them. */
  observed: { url?: string; apiKey?: string };
  /** Consecutive model calls of runs that no hook announced; several mean that the hooks are not allowed. */
  unannounced: number;
}

/** Change the number with the shape of `State`: an older copy of the plug-in may still be loaded. */
const KEY = Symbol.for("openclaw-rl.state.2");

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
    observed: {},
    unannounced: 0,
  };
}
