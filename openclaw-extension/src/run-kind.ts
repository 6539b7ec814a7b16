import type { Run } from "./runs.js";

/**
 * The purpose of a model call. `person`: a message of the user; `agent`: a message of another agent or a sub-agent's
 * report; `program`: OpenClaw continues the conversation by itself; `memory`, `compaction` and `utility`: work around
 * the conversation; `unknown`: OpenClaw did not say.
 */
export type RunKind =
  "person" | "agent" | "program" | "subagent" | "heartbeat" | "cron" | "memory" | "compaction" | "utility" | "unknown";

/** The kinds that the settings may select for training. */
export const MAIN_RUN_KINDS = ["person", "agent", "program", "subagent", "heartbeat", "cron"] as const;

export type TurnType = "main" | "side";

/**
 * The parts of OpenClaw's id of a model call: `<run>:model:<n>`, or `<compacted>:compaction:<id>:model:<n>` for a
 * compaction, inside or outside a run.
 */
export interface CallId {
  runId?: string;
  /** A run, a session, or a name that OpenClaw made up. */
  compacted?: string;
}

export function readCallId(requestId: string | undefined): CallId {
  const compacted = requestId?.match(/^(.+?):compaction:/s)?.[1];
  if (compacted !== undefined) return { compacted };
  const model = requestId?.match(/^(.+):(?:model|[^:]+:worker-model):\d+$/s)?.[1];
  return model === undefined ? {} : { runId: model };
}

/** `simple`: a direct completion outside an agent run. */
export function runKind(call: CallId, run: Run | undefined, simple: boolean): RunKind {
  if (call.compacted !== undefined) return "compaction";
  if (simple) return "utility";
  const key = run?.sessionKey ?? "";
  if (run?.trigger === "memory" || key.includes("internal-session-effects")) return "memory";
  if (run?.trigger === "overflow") return "compaction";
  if (run?.trigger === "heartbeat") return "heartbeat";
  if (run?.trigger === "cron" || key.includes(":cron:")) return "cron";
  if (key.includes(":subagent:")) return "subagent";
  if (run?.trigger === "manual" || key.includes(":helper:")) return "utility";
  if (run?.trigger !== "user") return "unknown";
  if (run.input === "inter_session") return "agent";
  return run.input === "internal_system" ? "program" : "person";
}

/** The turn type for the service; `undefined` leaves the decision to it. */
export function turnType(kind: RunKind, mainRuns: ReadonlySet<RunKind>): TurnType | undefined {
  if (mainRuns.has(kind)) return "main";
  return kind === "unknown" || kind === "program" ? undefined : "side";
}
