import { Bounded } from "./bounded.js";
import type { AgentContext } from "./host.js";

/** An agent run: one message of a person and everything that follows from it. */
export interface Run {
  runId: string;
  sessionId?: string;
  sessionKey?: string;
  agentId?: string;
  trigger?: string;
  /** Where the run's input came from, as OpenClaw classifies it. */
  input?: string;
  channel?: string;
  accountId?: string;
  chatId?: string;
}

const MOST_RUNS = 500;

/** The latest runs, as OpenClaw's hooks tell of them before their first model call. */
export class Runs {
  readonly #runs = new Bounded<string, Run>(MOST_RUNS);

  /** Take in what a hook tells; a later hook of the same run adds to it. */
  note(context: AgentContext): Run | undefined {
    const { runId } = context;
    if (runId === undefined) return undefined;
    const told = {
      sessionId: context.sessionId,
      sessionKey: context.sessionKey,
      agentId: context.agentId,
      trigger: context.trigger,
      input: context.inputProvenance?.kind,
      channel: context.messageProvider,
      accountId: context.accountId,
      chatId: context.chatId,
    };
    const present = Object.entries(told).filter(([, value]) => value !== undefined);
    const run: Run = { ...this.#runs.get(runId), ...Object.fromEntries(present), runId };
    this.#runs.set(runId, run);
    return run;
  }

  get(runId: string | undefined): Run | undefined {
    return runId === undefined ? undefined : this.#runs.get(runId);
  }
}
