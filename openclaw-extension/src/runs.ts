import { Bounded } from "./bounded.js";
import type { AgentContext } from "./host.js";

/** An agent run: one message of a person and all model calls it leads to. */
export interface Run {
  runId: string;
  sessionId?: string;
  sessionKey?: string;
  agentId?: string;
  trigger?: string;
  /** OpenClaw's classification of the source of the input. */
  input?: string;
  channel?: string;
  accountId?: string;
  chatId?: string;
}

const MAX_RUNS = 500;

/** The latest runs; OpenClaw's hooks announce each before its first model call. */
export class Runs {
  readonly #runs = new Bounded<string, Run>(MAX_RUNS);

  /** Record the fields of a hook; a later hook of the same run adds to them. */
  note(context: AgentContext): Run | undefined {
    const { runId } = context;
    if (runId === undefined) return undefined;
    const fields = {
      sessionId: context.sessionId,
      sessionKey: context.sessionKey,
      agentId: context.agentId,
      trigger: context.trigger,
      input: context.inputProvenance?.kind,
      channel: context.messageProvider,
      accountId: context.accountId,
      chatId: context.chatId,
    };
    const present = Object.entries(fields).filter(([, value]) => value !== undefined);
    const run: Run = { ...this.#runs.get(runId), ...Object.fromEntries(present), runId };
    this.#runs.set(runId, run);
    return run;
  }

  get(runId: string | undefined): Run | undefined {
    return runId === undefined ? undefined : this.#runs.get(runId);
  }
}
