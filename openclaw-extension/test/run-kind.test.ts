import { describe, expect, it } from "vitest";

import { readCallId, runKind, turnType } from "../src/run-kind.js";
import type { Run } from "../src/runs.js";

const MAIN = new Set(["person", "agent"] as const);

function kind(run: Partial<Run> | undefined, requestId = "r:model:1", simple = false): string {
  return runKind(readCallId(requestId), run === undefined ? undefined : { runId: "r", ...run }, simple);
}

describe("the id of a model call", () => {
  it("names the run, whatever its characters", () => {
    expect(readCallId("a:b:model:x:model:12")).toEqual({ runId: "a:b:model:x" });
  });

  it("names the run of a call by an OpenClaw worker", () => {
    expect(readCallId("run-1:turn-2:worker-model:3")).toEqual({ runId: "run-1" });
  });

  it("names the compacted session or run", () => {
    expect(readCallId("s-1:compaction:cmp-2:model:1")).toEqual({ compacted: "s-1" });
    expect(readCallId("s-1:compaction:cmp-2")).toEqual({ compacted: "s-1" });
  });

  it("may be missing or unknown", () => {
    expect(readCallId(undefined)).toEqual({});
    expect(readCallId("req_1")).toEqual({});
  });
});

describe("the kind of a run", () => {
  it.each([
    [{ trigger: "user" }, "person"],
    [{ trigger: "user", input: "external_user" }, "person"],
    [{ trigger: "user", input: "inter_session" }, "agent"],
    [{ trigger: "user", input: "internal_system" }, "program"],
    [{ trigger: "user", sessionKey: "agent:main:subagent:1" }, "subagent"],
    [{ trigger: "user", sessionKey: "agent:main:cron:1" }, "cron"],
    [{ trigger: "cron", sessionKey: "agent:main:main" }, "cron"],
    [{ trigger: "heartbeat", sessionKey: "agent:main:main" }, "heartbeat"],
    [{ trigger: "memory" }, "memory"],
    [{ trigger: "user", sessionKey: "agent:main:internal-session-effects:1" }, "memory"],
    [{ trigger: "overflow" }, "compaction"],
    [{ trigger: "manual" }, "utility"],
    [{ sessionKey: "agent:main:helper:incognito-slug-generator-1" }, "utility"],
    [{ trigger: "something new" }, "unknown"],
    [{}, "unknown"],
  ])("%j is %s", (run, expected) => {
    expect(kind(run)).toBe(expected);
  });

  it("is not guessed if no hook announced the run", () => {
    expect(kind(undefined)).toBe("unknown");
  });

  it("is compaction by the call's id, also within a person's run", () => {
    expect(kind({ trigger: "user" }, "s:compaction:1")).toBe("compaction");
  });

  it("is utility for a direct completion", () => {
    expect(kind(undefined, "", true)).toBe("utility");
  });
});

describe("the turn type", () => {
  it("is main for the configured kinds, side for the others", () => {
    expect(turnType("person", MAIN)).toBe("main");
    expect(turnType("heartbeat", MAIN)).toBe("side");
    expect(turnType("heartbeat", new Set(["heartbeat"] as const))).toBe("main");
    expect(turnType("person", new Set())).toBe("side");
  });

  it("is left to the service if unknown", () => {
    expect(turnType("unknown", MAIN)).toBeUndefined();
    expect(turnType("program", MAIN)).toBeUndefined();
  });
});
